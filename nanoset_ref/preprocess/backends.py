"""The libraries that encode: each as a function from texts to their ids, back to back, and lengths.

    hf          the `tokenizers` library behind a transformers tokenizer
    gigatoken   10-30 times faster, for the BPE tokenizers that it can load; optional

Both release the interpreter lock, so each thread encodes a batch at a time. Another process makes
its own encoder from the tokenizer's JSON, or is forked with one.

A tokenizer with `encode_special_tokens` treats special tokens in a text as plain text (see
`special_tokens`). gigatoken always recognizes them, so hf encodes a text again if gigatoken finds
one. Tokenizers look for special tokens first, so both give the same ids for a text without any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from nanoset_ref.io.extras import extra
from nanoset_ref.io.torchrun import integer_setting
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.preprocess.piece_cutter import PieceCutter
from nanoset_ref.preprocess.special_tokens import IdFinder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_THREADS = 1024
BATCH_CHARS = 1 << 22  # encoded at a time, to bound the memory
# ids [sum(lengths)], lengths [texts]
IdsAndLengths = tuple[Array, Int64Array]
Encode = Callable[[list[str]], IdsAndLengths]


def num_threads(processes: int = 1) -> int:
    """The number of threads that encode in each of `processes` on this machine.

    RAYON_NUM_THREADS, or else (also if it is 0) a process's share of the cores that this one may
    run on.
    """
    threads = integer_setting("RAYON_NUM_THREADS", 0)
    if threads:
        return min(threads, MAX_THREADS)
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return max(1, cores // processes)


def hf_encoder(tokenizer: Tokenizer) -> Encode:
    """Encode with the tokenizer itself; long documents in pieces (see `piece_cutter`)."""
    cut = PieceCutter(tokenizer)

    def encode(texts: list[str]) -> IdsAndLengths:
        if max(map(len, texts), default=0) < cut.min_length:
            return encode_whole(texts)
        pieces = [list(cut(text)) for text in texts]
        groups = _groups(chain.from_iterable(pieces))
        ids, lengths = map(np.concatenate, zip(*map(encode_whole, groups), strict=True))
        ends = np.cumsum([len(text_pieces) for text_pieces in pieces])
        return ids, np.add.reduceat(lengths, np.append(0, ends[:-1]))

    def encode_whole(texts: list[str]) -> IdsAndLengths:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        documents = (encoding.ids for encoding in encodings)
        ids = np.fromiter(chain.from_iterable(documents), np.int32)
        lengths = np.fromiter(map(len, encodings), np.int64)
        return ids, lengths

    return encode


def _groups(pieces: Iterator[str]) -> Iterator[list[str]]:
    """Group pieces; a group is complete once it has BATCH_CHARS characters."""
    group = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece)
        if size >= BATCH_CHARS:
            yield group
            group = []
            size = 0
    if group:
        yield group


def gigatoken_encoder(tokenizer: Tokenizer) -> Encode:
    """Encode with gigatoken; special tokens are split if the tokenizer splits them."""
    with extra("gigatoken", "the gigatoken backend"):
        import gigatoken

    loaded = gigatoken.Tokenizer(tokenizer)

    def encode(texts: list[str]) -> IdsAndLengths:
        # a forked process encodes in this thread; in others, several threads may encode at once
        layout = loaded.encode_batch(texts).layout
        offsets = np.asarray(layout.offsets.data)
        ids = np.asarray(layout.content.data)
        return ids[offsets[0] : offsets[-1]], np.diff(offsets)

    if tokenizer.encode_special_tokens:
        return _with_special_tokens_split(encode, tokenizer)
    return encode


def _with_special_tokens_split(keep: Encode, tokenizer: Tokenizer) -> Encode:
    """Encode with `keep`, and texts with special tokens again with a tokenizer that splits them."""
    split = hf_encoder(tokenizer)
    added = tokenizer.get_added_tokens_decoder().items()
    find = IdFinder(number for number, token in added if token.special)

    def encode(texts: list[str]) -> IdsAndLengths:
        ids, lengths = keep(texts)
        with_special_tokens = np.unique(find(ids, lengths)[0])
        if not with_special_tokens.size:
            return ids, lengths
        ids_again, lengths_again = split(
            [texts[index] for index in with_special_tokens]
        )
        documents = np.split(ids, np.cumsum(lengths)[:-1])
        again = np.split(ids_again, np.cumsum(lengths_again)[:-1])
        for index, document in zip(with_special_tokens, again, strict=True):
            documents[index] = document
        lengths[with_special_tokens] = lengths_again
        return np.concatenate(documents), lengths

    return encode


LIBRARIES = {"hf": hf_encoder, "gigatoken": gigatoken_encoder}
