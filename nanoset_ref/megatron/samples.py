"""What plain and blended Megatron-style datasets share: reading by position, an identity, and how they travel.

The interface is that of `nanoset_ref.Nanoset`: a sample is {"input_ids": ids}, a batch is read whole, `plan` says what
decides it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from nanoset_ref.documents import Starts
from nanoset_ref.megatron.config import NanosetConfig
from nanoset_ref.rows import SampleBlock


class Samples(Dataset[dict[str, NDArray[Any]]]):
    """What plain and blended datasets share: reading by position, and an identity."""

    config: NanosetConfig
    split: str
    row_dtype: np.dtype[Any]

    @property
    def sequence_length(self) -> int:
        """S, in tokens."""
        return self.config.sequence_length

    @property
    def row_length(self) -> int:
        """Tokens per sample: S + 1, or S without the extra token."""
        return self.config.sequence_length + int(self.config.add_extra_token_to_sequence)

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, k: int) -> dict[str, NDArray[Any]]:
        """Sample k: {"input_ids": int32 [row_length]} (int64 for int64 corpora). Negative k counts from the end;
        IndexError outside.
        """
        return self.__getitems__([operator.index(k)])[0]

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> SampleBlock:
        """Several samples in one array. torch's DataLoader calls this with a whole batch."""
        indices = np.asarray(positions, dtype=np.int64)
        return SampleBlock(self.read(indices), functools.partial(self.document_starts, indices))

    def read(self, positions: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The rows at `positions` [n] as [n, row_length] of `row_dtype`, into `out` if given."""
        positions = self._wrap(positions)
        if out is None:
            out = np.empty((len(positions), self.row_length), dtype=self.row_dtype)
        self._fill(positions, np.arange(len(positions)), out)
        return out

    def _fill(self, positions: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the samples at `positions` into out[rows]."""
        raise NotImplementedError

    def document_starts(self, positions: NDArray[np.int64]) -> Starts:
        """Where sequences begin in the rows at `positions` [n], bool [n, row_length]; True in column 0.

        Sequences of one document are documents to Megatron's shuffle, and so they are here.
        """
        positions = self._wrap(positions)
        starts = np.zeros((len(positions), self.row_length), dtype=np.bool_)
        starts[:, 0] = True
        self._mark(positions, np.arange(len(positions)), starts)
        return starts

    def _mark(self, positions: NDArray[np.int64], rows: NDArray[np.int64], starts: Starts) -> None:
        """Set starts[rows] where sequences begin in the samples at `positions`."""
        raise NotImplementedError

    def _wrap(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(positions) and not (-len(self) <= positions.min() and positions.max() < len(self)):
            raise IndexError(
                f"positions {positions.min()} to {positions.max()} are not all within the {len(self)} samples of the "
                f"{self.split} split"
            )
        return np.where(positions < 0, positions + len(self), positions)

    @property
    def plan(self) -> dict[str, Any]:
        """What decides which tokens stand at position k. JSON-serialisable."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of the plan."""
        return hashlib.blake2b(json.dumps(self.plan, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _load_index(self) -> None:
        """Set the attributes called ..._index, from the cache or built."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """A worker process maps cached indexes again; without a cache they travel."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if self.config.path_to_cache is None or not name.endswith("_index")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.config.path_to_cache is not None:
            self._load_index()
