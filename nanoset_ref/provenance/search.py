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
    """Find a sequence of ids within documents; returns every (document, offset of its first token in
    the document).

    Raises:
        ValueError: there are no ids, or the file has no document boundaries.
    """
    if len(ids) == 0:
        raise ValueError("search for at least one id, got none")
    found: list[tuple[int, int]] = []
    first = 0  # number of the first document in the block
    for block, lengths in document_blocks(file):
        stop = max(len(block) - len(ids) + 1, 0)
        places = np.flatnonzero(block[:stop] == ids[0])
        for n, wanted in enumerate(ids):
            is_wanted = block[places + n] == wanted
            places = places[is_wanted]
        ends = np.cumsum(lengths)
        documents = np.searchsorted(ends, places, side="right")
        is_inside = places + len(ids) <= ends[documents]
        documents = documents[is_inside]
        offsets = places[is_inside] - (ends - lengths)[documents]
        numbers = first + documents
        found += zip(numbers.tolist(), offsets.tolist(), strict=True)
        first += len(lengths)
    return found


def find_text(file: Tokens, tokenizer: Any, text: str) -> list[tuple[int, int, int]]:
    """Find the tokens that hold a text; returns every (document, start, stop), sorted, in tokens of
    the document.

    The tokens at the ends of a text depend on the text around it, those in the middle do not:

        1. search for the tokens of the text without its first and last word (`find`)
        2. decode a few more tokens on both sides; keep a hit if the whole text is there
        3. cut the tokens where the decoded text starts and stops

    A text of one or two words is searched for as a whole, at the beginning of a line and after a
    space.

    Args:
        tokenizer: with `encode` and `decode`, as in transformers.
        text: white space around it is ignored.

    Raises:
        ValueError: an empty text; as `find`.
    """
    text = text.strip()
    if not text:
        raise ValueError("search for a text of at least one word, got none")
    words = text.split(" ")
    if len(words) < 3:
        return _find_short(file, tokenizer, text)
    first, *middle, last = words
    ids = tokenizer.encode(" " + " ".join(middle), add_special_tokens=False)
    boundaries = file.known_documents()
    reach = max(len(first.encode()), len(last.encode())) + 2  # no word has more tokens than bytes
    found = []
    for document, offset in find(file, ids):
        tokens = file.tokens[boundaries[document] : boundaries[document + 1]]
        low = max(offset - reach, 0)
        start = offset - low
        stop = start + len(ids)
        window = tokens[low : low + stop + reach].tolist()
        bounds = _bounds(tokenizer, window, text, start, stop, len(first))
        if bounds:
            start, stop = bounds
            found.append((document, low + start, low + stop))
    return sorted(found)


def _find_short(file: Tokens, tokenizer: Any, text: str) -> list[tuple[int, int, int]]:
    found = set()
    for prefix in ("", " "):
        ids = tokenizer.encode(prefix + text, add_special_tokens=False)
        for document, start in find(file, ids):
            found.add((document, start, start + len(ids)))
    return sorted(found)


def _bounds(
    tokenizer: Any, window: list[int], text: str, start: int, stop: int, chars_before: int
) -> tuple[int, int] | None:
    """Extend the hit window[start:stop] to the tokens of the whole text; None: it is not there.

    Args:
        window: ids.
        text: the whole text.
        start, stop: the hit, in tokens of `window`.
        chars_before: the characters of the text before the hit.
    """
    first_char = len(_decode(tokenizer, window[:start])) - chars_before
    if first_char < 0 or not _decode(tokenizer, window).startswith(text, first_char):
        return None
    while len(_decode(tokenizer, window[:start])) > first_char:
        start -= 1
    # compare text, not lengths: half of a character would decode to one character
    while not _decode(tokenizer, window[:stop]).startswith(text, first_char):
        stop += 1
    return start, stop


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
