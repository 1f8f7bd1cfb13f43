"""A tokenizer and a text in which every token tells its place."""

import itertools
import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def number_tokenizer(size=4000):
    """The words "1", "2", ... have the ids 1, 2, ...; EOS is 0."""
    words = {"<eos>": 0} | {str(k): k for k in range(1, size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def write_numbers(path, lengths, blank=False):
    """Documents of the given numbers of words, the words being 1, 2, 3, ... through the whole file."""
    words = itertools.count(1)
    with open(path, "w") as file:
        for length in lengths:
            print(json.dumps({"text": " ".join(str(next(words)) for _ in range(length))}), file=file)
            if blank:
                print(file=file)
    return path


@pytest.fixture(scope="session")
def make_tokenizer():
    return number_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return number_tokenizer()


@pytest.fixture(scope="session")
def write_text():
    return write_numbers
