"""The Nanosets that the tests of data loaders read."""

import pytest
from token_files import write_range

from nanoset_ref.load import blocks
from nanoset_ref.load.nanoset import Nanoset


@pytest.fixture
def numbered(tmp_path):
    """A Nanoset whose sample at position k can be recognised by its first token."""
    nanoset = Nanoset(
        write_range(tmp_path / "a.npy", 121 * 2 + 1), None, 2, 121, order="nanotron"
    )
    position_of = {
        int(row[0]): k for k, row in enumerate(nanoset.__getitems__(range(121)).rows)
    }
    return nanoset, lambda batch: [
        position_of[first] for first in batch["input_ids"][:, 0].tolist()
    ]


@pytest.fixture
def nanoset(tmp_path):
    return Nanoset(
        write_range(tmp_path / "a.npy", 10_001), None, 4, 2400, order="stateless"
    )


@pytest.fixture
def two_batches_per_block(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2 * 8 * 5 * 4)
