"""Rows: the interface of every dataset. Position k -> a row of token ids, and where it came from.

A dataset implements how rows are filled (`fill`) and where their tokens lie (`origin`, `spans`,
`positions_of`). Checking positions, single samples, blocks and the fingerprint are written once,
here. Loaders, collators, document masks and provenance work with any Rows.
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

from nanoset_ref.io.checks import check_index, normalize_indices
from nanoset_ref.io.types import Array, BoolArray, Int64Array, Json
from nanoset_ref.tokens import Tokens

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    class _TorchDataset(Dataset[dict[str, Array]], ABC): ...

else:
    # torch's DataLoader accepts anything with `__len__` and `__getitem__`; only its type hints
    # require Dataset. Importing torch takes seconds; questions about rows need not wait for that.
    _TorchDataset = ABC

Starts = BoolArray  # [n, row_length], True where a document begins


class Origin(NamedTuple):
    """The sample at a position.

    Attributes:
        source: its file, by the number in `Rows.files`.
        sample: its number within the file.
        epoch: from 0.
    """

    source: int
    sample: int
    epoch: int


class Span(NamedTuple):
    """Tokens [start, stop) of a document, at bytes [first_byte, end_byte) of its file.

    Where document boundaries are not known, `document` is None and the tokens are counted from the
    start of the file.
    """

    document: int | None
    start: int
    stop: int
    first_byte: int
    end_byte: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceUse:
    """How a range of positions uses one file.

    Attributes:
        path: the file.
        weight: its share in the plan; all shares sum to 1.
        num_samples: samples in one epoch of the file.
        read: samples read in the range.
        epochs: `read` / `num_samples`.
        distinct: different samples read up to the end of the range.
        most_reads: how often its most-read sample is read. (Megatron cuts new samples in every
            epoch; there it is the number of epochs.)
        tokens: tokens in the file (Megatron: in the stream of all epochs).
        tail_tokens: tokens that belong to no sample; negative if padding fills the last one.
    """

    path: str
    weight: float
    num_samples: int
    read: int
    epochs: float
    distinct: int
    most_reads: int
    tokens: int
    tail_tokens: int


class SampleBlock(list[dict[str, Array]]):
    """Several samples in one buffer: a list of {"input_ids": [row_length]} whose arrays are views.

    Args:
        rows: integers [number of samples, row_length].
        find_starts: returns `starts`. It is called when a collator asks for them; most never do.
    """

    def __init__(
        self, rows: Array, find_starts: Callable[[], Starts] | None = None
    ) -> None:
        super().__init__({"input_ids": row} for row in rows)
        self.rows = rows
        self._find_starts = find_starts
        # kept alive: a new array could get the address of an old one
        self._arrays = [sample["input_ids"] for sample in self]

    @property
    def is_unmodified(self) -> bool:
        """Whether the list still holds its original arrays, in their order, and nothing else."""
        if set(map(len, self)) - {1}:
            return False
        arrays = [sample.get("input_ids") for sample in self]
        return list(map(id, arrays)) == list(map(id, self._arrays))

    @property
    def starts(self) -> Starts | None:
        """bool, shaped as `rows`, True where a document (or the row) begins; None if unknown."""
        return self._find_starts() if self._find_starts else None

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # in another process it is a list of samples


class Rows(_TorchDataset):
    """Rows of equal length, read many at a time: a dataset for torch's DataLoader.

    Attributes:
        sequence_length: S, in tokens.
        row_length: tokens in a row, S + 1 in most datasets.
        row_dtype: dtype of the rows read, int32 or int64.
        files: the token files behind the rows, by source number.
        share_period: every source is within one sample of its share after each multiple of this
            many positions; 0: after every position; None: no guarantee.
        padded: whether rows may end in padding. `starts` marks every padding token, so that no loss
            counts it.
        pad_id: the id of the padding; None: there is none, or the files do not record it.
        block_factor: how many times larger than usual a block of rows is (see `blocks`); above 1
            for storage with a high latency.
    """

    sequence_length: int
    row_length: int
    row_dtype: np.dtype[Any] = np.dtype(np.int32)
    share_period: int | None = 0
    padded: bool = False
    pad_id: int | None = None
    block_factor: int = 1

    @property
    @abstractmethod
    def files(self) -> Sequence[Tokens]:
        """The token files behind the rows, by source number."""

    @abstractmethod
    def _plan_without_probes(self) -> Json:
        """The part of the plan that needs no tokens: all but version and probes (see `plans`)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fill(self, positions: Int64Array, out: Array) -> None:
        """Write the rows at `positions` into `out`. Both are unchecked; `read` checks.

        Args:
            positions: int64 [n], in [0, len).
            out: `row_dtype` [n, row_length] in C order.
        """

    @abstractmethod
    def _starts(self, positions: Int64Array) -> Starts:
        """`starts` for valid positions."""

    @abstractmethod
    def origin(self, position: int) -> Origin:
        """Which sample of which file is at a position of [0, len)."""

    @abstractmethod
    def spans(self, position: int) -> list[Span]:
        """The document spans at a position of [0, len), in order; padding belongs to none."""

    @abstractmethod
    def positions_of(
        self,
        source: int,
        document: int,
        tokens: tuple[int, int] | None = None,
        until: int | None = None,
    ) -> Int64Array:
        """The positions below `until` (None: all), ascending, whose rows hold tokens of a document.

        Args:
            source: the file, by its number.
            document: the document, by its number within the file.
            tokens: (start, stop) within the document: only rows that hold one of them; None: all.

        Raises:
            IndexError: no such file, document or tokens.
            ValueError: the file's document boundaries are not known.
        """

    def token_range(
        self, source: int, document: int, tokens: tuple[int, int] | None
    ) -> tuple[int, int]:
        """(start, stop) in the file, in tokens, for the arguments of `positions_of`.

        Raises: see `positions_of`.
        """
        file = self.files[check_index(source, len(self.files), "file")]
        offsets = file.require_document_offsets()
        document = check_index(document, len(offsets) - 1, "document")
        document_start = int(offsets[document])
        length = int(offsets[document + 1]) - document_start
        start, stop = map(operator.index, tokens or (0, length))
        if not 0 <= start <= stop <= length:
            raise IndexError(
                f"there are no tokens {start}:{stop} in document {document}, which has {length}"
            )
        return document_start + start, document_start + stop

    @abstractmethod
    def usage(self, start: int, stop: int) -> list[SourceUse]:
        """How positions [start, stop) use each file."""

    def read(self, positions: Int64Array) -> Array:
        """The rows at `positions`, int64 [n], as [n, row_length] of `row_dtype`.

        Args:
            positions: negative ones count from the end.

        Raises:
            IndexError: a position outside [-len, len).
            ValueError: `positions` is not one-dimensional.
        """
        positions = self._valid(positions)
        out = np.empty((len(positions), self.row_length), dtype=self.row_dtype)
        self.fill(positions, out)
        return out

    def starts(self, positions: Int64Array) -> Starts:
        """Where documents begin in rows: bool [positions, row_length], True in column 0.

        Raises:
            IndexError: a position outside [-len, len).
            ValueError: `positions` is not one-dimensional; a file whose document boundaries are not
                known.
        """
        return self._starts(self._valid(positions))

    def _valid(self, positions: Int64Array) -> Int64Array:
        """The positions in [0, len), int64 [n]; raises as `read`."""
        positions = normalize_indices(positions, len(self))
        if positions.ndim != 1:
            raise ValueError(
                f"give a one-dimensional array of positions, got shape {positions.shape}"
            )
        return positions

    def __getitem__(self, k: int) -> dict[str, Array]:
        """Sample k, {"input_ids": [row_length]}; a negative k counts from the end."""
        return self.__getitems__([operator.index(k)])[0]

    def __getitems__(self, positions: Sequence[int] | Int64Array) -> SampleBlock:
        """Several samples in one array; torch's DataLoader calls this with a whole batch."""
        indices = np.asarray(positions)
        return SampleBlock(self.read(indices), functools.partial(self.starts, indices))

    @property
    def plan(self) -> Json:
        """The facts that determine the tokens at every position (see `nanoset_ref.orders.plans`).

        Each access returns a fresh copy, JSON. The first one reads the rows at the probes.
        """
        return json.loads(self._plan)

    @functools.cached_property
    def _plan(self) -> str:
        """The `plan` as JSON text, made once."""
        # only plans and states need it
        from nanoset_ref.orders.plans import PLAN_VERSION, hash_rows, probe_positions

        positions = probe_positions(self._first_position, len(self))
        origins = [self.origin(position) for position in positions]
        hashes = hash_rows(self.read(np.array(positions)))
        probes = {
            str(position): [origin.source, origin.sample, digest]
            for position, origin, digest in zip(positions, origins, hashes, strict=True)
        }
        return json.dumps(
            {"version": PLAN_VERSION, **self._plan_without_probes(), "probes": probes}
        )

    @property
    def _first_position(self) -> int:
        """The first position that can be read."""
        return 0

    def _fingerprint_positions(self) -> list[int]:
        """Positions that `fill` can read; this default depends on the number of rows."""
        # only plans and states need it
        from nanoset_ref.orders.plans import probe_positions

        return probe_positions(0, len(self))

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal for datasets with the same plan, checksums of files and
        number of rows. A Nanoset's does not depend on the number of rows if its order is endless.
        """
        # only plans and states need it
        from nanoset_ref.orders.plans import fingerprint_of_rows

        positions = np.array(self._fingerprint_positions(), dtype=np.int64)
        rows = np.empty((len(positions), self.row_length), dtype=self.row_dtype)
        self.fill(positions, rows)
        return fingerprint_of_rows(self._plan_without_probes(), rows)
