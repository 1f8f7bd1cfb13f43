"""Nanoset: samples of sequence_length + 1 token ids, read from memory-mapped token files in a global order.

What it holds is a few mappings and an order; a sample is an address computation and one copy (`gather`). A batch is
read whole (`__getitems__`) into a single array. Nothing here grows with the corpus except what the chosen order stores.
"""

from __future__ import annotations

import hashlib
import json
import logging
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch.utils.data import Dataset

from nanoset_ref.documents import Starts, starts_at_boundaries
from nanoset_ref.gather import Gatherer
from nanoset_ref.orders import Order, build_order
from nanoset_ref.tokens import TokenFile

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]


class SampleBlock(Sequence[dict[str, NDArray[np.int32]]]):
    """Several samples in one buffer: a sequence of {"input_ids": int32 [sequence_length + 1]} whose entries are views.

    Attributes:
        rows: int32 [number of samples, sequence_length + 1].
    """

    def __init__(self, rows: NDArray[np.int32]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> dict[str, NDArray[np.int32]]: ...
    @overload
    def __getitem__(self, index: slice) -> SampleBlock: ...
    def __getitem__(self, index: int | slice) -> dict[str, NDArray[np.int32]] | SampleBlock:
        if isinstance(index, slice):
            return SampleBlock(self.rows[index])
        return {"input_ids": self.rows[index]}

    def __repr__(self) -> str:
        return f"SampleBlock({self.rows!r})"


class Nanoset(Dataset[dict[str, NDArray[np.int32]]]):
    """A torch Dataset over token files.

    Args:
        dataset_paths: the token files (or one path). Each may also be an open `TokenFile`.
        dataset_weights: share of each file, any positive scale; None: proportional to their lengths, so that an epoch
            reads every sample once.
        sequence_length: S, in tokens. A sample is S + 1 ids: inputs and, shifted by one, labels.
        train_split_num_samples: N = len(self), in samples: training steps x global batch size. Beyond an epoch the data
            repeat.
        random_seed: seed of the order.
        token_dtype: dtype of files without a manifest (default uint16).
        order: "nanotron", bit for bit the order of Nanotron's Nanoset, or "stateless", which stores nothing; or an
            order already built.

    The file of length T tokens has (T - 1) // S samples; sample j is tokens[j*S : j*S + S + 1], so neighbours share one
    token. (A file whose manifest says windows="disjoint" was cut into rows of S + 1, which are read as they are.)

    Note on the documented example, lengths [8, 2, 5, 5] and weights [0.1, 0.5, 0.3, 0.1]: their float64 sum is
    0.9999999999999999, so normalising them changes the last bit and flips a tie at t = 10. This class, like Nanotron's,
    gives the documented index for weights [10, 50, 30, 10].

    Raises:
        TokenFileError: a file that cannot be read as token ids, or is shorter than one sample.
        ValueError: weights that do not match the files or cannot be normalised; a length or count out of range.

    Source: the Nanosets of Nanotron, https://github.com/huggingface/nanotron/blob/main/docs/nanoset.md
    """

    def __init__(
        self,
        dataset_paths: PathLike | TokenFile | Sequence[PathLike | TokenFile],
        dataset_weights: Sequence[float] | NDArray[np.float64] | None,
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        *,
        token_dtype: DTypeLike | None = None,
        order: str | Order = "nanotron",
    ) -> None:
        if isinstance(dataset_paths, (str, os.PathLike, TokenFile)):
            dataset_paths = [dataset_paths]
        if len(dataset_paths) == 0:
            raise ValueError("dataset_paths must name at least one token file, got none")
        if operator.index(sequence_length) < 1:
            raise ValueError(f"sequence_length must be at least 1 token, got {sequence_length}")
        if operator.index(train_split_num_samples) < 0:
            raise ValueError(f"train_split_num_samples must not be negative, got {train_split_num_samples}")
        self.files = [path if isinstance(path, TokenFile) else TokenFile(path, token_dtype) for path in dataset_paths]
        self.sequence_length = operator.index(sequence_length)
        self.train_split_num_samples = operator.index(train_split_num_samples)
        self.random_seed = random_seed
        self._given_weights = (
            None if dataset_weights is None else np.asarray(dataset_weights, dtype=np.float64).tolist()
        )
        self.dataset_lengths = [file.num_samples(self.sequence_length) for file in self.files]
        self._strides = np.array([file.stride(self.sequence_length) for file in self.files], dtype=np.int64)
        if isinstance(order, str):
            order = build_order(order, self.dataset_lengths, dataset_weights, self.train_split_num_samples, random_seed)
        elif order.dataset_lengths.tolist() != self.dataset_lengths:
            raise ValueError(
                f"the order was built for datasets of {order.dataset_lengths.tolist()} samples, "
                f"these files have {self.dataset_lengths}"
            )
        if len(order) != self.train_split_num_samples:
            raise ValueError(
                f"the order has {len(order)} positions, train_split_num_samples is {self.train_split_num_samples}"
            )
        self.order = order
        self._gather = Gatherer(self.files)
        if logger.isEnabledFor(logging.INFO):  # some orders have to be read through to count
            logger.info("%s\n%s", self, self.summary())

    @classmethod
    def from_config(
        cls,
        dataset_path: PathLike | Sequence[PathLike] | Mapping[str, float],
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        **options: Any,
    ) -> Nanoset:
        """Build from a `dataset_path` as the YAML has it: one path, a list of paths, or {path: weight}. Other arguments
        as in the class.
        """
        if isinstance(dataset_path, Mapping):
            return cls(
                list(dataset_path),
                list(dataset_path.values()),
                sequence_length,
                train_split_num_samples,
                random_seed,
                **options,
            )
        return cls(dataset_path, None, sequence_length, train_split_num_samples, random_seed, **options)

    # ---- reading

    def __len__(self) -> int:
        return self.train_split_num_samples

    def __getitem__(self, k: int) -> dict[str, NDArray[np.int32]]:
        """The k-th sample of the global order: {"input_ids": int32 [sequence_length + 1]}. Negative k counts from the
        end.

        Raises:
            IndexError: k is outside [-len, len).
        """
        return self.__getitems__([operator.index(k)])[0]

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> SampleBlock:
        """The samples at several positions, in that order, gathered into one array. torch's DataLoader calls this with
        a whole batch.
        """
        return SampleBlock(self.read(np.asarray(positions, dtype=np.int64)))

    @property
    def row_length(self) -> int:
        """Tokens of a sample: sequence_length + 1."""
        return self.sequence_length + 1

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """dtype of a sample: int32, as torch has no arithmetic for uint16."""
        return np.dtype(np.int32)

    def read(self, positions: NDArray[np.int64], out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """The rows at `positions` [n] as int32 [n, sequence_length + 1], into `out` if given (C order, for buffers that
        are used again).
        """
        datasets, samples = self.order[positions]
        if out is None:
            out = np.empty((len(positions), self.row_length), dtype=self.row_dtype)
        shape = len(positions), self.row_length
        if out.shape != shape or out.dtype != self.row_dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be {self.row_dtype.name} {list(shape)} in C order, got {out.dtype} {list(out.shape)} with "
                f"strides {out.strides}"
            )
        self._gather(datasets, samples * self._strides[datasets], out)
        return out

    def document_starts(self, positions: NDArray[np.int64]) -> Starts:
        """Where documents begin in the rows at `positions` [n], bool [n, sequence_length + 1]; True in column 0.

        Raises:
            ValueError: a file without a manifest, whose document boundaries are not known.
        """
        for file in self.files:
            if file.document_offsets is None:
                raise ValueError(f"{file.path} has no manifest, so its document boundaries are not known; use eod_id")
        datasets, samples = self.order[positions]
        starts = np.empty((len(positions), self.row_length), dtype=np.bool_)
        for number in np.unique(datasets).tolist():
            chosen = datasets == number
            begins = samples[chosen] * self._strides[number]
            starts[chosen] = starts_at_boundaries(self.files[number].document_offsets, begins, self.row_length)
        return starts

    # ---- the index, for those who want to see it

    @property
    def dataset_weights(self) -> NDArray[np.float64]:
        """float64 [number of files], normalised to the sum 1."""
        return self.order.dataset_weights

    @property
    def dataset_index(self) -> NDArray[np.int64]:
        """int64 [len]: the file that each position is read from. Computed at every access."""
        return self.order[np.arange(len(self), dtype=np.int64)][0]

    @property
    def dataset_sample_index(self) -> NDArray[np.int64]:
        """int64 [len]: the sample within that file. Computed at every access."""
        return self.order[np.arange(len(self), dtype=np.int64)][1]

    def summary(self) -> str:
        """Total samples, total tokens, and what each file contributes."""
        counts = self.order.counts(len(self))
        lines = [
            f"> Total number of samples: {len(self)}",
            f"> Total number of tokens: {len(self) * self.sequence_length}",
        ]
        for file, count in zip(self.files, counts.tolist(), strict=True):
            share = round(count / max(len(self), 1), 2)
            lines.append(f"> Total number of samples from the {file.path.name} dataset: {count} ({share})")
        return "\n".join(lines)

    # ---- identity

    @property
    def plan(self) -> dict[str, Any]:
        """What decides which tokens stand at position k: two Nanosets with equal plans agree on every sample.
        JSON-serialisable.
        """
        return {
            "files": [
                {
                    "name": file.path.name,
                    "dtype": file.dtype.name,
                    "num_tokens": file.num_tokens,
                    "windows": file.windows,
                    "checksum": file.manifest and file.manifest.checksum,
                }
                for file in self.files
            ],
            "dataset_weights": self._given_weights,
            "sequence_length": self.sequence_length,
            "random_seed": self.random_seed,
            "order": self.order.name,
            "order_options": self.order.options,
            "order_fingerprint": self.order.fingerprint,
        }

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of the plan."""
        plan = json.dumps(plan_identity(self.plan), sort_keys=True)
        return hashlib.blake2b(plan.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        names = ", ".join(Path(file.path).name for file in self.files[:3]) + (", ..." if len(self.files) > 3 else "")
        return (
            f"Nanoset({len(self.files)} files: {names}; sequence_length={self.sequence_length}, "
            f"{len(self):,} samples, {len(self) / max(1, self.order.samples_per_epoch):.2f} epochs, "
            f"order={self.order.name!r}, seed={self.random_seed})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name != "_gather"
        }  # addresses mean nothing in another process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._gather = Gatherer(self.files)


def plan_identity(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan without the names of files that have a checksum: they may be renamed."""
    files = [
        {key: value for key, value in file.items() if key != "name" or not file.get("checksum")}
        for file in plan.get("files", ())
    ]
    return plan | {"files": files}
