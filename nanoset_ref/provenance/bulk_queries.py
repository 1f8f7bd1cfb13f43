"""Bulk queries: when a run reads each of a million documents, byte ranges or passages."""

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref.io.types import Int64Array
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_facts import first_occurrences, num_bytes, stop_of
from nanoset_ref.provenance.passage_search import Passage, PassageSearch
from nanoset_ref.provenance.run_segments import RunSegment
from nanoset_ref.provenance.stage_reader import StageReader
from nanoset_ref.tokens import Tokens

QUERIES_AT_ONCE = 1 << 19
QUERY = re.compile(r"(?:(\d+):)?(\d+)(?:-(\d+))?")
HEADER = "query stage step position rank micro_batch row source sample".split()
LINE = "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d"
LINE_WITHOUT_RANKS = "%s\t%s\t%d\t%d\t\t\t\t%d\t%d"


class QueryFile(NamedTuple):
    """A file that queries may name: its ids are bytes [first_byte, end_byte).

    Its name is that in a card, or its path.
    """

    name: Any
    first_byte: int
    end_byte: int
    itemsize: int


def _do_nothing(argument: Any) -> Any:
    """No tokenizer of a file, and no progress shown."""


def _passage_of(line: str) -> Passage:
    """The text, or the ids, of a line of JSON; ValueError if it holds something else."""
    passage = None
    with contextlib.suppress(json.JSONDecodeError):
        passage = json.loads(line)
    are_ids = isinstance(passage, list) and {int}.issuperset(map(type, passage))
    if not (passage and (are_ids or isinstance(passage, str))):
        raise ValueError(
            "a line is [SOURCE:]DOCUMENT, [SOURCE:]FIRST_BYTE-END_BYTE, a text as a JSON string, "
            f"or ids as a JSON list, got {line!r:.80}"
        )
    return passage


