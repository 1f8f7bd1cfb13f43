"""Parts, blocks and batches of text, and the documents in them.

Each part (a file or a dataset) is a sequence of blocks. A block is a sequence of batches of about a
MiB, each read and encoded as a whole. A line is held in memory whole; nothing else grows with the
input. Blank lines are not documents. Lines are counted only when an error or a warning names one.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, repeat
from typing import Any, Literal, NamedTuple

from nanoset_ref.io.paths import file_version
from nanoset_ref.preprocess.json_lines import (
    DocumentError,
    InputError,
    text_of,
    texts_of_lines,
)

OnError = Literal["raise", "skip"]
# (a function that reads the lines or values of a batch, and its number of rows; 0 for lines)
Content = tuple[Callable[[], bytes | list[Any]], int]


class Document(NamedTuple):
    """A text: row `number` of a block, counted from 0."""

    text: str
    block: TextBlock
    number: int

    @property
    def file_and_line(self) -> str:
        """The location as "file:line", counted from 1."""
        return f"{self.block.part.path}:{self.block.first_number() + self.number}"


@dataclass(frozen=True)
class TextPart:
    """A file or a dataset.

    Args:
        path: its name in errors.
        num_bytes: its size on disk.
        columns: the columns to look for; the first that a document has is its text.
        on_error: "raise" or "skip".
        read_blocks: cuts the part into blocks.
        version: the `paths.file_version` of the file when it was opened; None for a dataset.
    """

    path: str
    num_bytes: int
    columns: tuple[str, ...]
    on_error: OnError
    read_blocks: Callable[[TextPart], Iterator[TextBlock]]
    version: tuple[Any, ...] | None = None

    def check_unchanged(self) -> None:
        """Raise InputError if the file was replaced or changed since it was opened."""
        if self.version is not None and file_version(self.path) != self.version:
            raise InputError(
                f"{self.path} was replaced or changed while it was read; start again"
            )


class BatchTexts(NamedTuple):
    """The documents of a batch.

    Attributes:
        texts: the texts.
        document_numbers: of each document in its block, from 0.
        skipped: {reason: number} of the documents that `on_error="skip"` leaves out.
    """

    texts: list[str]
    document_numbers: Sequence[int]
    skipped: dict[str, int]


@dataclass
class TextBlock:
    """Consecutive rows of a part. Making a block costs nothing; its batches read.

    Args:
        part: the file or dataset.
        num_bytes: its size on disk, roughly (for progress).
        contents: yields the batches, each as `Content`.
        first_number: returns the number of the first row, from 1.
        num_rows: the rows of a table; None for lines, which are one batch.
    """

    part: TextPart
    num_bytes: int
    contents: Callable[[], Iterable[Content]]
    first_number: Callable[[], int]
    num_rows: int | None = None

    def batches(self) -> Iterator[TextBatch]:
        """The batches in order."""
        row = 0
        before = 0  # bytes
        for content, size in self.contents():
            bytes_so_far = self.num_bytes
            if self.num_rows:
                bytes_so_far = self.num_bytes * (row + size) // self.num_rows
            yield TextBatch(self, row, bytes_so_far - before, content)
            before = bytes_so_far
            row += size

    def documents(self) -> Iterator[Document]:
        """The documents in order; DocumentError at an unusable one unless `on_error` is "skip"."""
        for batch in self.batches():
            texts = batch.texts()
            if texts is None:
                yield from batch.line_by_line(Counter())
            else:
                yield from map(Document, texts, repeat(self), count(batch.row))


@dataclass(frozen=True)
class TextBatch:
    """Consecutive rows of a block, read and encoded at once; threads may read several batches.

    Args:
        block: the block.
        row: the number of the first row in the block, counted from 0.
        num_bytes: its share of the block's bytes.
        content: reads JSON lines as bytes, or the values of a column.
        skip_before: rows of the block before this one are left out.
    """

    block: TextBlock
    row: int
    num_bytes: int
    content: Callable[[], bytes | list[Any]]
    skip_before: int = 0

    def read(self) -> BatchTexts:
        """All documents; DocumentError at an unusable one unless `on_error` is "skip"."""
        texts = self.texts()
        if texts is not None:
            first = max(self.row, self.skip_before)
            texts = texts[first - self.row :]
            return BatchTexts(texts, range(first, first + len(texts)), {})
        skipped = Counter[str]()
        documents = list(self.line_by_line(skipped))
        texts = [document.text for document in documents]
        return BatchTexts(
            texts, [document.number for document in documents], dict(skipped)
        )

    def texts(self) -> list[str] | None:
        """The text of every row; None if a row may be blank or unusable."""
        content = self.content()
        if isinstance(content, bytes):
            return texts_of_lines(content, self.block.part.columns)
        return content if set(map(type, content)) <= {str} else None

    def line_by_line(self, skipped: Counter[str]) -> Iterator[Document]:
        """The documents, row by row, with the checks and errors of `text_of`."""
        part = self.block.part
        content = self.content()
        if isinstance(content, bytes):
            rows: Iterable[Any] = io.BytesIO(content)
        else:
            rows = ({part.columns[0]: value} for value in content)
        for number, row in enumerate(rows, self.row):
            if number < self.skip_before:
                continue
            try:
                text = text_of(row, part.columns)
            except DocumentError as error:
                if part.on_error == "raise":
                    place = Document("", self.block, number).file_and_line
                    raise DocumentError(error.reason, f"{place}: {error}") from None
                skipped[error.reason] += 1
                continue
            if text is not None:
                yield Document(text, self.block, number)

    def file_and_line(self, index: int) -> str:
        """The location of a document, by its index in the batch."""
        documents = self.line_by_line(Counter())
        return next(islice(documents, index, None)).file_and_line
