"""Corpora for the tests of this folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanoset_ref.megatron import MMapIndexedDatasetBuilder

WriteCorpus = Callable[..., str]


@pytest.fixture
def write_corpus(tmp_path: Path) -> WriteCorpus:
    """Write documents, each a list of sequence lengths, whose tokens are 0, 1, 2, ... through the corpus."""

    def write(documents: list[list[int]], name: str = "corpus", dtype: Any = np.uint16) -> str:
        total = 0
        with MMapIndexedDatasetBuilder(tmp_path / f"{name}.bin", dtype, overwrite=True) as builder:
            for lengths in documents:
                builder.add_document(np.arange(total, total + sum(lengths)), lengths)
                total += sum(lengths)
        return str(tmp_path / name)

    return write
