"""Fixtures that every test may use: the golden vectors of the real systems, and the real text beside the checkout."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

settings.register_profile("patient", deadline=None)  # the first example compiles
settings.load_profile("patient")

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def golden() -> Path:
    """What the real Nanotron, Megatron-Core, datatrove and the others return; golden/README.md says how to read it."""
    return HERE / "golden"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """tinyshakespeare, WikiText-2 and the GPT-2 tokenizer, where they lie beside the checkout."""
    folder = HERE.parent.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the folder ../shared/data with real text is not beside this checkout")
    return folder
