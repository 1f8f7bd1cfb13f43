"""Samples that know where their documents begin, from the boundaries that the preprocessing wrote down.

An EOS id marks the end of a document only where one was written, and may stand within a text. The manifest of a token
file and the index of a .bin/.idx pair know better. `WithDocumentStarts` hands that knowledge to the collator, one bool
per token; it costs two binary searches per sample. The rejected alternative, to let every dataset do it always, would
make all samples a fifth larger for the few who ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from nanoset_ref.documents import Starts
from nanoset_ref.nanoset import SampleBlock


class KnowsDocuments(Protocol):
    """A dataset of rows that can say where documents begin in them, bool [n, S + 1] for positions [n]."""

    sequence_length: int

    @property
    def plan(self) -> dict[str, Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, k: int, /) -> dict[str, NDArray[Any]]: ...

    def read(self, positions: NDArray[np.int64]) -> NDArray[Any]: ...

    def document_starts(self, positions: NDArray[np.int64]) -> Starts: ...


class DocumentBlock(SampleBlock):
    """A SampleBlock with `starts`, bool [number of samples, S + 1], True where a document (or the row) begins."""

    def __init__(self, rows: NDArray[Any], starts: Starts) -> None:
        super().__init__(rows)
        self.starts = starts

    def __getitem__(self, index):
        if isinstance(index, slice):
            return DocumentBlock(self.rows[index], self.starts[index])
        return super().__getitem__(index)


class WithDocumentStarts(Dataset[dict[str, NDArray[Any]]]):
    """A dataset whose batches come with the beginnings of their documents.

    Args:
        dataset: a Nanoset of files with manifests, or a MegatronNanoset or BlendedNanoset.

    Length, `sequence_length` and `plan` are the dataset's.

    Raises:
        ValueError: a file without a manifest.
    """

    def __init__(self, dataset: KnowsDocuments) -> None:
        dataset.document_starts(np.empty(0, dtype=np.int64))  # refuses now what it would refuse later
        self.dataset = dataset
        self.sequence_length = dataset.sequence_length

    @property
    def plan(self) -> dict[str, Any]:
        return self.dataset.plan

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, k: int) -> dict[str, NDArray[Any]]:
        """Sample k, {"input_ids": [S + 1]}; the boundaries come with whole batches."""
        return self.dataset[k]

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> DocumentBlock:
        indices = np.asarray(positions, dtype=np.int64)
        return DocumentBlock(self.dataset.read(indices), self.document_starts(indices))

    def document_starts(self, positions: NDArray[np.int64]) -> Starts:
        """bool [n, S + 1] for the samples at `positions` [n]."""
        return self.dataset.document_starts(positions)
