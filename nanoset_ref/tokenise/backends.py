"""The libraries that turn texts into ids, in one form: `encode` a list of texts, take the `arrays` of the result.

    hf          the `tokenizers` library behind a transformers tokenizer
    gigatoken   10-30 times faster, for the BPE tokenizers it can load; optional
    slow        a transformers tokenizer without a fast form, called as it is

`encode` runs without the interpreter lock in the first two, `arrays` with it, which is why they are two steps. Each can
be sent to a worker process. The alternative, one `encode_batch` of ids, leaves a core idle while Python makes arrays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ragged = tuple[NDArray[Any], NDArray[np.int64]]  # ids back to back, and the length of each text


def threads() -> int:
    """How many threads the tokenizer libraries use: RAYON_NUM_THREADS, else the cores this process may run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("RAYON_NUM_THREADS") or cores)


class Fast:
    """The Rust tokenizer itself; its threads are RAYON_NUM_THREADS, else one for each core."""

    name = "hf"

    def __init__(self, tokenizer: Any, owner: Any) -> None:
        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = bool(getattr(owner, "split_special_tokens", False))

    def encode(self, texts: list[str]) -> list[Any]:
        return self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)

    def arrays(self, encodings: list[Any]) -> Ragged:
        return _arrays((encoding.ids for encoding in encodings), len(encodings))


class Slow:
    """A tokenizer written in Python."""

    name = "slow"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]

    def arrays(self, lists: list[list[int]]) -> Ragged:
        return _arrays(lists, len(lists))


class Gigatoken:
    name = "gigatoken"

    def __init__(self, tokenizer: Any) -> None:
        import gigatoken

        self._tokenizer, self._loaded = tokenizer, gigatoken.Tokenizer(tokenizer)

    def encode(self, texts: list[str]) -> Any:
        return self._loaded.encode_batch(texts, parallel=threads() > 1)

    def arrays(self, ragged: Any) -> Ragged:
        offsets = np.asarray(ragged.layout.offsets.data)
        return np.asarray(ragged.layout.content.data)[offsets[0] : offsets[-1]].astype(np.int32), np.diff(offsets)

    def __reduce__(self) -> tuple[Any, ...]:
        return Gigatoken, (self._tokenizer,)


def _arrays(lists: Iterable[Sequence[int]], count: int) -> Ragged:
    lengths = np.empty(count, np.int64)

    def measured() -> Iterator[Sequence[int]]:
        for k, ids in enumerate(lists):
            lengths[k] = len(ids)
            yield ids

    return np.fromiter(chain.from_iterable(measured()), np.int32), lengths
