"""Search token files for ids or for a piece of text.

`find` compares the ids of all documents with the wanted ids. `find_text` searches for the tokens in
the middle of a text and decodes around each hit, because the tokens at its ends depend on the text
around them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.tokens import Tokens
from nanoset_ref.tokens.content import document_blocks


def find(file: Tokens, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Find a sequence of ids within documents.

    Args:
        file: a file with document boundaries.
        ids: the ids, in order.

    Returns:
        (document, offset of the first token in the document) of every hit, sorted.

    Raises:
        ValueError: there are no ids, or the file has no document boundaries.
    """
    if len(ids) == 0:
        raise ValueError("search for at least one id, got none")
    matches: list[tuple[int, int]] = []
    first_document = 0  # of the block
    for block, lengths in document_blocks(file):
        stop = max(len(block) - len(ids) + 1, 0)
        hits = np.flatnonzero(block[:stop] == ids[0])
        for n, wanted in enumerate(ids):
            is_wanted = block[hits + n] == wanted
            hits = hits[is_wanted]
        stops = np.cumsum(lengths)
        starts = stops - lengths
        documents = np.searchsorted(stops, hits, side="right")
        is_inside = hits + len(ids) <= stops[documents]
        documents = documents[is_inside]
        offsets = hits[is_inside] - starts[documents]
        numbers = first_document + documents
        matches += zip(numbers.tolist(), offsets.tolist(), strict=True)
        first_document += len(lengths)
    return matches


def find_text(
    file: Tokens,
    tokenizer: Any,
    text: str,
) -> list[tuple[int, int, int]]:
    """Find the tokens that hold a text.

    1. Search for the tokens of the text without its first and last word (`find`).
    2. Decode a few more tokens on both sides; keep a hit if the whole text is there.
    3. Cut the tokens where the decoded text starts and stops.

    A text of one or two words is searched for as a whole, at the beginning of a line and after a
    space.

    Args:
        file: a file with document boundaries.
        tokenizer: a tokenizer with `encode` and `decode`, as in transformers.
        text: the text; white space around it is ignored.

    Returns:
        (document, start, stop) of every hit, in tokens of the document, sorted.

    Raises:
        ValueError: the text is empty; see also `find`.
    """
    text = text.strip()
    if not text:
        raise ValueError("search for a text of at least one word, got none")
    words = text.split(" ")
    if len(words) < 3:
        hits = set()
        for prefix in ("", " "):
            ids = tokenizer.encode(prefix + text, add_special_tokens=False)
            for document, start in find(file, ids):
                hits.add((document, start, start + len(ids)))
        return sorted(hits)
    first, *middle, last = words
    # 1.
    spaced = " ".join(["", *middle])
    ids = tokenizer.encode(spaced, add_special_tokens=False)
    boundaries = file.require_document_offsets()
    # no word has more tokens than bytes
    reach = max(len(first.encode()), len(last.encode())) + 2
    matches = []
    for document, offset in find(file, ids):
        document_start = boundaries[document]
        document_stop = boundaries[document + 1]
        tokens = file.tokens[document_start:document_stop]
        low = max(offset - reach, 0)
        start = offset - low
        stop = start + len(ids)
        window = tokens[low : low + stop + reach].tolist()
        # 2. and 3.
        bounds = _bounds(tokenizer, window, text, start, stop, len(first))
        if bounds:
            start, stop = bounds
            matches.append((document, low + start, low + stop))
    return sorted(matches)


def _bounds(
    tokenizer: Any,
    window: list[int],
    text: str,
    start: int,
    stop: int,
    chars_before: int,
) -> tuple[int, int] | None:
    """Extend the hit window[start:stop] to the tokens of the whole text.

    Args:
        tokenizer: see `find_text`.
        window: the ids around the hit.
        text: the whole text.
        start, stop: the hit, in tokens of `window`.
        chars_before: the characters of the text before the hit.

    Returns:
        (start, stop) in tokens of `window`; None if the text is not there.
    """
    before = _decode(tokenizer, window[:start])
    first_char = len(before) - chars_before
    if first_char < 0:
        return None
    if not _decode(tokenizer, window).startswith(text, first_char):
        return None
    while len(_decode(tokenizer, window[:start])) > first_char:
        start -= 1
    # compare text, not lengths: half of a character decodes to one character
    while not _decode(tokenizer, window[:stop]).startswith(text, first_char):
        stop += 1
    return start, stop


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
