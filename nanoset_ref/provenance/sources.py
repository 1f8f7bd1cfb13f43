"""The files behind a dataset, whatever its kind: their numbers, paths, documents and ids.

A Nanoset reads token files, a Megatron-style dataset .bin/.idx pairs; provenance asks both the same four questions. The
rejected alternative, methods of these names on both readers, would put questions into them that reading does not ask.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset, bin_path
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.tokens import Tokens

Traceable = Nanoset | MegatronNanoset | BlendedNanoset
Source = Tokens | MMapIndexedDataset


def sources(dataset: Traceable) -> list[Source]:
    """The files of a dataset, in the order of their numbers."""
    if isinstance(dataset, Nanoset):
        return list(dataset.files)
    return [part.corpus for part in (dataset.datasets if isinstance(dataset, BlendedNanoset) else [dataset])]


def raw_path(source: Source) -> Path:
    """The file that holds a source's ids."""
    return source.path if isinstance(source, Tokens) else bin_path(source.path_prefix)


def document_starts(source: Source) -> NDArray[np.int64]:
    """int64 [documents + 1], in tokens: where each document begins, and the end.

    Raises:
        ValueError: the source's document boundaries are not known.
    """
    if isinstance(source, Tokens):
        return source.known_documents()
    return np.append(source.sequence_pointers // source.dtype.itemsize, source.num_tokens)[source.document_indices]


def mapped_tokens(source: Source) -> NDArray[Any]:
    """The ids of a source, integers [tokens].

    Raises:
        ValueError: the source is read by pread, not mapped.
    """
    if source.tokens is None:
        raise ValueError(f"{raw_path(source)} is not mapped into memory, and only mapped files are searched")
    return source.tokens
