"""Corpora written for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nanoset_ref.megatron import MMapIndexedDatasetBuilder


def write_corpus(prefix: Path, documents: list[list[int]], dtype: str = "uint16") -> str:
    """Write documents, each a list of sequence lengths, whose tokens are 0, 1, 2, ... through the whole corpus; returns
    the prefix.
    """
    total = 0
    with MMapIndexedDatasetBuilder(f"{prefix}.bin", np.dtype(dtype)) as builder:
        for lengths in documents:
            size = sum(lengths)
            builder.add_document(np.arange(total, total + size) % 60_000, lengths)
            total += size
        builder.finalize(f"{prefix}.idx")
    return str(prefix)
