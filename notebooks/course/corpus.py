"""The embedded corpus, 1,611 documents of three sources, as token files and as token ids."""

import json
from functools import cache

import numpy as np

from nanoset_ref import Encoder, load_tokenizer, prepare_corpus
from nanoset_ref.preprocess import preprocess

SOURCES = ("stories", "arithmetic", "programs")


def token_files(number: str, sources: tuple[str, ...] = SOURCES) -> dict[str, str]:
    """Tokenize the embedded corpus for a page, an EOS after each document; by source, the path of its token file.

    Args:
        number: of the page, such as "02". Pages that run side by side share no file.
        sources: the ones to tokenize.
    """
    corpus = prepare_corpus("data")
    options = {"append_eod": True, "backend": "hf", "overwrite": True, "progress": False}
    for source in sources:
        preprocess(corpus.domains[source], f"data/{number}_{source}", corpus.tokenizer, **options)
    return {source: f"data/{number}_{source}_input_ids.npy" for source in sources}


@cache
def encoded_corpus() -> tuple[np.ndarray, np.ndarray]:
    """The token ids of all documents, back to back, and the length of each; an EOS ends a document."""
    corpus = prepare_corpus("data")
    documents = [
        json.loads(line)["text"] for path in corpus.domains.values() for line in path.open()
    ]
    return Encoder(load_tokenizer(corpus.tokenizer), append_eod=True).encode_batch(documents)
