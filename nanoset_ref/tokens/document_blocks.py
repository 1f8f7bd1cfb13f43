"""The documents of a file in any format: a few million ids at a time, without padding, a hash."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import xxhash

from nanoset_ref.io.paths import in_bucket
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.tokens.interface import BLOCK_IDS, Tokens

# the documents' ids back to back, and their lengths
Block = tuple[Array, Int64Array]


def document_blocks(file: Tokens, chosen: Int64Array | None = None) -> Iterator[Block]:
    """Yield the documents of a file in order, about 4 million ids at a time.

    Args:
        file: the documents' file.
        chosen: the wanted documents, int64, ascending; None: all.

    Raises:
        TokenFileError: the boundaries are unknown, or the values are not integers.

    Yields:
        (the documents' ids back to back, the number of tokens in each document int64).
    """
    file.require_ids()
    tokens: Any = file.tokens
    offsets = file.require_document_offsets()
    lengths = np.diff(offsets)
    documents = np.arange(len(lengths)) if chosen is None else chosen
    if not len(documents):
        return
    # lengths 2 1 3 1, 3 ids at once: blocks 0 0 1 2
    blocks = np.maximum(np.cumsum(lengths[documents]) - 1, 0) // BLOCK_IDS
    for part in np.split(documents, np.flatnonzero(np.diff(blocks)) + 1):
        first = part[0]
        last = part[-1]
        if last - first == len(part) - 1:
            ids = tokens[offsets[first] : offsets[last + 1]]
        elif in_bucket(file.path):
            ids = tokens.read_spans(np.stack([offsets[part], offsets[part + 1]], 1))
        else:
            ids = np.concatenate([tokens[offsets[d] : offsets[d + 1]] for d in part])
        yield ids, lengths[part]


def without_padding(file: Tokens, documents: Int64Array) -> Int64Array:
    """Leave padding out of some documents of a file, int64 [n].

    In padded windows, each padding token is a document without a label, and no other document
    comes after it in its row. (In a file that records no labels, a document of one token at the end
    of a row cannot be told from padding, and counts as padding.)
    """
    row_length = file.row_length
    if file.windows != "padded" or row_length is None:
        return documents
    offsets = file.require_document_offsets()
    starts = offsets[documents]
    tokens_to_row_end = -(starts + 1) % row_length + 1
    row_stops = np.searchsorted(offsets, starts + tokens_to_row_end)
    padding = row_stops - documents == tokens_to_row_end
    candidates = documents[padding].tolist()
    padding[padding] = [file.label_of(document) is None for document in candidates]
    return documents[~padding]


def content_hash(file: Tokens) -> str:
    """A hash of all documents: 32 hexadecimal digits, equal in all formats and dtypes."""
    return hash_blocks(document_blocks(file))


def hash_blocks(blocks: Iterable[Block]) -> str:
    """The `content_hash` of documents: xxh3_128 of the ids as int64 and of the boundaries."""
    digest = xxhash.xxh3_128()
    lengths = [np.zeros(1, dtype=np.int64)]
    for ids, sizes in blocks:
        lengths.append(sizes)
        for start in range(0, len(ids), BLOCK_IDS):
            digest.update(ids[start : start + BLOCK_IDS].astype("<i8").data)
    digest.update(np.cumsum(np.concatenate(lengths), dtype="<i8").data)
    return digest.hexdigest()
