"""The libraries that turn texts into ids, in one form: `encode` takes texts, gives ids back to back and lengths.

    hf          the `tokenizers` library behind a transformers tokenizer
    gigatoken   10-30 times faster, for the BPE tokenizers it can load; optional

Both work without the interpreter lock, two batches at a time: while the ids of one are put into arrays, the
other is encoded. Another process makes its own from what `described` returns.
"""

import os
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Ragged = tuple[NDArray[Any], NDArray[np.int64]]  # ids [sum(lengths)], lengths [texts]


def threads(processes: int = 1) -> int:
    """How many threads the tokenizer libraries use in each of so many processes on this machine.

    RAYON_NUM_THREADS, or else the process's share of the cores that this one may run on.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("RAYON_NUM_THREADS") or max(1, cores // processes))


class Fast:
    """A Rust tokenizer, as the transformers tokenizer that holds it has set it up."""

    name = "hf"
    at_once = 2  # batches

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def described(self) -> dict[str, str]:
        """What `library` takes."""
        return {"name": self.name, "source": self.tokenizer.to_str()}

    def encode(self, texts: list[str]) -> Ragged:
        encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        return np.fromiter(ids, np.int32), np.fromiter(map(len, encodings), np.int64)


class Gigatoken(Fast):
    """The gigatoken library; loads what the other takes."""

    name = "gigatoken"

    def __init__(self, tokenizer: Tokenizer) -> None:
        import gigatoken

        super().__init__(tokenizer)
        self._loaded = gigatoken.Tokenizer(tokenizer)

    def encode(self, texts: list[str]) -> Ragged:
        ragged = self._loaded.encode_batch(texts, parallel=threads() > 1)
        offsets = np.asarray(ragged.layout.offsets.data)
        return np.asarray(ragged.layout.content.data)[offsets[0] : offsets[-1]].astype(np.int32), np.diff(offsets)


def library(name: str, source: str) -> Fast:
    """The library of a name, from the JSON of a tokenizer."""
    return {"hf": Fast, "gigatoken": Gigatoken}[name](Tokenizer.from_str(source))
