"""Rows: what every dataset of this package is to its readers. Position k -> a row of token ids, and where it came from.

A dataset says how a batch of rows is filled (`fill`) and where their tokens lie (`origin`, `spans`, `positions_of`);
checking positions, single samples, blocks and the fingerprint are written once, here. Loaders, collators, document
masks and provenance work on any Rows.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.orders.base import counted_from_0
from nanoset_ref.tokens import Tokens

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    class MapDataset(Dataset[dict[str, NDArray[Any]]], ABC): ...

else:
    # torch's DataLoader reads anything with a length and items; only its annotations ask for its
    # own class. So a question about rows is answered without torch, which takes seconds to import.
    MapDataset = ABC

Starts = NDArray[np.bool_]  # [n, row_length], True where a document begins


class Origin(NamedTuple):
    """The sample at a position: the number of its file in `Rows.files`, its number in there, and the epoch, from 0."""

    source: int
    sample: int
    epoch: int


class Span(NamedTuple):
    """Tokens [start, stop) of a document, at bytes [first_byte, last_byte) of its file.

    Where document boundaries are not known, `document` is None and the tokens are counted from the start of the file.
    """

    document: int | None
    start: int
    stop: int
    first_byte: int
    last_byte: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceUse:
    """How a stretch of positions uses one file.

    Attributes:
        path: the file. weight: its share in the plan, of a sum of 1.
        num_samples: samples in one epoch of it. read: samples read in the stretch.
        epochs: `read` in passes over the file.
        distinct, repetitions: different samples read up to the end of the stretch, and how often the most-read one was
            (Megatron cuts new samples in every epoch; there, how many epochs).
        tokens: in the file (Megatron: in the stream of all epochs). tail_tokens: of these, in no sample; negative where
            padding fills the last one.
    """

    path: str
    weight: float
    num_samples: int
    read: int
    epochs: float
    distinct: int
    repetitions: int
    tokens: int
    tail_tokens: int


class SampleBlock(list[dict[str, NDArray[Any]]]):
    """Several samples in one buffer: a list of {"input_ids": [row_length]} whose arrays are views.

    Args:
        rows: integers [number of samples, row_length].
        find_starts: gives `starts`; it is called when they are asked for, as most collators never do.
    """

    def __init__(self, rows: NDArray[Any], find_starts: Callable[[], Starts] | None = None) -> None:
        super().__init__({"input_ids": row} for row in rows)
        self.rows = rows
        self._find_starts = find_starts
        self._array_ids = [_array_id(sample) for sample in self]

    @property
    def intact(self) -> bool:
        """Whether the list still holds the arrays that it was made of, in their order."""
        return list(map(_array_id, self)) == self._array_ids

    @property
    def starts(self) -> Starts | None:
        """bool, of the shape of `rows`, True where a document (or the row) begins; None: nobody knows."""
        return self._find_starts() if self._find_starts else None

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # in another process it is a list of samples


def _array_id(sample: dict[str, NDArray[Any]]) -> int:
    """Which array is the only one of a sample; 0 if it has others."""
    return id(sample.get("input_ids")) if len(sample) == 1 else 0


class Rows(MapDataset):
    """Rows of equal length, read many at a time: a dataset for torch's DataLoader.

    Attributes:
        sequence_length: S, in tokens.
        row_length: tokens in a row, S + 1 unless a dataset says otherwise.
        row_dtype: dtype of the rows read, int32 or int64.
        files: the token files behind the rows, by source number.
        shuffled_over: positions over which sources are shuffled among each other: shares are exact, to a sample, after
            each such stretch; 0: they always are; None: the order promises no shares.
        padded: whether rows may end in padding, whose every token `starts` marks, so that no loss counts it.
        block_factor: how many times larger a block of rows is than usual (see `blocks`), for sources that answer late.
    """

    sequence_length: int
    row_length: int
    row_dtype: np.dtype[Any] = np.dtype(np.int32)
    shuffled_over: int | None = 0
    padded: bool = False
    block_factor: int = 1

    @property
    @abstractmethod
    def files(self) -> Sequence[Tokens]: ...

    @abstractmethod
    def _describe(self) -> dict[str, Any]:
        """The plan (see `plans`) without version and probes: what is known without reading tokens."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fill(self, positions: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the rows at positions into `out`, without checking either: `read` is for positions of unknown origin.

        Args:
            positions: int64 [n] of [0, len).
            out: `row_dtype` [n, row_length] in C order.
        """

    @abstractmethod
    def _starts(self, positions: NDArray[np.int64]) -> Starts:
        """`starts` for valid positions."""

    @abstractmethod
    def origin(self, position: int) -> Origin:
        """Which sample of which file stands at a position of [0, len)."""

    @abstractmethod
    def spans(self, position: int) -> list[Span]:
        """The document spans behind a position of [0, len), in order; padding is in none."""

    @abstractmethod
    def positions_of(
        self,
        source: int,
        document: int,
        tokens: tuple[int, int] | None = None,
        until: int | None = None,
    ) -> NDArray[np.int64]:
        """The positions below `until` (None: all), ascending, whose rows hold tokens of a document.

        Args:
            source: number of the file.
            document: number of the document within it.
            tokens: (start, stop) within the document: only rows that hold one of these; None: any.

        Raises:
            IndexError: no such file, document or tokens.
            ValueError: the file's document boundaries are not known.
        """

    def token_range(
        self, source: int, document: int, tokens: tuple[int, int] | None
    ) -> tuple[int, int]:
        """Begin and end in its file of the tokens that `positions_of` is asked for; it says what is raised."""
        offsets = self.files[checked_number(source, len(self.files), "file")].known_documents()
        first, end = offsets[checked_number(document, len(offsets) - 1, "document") :][:2].tolist()
        start, stop = tokens or (0, end - first)
        if not 0 <= start <= stop <= end - first:
            raise IndexError(
                f"there are no tokens {start}:{stop} in document {document}, which has {end - first}"
            )
        return first + start, first + stop

    @abstractmethod
    def usage(self, start: int, stop: int) -> list[SourceUse]:
        """How positions [start, stop) use each file."""

    def read(self, positions: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The rows at `positions`, int64 [n], as [n, row_length] of `row_dtype`.

        Args:
            positions: negative ones count from the end.
            out: an array of that shape and dtype in C order to fill, for buffers that are used again.

        Raises:
            IndexError: a position outside [-len, len).
            ValueError: `out` has another shape, dtype or layout.
        """
        positions = counted_from_0(positions, len(self))
        shape = len(positions), self.row_length
        if out is None:
            out = np.empty(shape, dtype=self.row_dtype)
        elif out.shape != shape or out.dtype != self.row_dtype or not out.flags.c_contiguous:
            found = f"{out.dtype} {list(out.shape)} with strides {out.strides}"
            raise ValueError(
                f"out must be {self.row_dtype.name} {list(shape)} in C order, got {found}"
            )
        self.fill(positions, out)
        return out

    def starts(self, positions: NDArray[np.int64]) -> Starts:
        """Where documents begin in the rows at `positions` [n], bool [n, row_length]; True in column 0.

        Raises:
            ValueError: a file whose document boundaries are not known.
        """
        return self._starts(counted_from_0(positions, len(self)))

    def __getitem__(self, k: int) -> dict[str, NDArray[Any]]:
        """Sample k, {"input_ids": [row_length]}. Negative k counts from the end; IndexError outside."""
        return self.__getitems__([operator.index(k)])[0]

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> SampleBlock:
        """Several samples in one array; torch's DataLoader calls this with a whole batch."""
        try:
            indices = np.asarray(positions, dtype=np.int64)
        except OverflowError as error:
            raise IndexError(
                f"a position is outside a sequence of {len(self)} samples: {positions!r:.200}"
            ) from error
        return SampleBlock(self.read(indices), functools.partial(self.starts, indices))

    @property
    def plan(self) -> dict[str, Any]:
        """What decides the tokens at every position, as JSON (see `nanoset_ref.orders.plans`): a copy of its own.

        The first access reads the rows at the probes, in one call of `read`.
        """
        plan: dict[str, Any] = json.loads(self._plan)
        return plan

    @functools.cached_property
    def _plan(self) -> str:
        from nanoset_ref.orders.plans import (  # only when a plan is asked for
            VERSION,
            probe_positions,
        )

        positions = probe_positions(self._first_position, len(self))
        origins = [self.origin(position) for position in positions]
        hashes = _hashes(self.read(np.array(positions, dtype=np.int64)))
        probes = {
            str(position): [origin.source, origin.sample, digest]
            for position, origin, digest in zip(positions, origins, hashes, strict=True)
        }
        return json.dumps({"version": VERSION, **self._describe(), "probes": probes})

    @property
    def _first_position(self) -> int:
        """The first position that can be read."""
        return 0

    def _witnesses(self) -> list[int]:
        """Positions that `fill` can read, the same ones for all rows of one plan, however long they are."""
        from nanoset_ref.orders.plans import probe_positions  # as above

        return probe_positions(0, len(self))

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal for rows whose plans agree and whose files have the same
        checksums beside them, whatever the number of rows.
        """
        from nanoset_ref.orders.plans import VERSION, compared, fingerprint_of  # as above

        positions = np.array(self._witnesses(), dtype=np.int64)
        rows = np.empty((len(positions), self.row_length), dtype=self.row_dtype)
        self.fill(positions, rows)
        return fingerprint_of([VERSION, compared(self._describe()), _hashes(rows)])


def described(file: Tokens) -> dict[str, Any]:
    """A file, as a plan has it (see `plans`)."""
    return {
        "name": file.path.name,
        "num_tokens": file.num_tokens,
        "dtype": file.dtype.name,
        "checksum": file.checksum,
        "known_by": "probes" if file.checksum is None else "content",
    }


def _hashes(rows: NDArray[Any]) -> list[str]:
    """A hash of the ids of each row, whatever their dtype."""
    return [xxhash.xxh3_64_hexdigest(row.data) for row in np.ascontiguousarray(rows, dtype="<i8")]


def document_spans(file: Tokens, first: int, last: int) -> list[Span]:
    """The spans of documents that tokens [first, last) of a file consist of."""
    offsets = file.document_offsets
    itemsize = file.dtype.itemsize
    byte = file.first_byte
    if offsets is None:
        return [Span(None, first, last, byte + first * itemsize, byte + last * itemsize)]
    spans = []
    documents = range(
        int(np.searchsorted(offsets, first, side="right")) - 1, int(np.searchsorted(offsets, last))
    )
    for document in documents:
        begin, end = offsets[document : document + 2].tolist()
        low = max(begin, first)
        high = min(end, last)
        if low < high:
            bytes_read = byte + low * itemsize, byte + high * itemsize
            spans.append(Span(document, low - begin, high - begin, *bytes_read))
    return spans


def checked_number(number: int, count: int, what: str) -> int:
    """`number`, if it is one of `count` things; IndexError if not."""
    if not 0 <= operator.index(number) < count:
        raise IndexError(f"there is no {what} {number}: there are {count}, counted from 0")
    return number