class QueryParser(NamedTuple):
    """Parses queries: lines [SOURCE:]DOCUMENT or [SOURCE:]FIRST_BYTE-END_BYTE, or passages.

    A passage is a text (a JSON string) or ids (a JSON list), and is searched for in all files.

    Args:
        files: the files of the run. Of several with the same name, the first is used.
        open_file: opens a file, from its number.
        default_source: the file of lines that name none.
        tokenizer_of: returns the tokenizer of a file.
        progress: called with the progress of a search, in words.
    """

    files: Sequence[QueryFile]
    open_file: Callable[[int], Tokens]
    default_source: int
    tokenizer_of: Callable[[Tokens], Any] = _do_nothing
    progress: Callable[[str], None] = _do_nothing

    def spans(self, lines: Sequence[str]) -> Int64Array:
        """(number of the line, source, start, stop) of all tokens that lines name: int64 [n, 4].

        Raises:
            ValueError: a line of another form, or one that names no file, document or bytes of it.
        """
        firsts = first_occurrences([file.name for file in self.files]).tolist()
        spans = []
        passages = {}
        for row, line in enumerate(lines):
            match = QUERY.fullmatch(line)
            if match is None:
                passages[row] = _passage_of(line)
                continue
            named, number, end_byte = match.groups()
            source = self.default_source if named is None else int(named)
            if source >= len(firsts):
                raise ValueError(
                    f"{line}: there are {len(firsts)} files, counted from 0"
                )
            try:
                span = self._span(source, int(number), end_byte)
            except ValueError as error:
                raise ValueError(f"{line}: {error}") from error
            spans.append((row, firsts[source], *span))
        if passages:
            spans += self._matches_of(passages, sorted(set(firsts)))
        return np.array(spans, dtype=np.int64).reshape(-1, 4)

    def _matches_of(
        self,
        passages: dict[int, Passage],
        sources: Sequence[int],
    ) -> Iterator[Any]:
        """The spans of passages, {number of the line: passage}, from one pass over the files."""
        has_texts = str in map(type, passages.values())
        for source in sources:
            file = self.open_file(source)
            offsets = file.require_document_offsets()
            tokenizer = self.tokenizer_of(file) if has_texts else None
            search = PassageSearch(passages, tokenizer)
            for searched, matches in search.matches_in(file):
                self.progress(f"file {source}: {searched:,} documents searched")
                for row, document, start, stop in matches:
                    first = offsets[document]
                    yield row, source, first + start, first + stop

    def _span(
        self,
        source: int,
        number: int,
        end_byte: str | None,
    ) -> tuple[int, int]:
        """The tokens [start, stop) of document `number`, or of bytes [number, end_byte)."""
        if end_byte is None:
            boundaries = self.open_file(source).require_document_offsets()
            if number + 1 >= len(boundaries):
                raise ValueError(
                    f"there are {len(boundaries) - 1:,} documents, counted from 0"
                )
            return boundaries[number], boundaries[number + 1]
        _, header, file_end, itemsize = self.files[source]
        if not header <= number < int(end_byte) <= file_end:
            raise ValueError(f"the ids are bytes {header}-{file_end} of the file")
        start = (number - header) // itemsize
        return start, -(-(int(end_byte) - header) // itemsize)


ReadersAndParser = tuple[list[StageReader], QueryParser]


def readers_of_card(card: Card, source: int) -> ReadersAndParser:
    """The stages of a card and a parser for its files, whose documents the card does not know.

    Args:
        source: the file of lines that name none.
    """
    firsts = first_occurrences([file["name"] for file in card.sources])
    window = card.facts["window"]
    readers = []
    for stage in card.stages:
        order = card.order(stage["order"])
        reader = StageReader(
            name=stage["name"],
            order=order,
            sources=firsts[card.source_numbers(stage["order"])],
            strides=np.full_like(order.dataset_lengths, window["stride"]),
            row_length=window["row_length"],
            schedule=card.schedule(stage),
            knows_ranks=stage["layout"] is not None,
            stop=stop_of(stage),
        )
        readers.append(reader)

    def open_file(source: int) -> Tokens:
        raise ValueError(
            "document numbers and passages need the token files: give bytes, or --data"
        )

    itemsize = np.dtype(card.facts["dtype"]).itemsize
    files = [
        QueryFile(file["name"], file["first_byte"], file["bytes"], itemsize)
        for file in card.sources
    ]
    return readers, QueryParser(files, open_file, source)


def readers_of_segments(
    segments: Sequence[RunSegment], source: int
) -> ReadersAndParser:
    """The segments of a run and a parser for their files.

    Args:
        source: the file of lines that name none.

    Raises:
        ValueError: see `RunSegment.require_cut_rows`.
    """
    used = [file for segment in segments for file in segment.dataset.files]
    if len(segments) > 1:
        used = list({file.path: file for file in used}.values())
    names = [file.path for file in used]
    numbers = dict(zip(names, first_occurrences(names), strict=True))
    readers = []
    for segment in segments:
        rows = segment.require_cut_rows()
        reader = StageReader(
            name=segment.name,
            order=rows.order,
            sources=np.array([numbers[file.path] for file in rows.files]),
            strides=rows.strides,
            row_length=rows.row_length,
            schedule=segment.schedule,
            knows_ranks=True,
            stop=min(segment.stop, len(rows)),
        )
        readers.append(reader)

    files = [
        QueryFile(name, file.first_byte, num_bytes(file), file.dtype.itemsize)
        for name, file in zip(names, used, strict=True)
    ]
    return readers, QueryParser(files, used.__getitem__, source)


def answer_queries(
    readers: Sequence[StageReader],
    parser: QueryParser,
    lines: Iterable[str],
) -> Iterator[list[str]]:
    """Make a table with a line for every row of the run that holds tokens of a query.

    Columns are separated by tabs; facts that a card does not know are empty.

    Yields:
        Lines: first the HEADER, then the answers to QUERIES_AT_ONCE queries at a time, ordered by
        stage, query and position.

    Raises:
        ValueError: see `QueryParser.spans`.
    """
    yield ["\t".join(HEADER)]
    for batch in query_batches(lines):
        spans = parser.spans(batch)
        table = []
        for reader in readers:
            queries, positions, sources, samples = reader.find(spans).T
            slots = reader.schedule.slot(positions)
            line = LINE_WITHOUT_RANKS
            ranks = []
            if reader.knows_ranks:
                line = LINE
                ranks = [slots.dp_rank, slots.micro_batch, slots.row]
            columns = [slots.step, positions, *ranks, sources, samples]
            rows = np.stack(columns, axis=1).tolist()
            for query, row in zip(queries.tolist(), rows, strict=True):
                table.append(line % (batch[query], reader.name, *row))
        yield table


def query_batches(lines: Iterable[str]) -> Iterator[list[str]]:
    """Batches of the lines that are not blank, without the tabs that JSON may have."""
    stripped = (line.strip().replace("\t", " ") for line in lines)
    queries = filter(None, stripped)
    while batch := list(itertools.islice(queries, QUERIES_AT_ONCE)):
        yield batch
