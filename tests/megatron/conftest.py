"""Corpora for the tests of this folder."""

import numpy as np
import pytest

from nanoset_ref.megatron import MMapIndexedDatasetBuilder


@pytest.fixture
def write_corpus(tmp_path):
    """Write documents, each a list of sequence lengths, whose tokens are 0, 1, 2, ... through the corpus."""

    def write(documents, name="corpus", dtype=np.uint16):
        total = 0
        with MMapIndexedDatasetBuilder(
            tmp_path / f"{name}.bin", dtype, overwrite=True
        ) as builder:
            for lengths in documents:
                builder.add_document(np.arange(total, total + sum(lengths)), lengths)
                total += sum(lengths)
        return str(tmp_path / name)

    return write
