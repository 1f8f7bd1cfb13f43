"""The tokenizer of the golden vectors, by its path."""

import pytest


@pytest.fixture
def tokenizer(golden):
    return str(golden / "tokenizer")
