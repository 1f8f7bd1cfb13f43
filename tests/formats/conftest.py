"""A token file with a few documents, of which one is empty."""

import pytest
from format_helpers import DOCUMENTS, written


@pytest.fixture
def source(tmp_path):
    return written(
        tmp_path / "a_input_ids.npy",
        DOCUMENTS,
        vocab_size=500,
        eos_token_id=9,
        tokenizer="t",
    )
