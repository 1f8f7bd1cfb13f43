"""The libraries that turn texts into ids, in one form: a function from texts to ids back to back and their lengths.

    hf          the `tokenizers` library behind a transformers tokenizer
    gigatoken   10-30 times faster, for the BPE tokenizers it can load; optional

Both work without the interpreter lock, two batches at a time: while the ids of one are put into arrays, the
other is encoded. Another process makes its own from the JSON of the tokenizer.

A tokenizer with `encode_special_tokens` takes special tokens in a text for text (see `special`). gigatoken always
recognizes them, so a text in which it found one is encoded once more, by hf. Tokenizers look for special tokens before
anything else, so where none was found both ways give the same ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra

if TYPE_CHECKING:
    from tokenizers import Tokenizer
Ragged = tuple[NDArray[Any], NDArray[np.int64]]  # ids [sum(lengths)], lengths [texts]
Encode = Callable[[list[str]], Ragged]


def threads(processes: int = 1) -> int:
    """How many threads the tokenizer libraries use in each of so many processes on this machine.

    RAYON_NUM_THREADS, or else the process's share of the cores that this one may run on.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return int(os.environ.get("RAYON_NUM_THREADS") or max(1, cores // processes))


def hf(tokenizer: Tokenizer) -> Encode:
    """What the tokenizer itself gives."""

    def encode(texts: list[str]) -> Ragged:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        return np.fromiter(ids, np.int32), np.fromiter(map(len, encodings), np.int64)

    return encode


def gigatoken(tokenizer: Tokenizer) -> Encode:
    """The gigatoken library, which loads what the other takes."""
    with extra("gigatoken", "the gigatoken backend"):
        import gigatoken

    loaded = gigatoken.Tokenizer(tokenizer)

    def encode(texts: list[str]) -> Ragged:
        ragged = loaded.encode_batch(texts, parallel=threads() > 1)
        offsets = np.asarray(ragged.layout.offsets.data)
        return np.asarray(ragged.layout.content.data)[offsets[0] : offsets[-1]].astype(
            np.int32
        ), np.diff(offsets)

    return _split_after(encode, tokenizer) if tokenizer.encode_special_tokens else encode


def _split_after(keep: Encode, tokenizer: Tokenizer) -> Encode:
    """As `keep`, but texts in which it found special tokens are encoded again by a tokenizer that splits them."""
    plain = hf(tokenizer)
    special = [
        number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special
    ]

    def encode(texts: list[str]) -> Ragged:
        ids, lengths = keep(texts)
        places = np.flatnonzero(np.isin(ids, special))
        holders = np.unique(np.searchsorted(np.cumsum(lengths), places, side="right"))
        if not holders.size:
            return ids, lengths
        again, sizes = plain([texts[holder] for holder in holders])
        pieces = np.split(ids, np.cumsum(lengths)[:-1])
        for holder, piece in zip(holders, np.split(again, np.cumsum(sizes)[:-1]), strict=True):
            pieces[holder] = piece
        lengths[holders] = sizes
        return np.concatenate(pieces), lengths

    return encode


LIBRARIES = {"hf": hf, "gigatoken": gigatoken}
