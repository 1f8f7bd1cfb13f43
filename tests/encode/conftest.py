"""The tokenizer of the golden vectors."""

import pytest

from nanoset_ref.preprocess.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(golden):
    return load_tokenizer(golden / "tokenizer")
