"""Search token files for ids or for a piece of text, at the speed of memory.

`find` compares the ids of all documents with the ids wanted. `find_text` searches for the tokens in the middle of a
text and decodes around each hit, since the tokens at its ends depend on their neighbours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.tokens import Tokens


def find(file: Tokens, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Every (document, offset of the first token in it) at which a sequence of ids stands within one document.

    Raises:
        ValueError: no ids, or a file without document boundaries.
    """
    if len(ids) == 0:
        raise ValueError("search for at least one id, got none")
    found: list[tuple[int, int]] = []
    first = 0
    for block, lengths in file.blocks():
        ends = np.cumsum(lengths)
        places = np.flatnonzero(block[: max(len(block) - len(ids) + 1, 0)] == ids[0])
        for n, wanted in enumerate(ids):
            places = places[block[places + n] == wanted]
        documents = np.searchsorted(ends, places, side="right")
        inside = places + len(ids) <= ends[documents]
        offsets = places - (ends - lengths)[documents]
        found += zip((first + documents[inside]).tolist(), offsets[inside].tolist(), strict=True)
        first += len(lengths)
    return found


def find_text(file: Tokens, tokenizer: Any, text: str) -> list[tuple[int, int, int]]:
    """Every (document, start, stop) whose tokens hold a text, in order; start and stop count from the document's first.

    Tokens at the ends of a text depend on what stands around it, those between do not:

        1. without the first and the last word, the text is searched as tokens (`find`)
        2. a few tokens more on both sides are decoded: the whole text stands there, or the hit is none
        3. the tokens of the text end where as many characters are decoded

    A text of one or two words is searched as a whole, at the beginning of a line and behind a space.

    Args:
        tokenizer: with `encode` and `decode`, as in transformers.
        text: white space around it is ignored.

    Raises:
        ValueError: an empty text; as `find`.
    """
    text = text.strip()
    words = text.split(" ")
    if not text:
        raise ValueError("search for a text of at least one word, got none")
    if len(words) < 3:
        ids = [tokenizer.encode(lead + text, add_special_tokens=False) for lead in ("", " ")]
        return sorted(
            {(d, start, start + len(some)) for some in ids for d, start in find(file, some)}
        )
    starts, middle = (
        file.known_documents(),
        tokenizer.encode(" " + " ".join(words[1:-1]), add_special_tokens=False),
    )
    reach = (
        max(len(words[0].encode()), len(words[-1].encode())) + 2
    )  # no word has more tokens than bytes
    found = []
    for document, at in find(file, middle):
        low, high = max(at - reach, 0), at + len(middle) + reach
        window = file.tokens[starts[document] : starts[document + 1]][low:high].tolist()
        start, stop = at - low, at - low + len(middle)
        begin = len(_decode(tokenizer, window[:start])) - len(words[0])
        if begin < 0 or not _decode(tokenizer, window).startswith(text, begin):
            continue
        while len(_decode(tokenizer, window[:start])) > begin:
            start -= 1
        while not _decode(tokenizer, window[:stop]).startswith(
            text, begin
        ):  # by length, half a character would be one
            stop += 1
        found.append((document, low + start, low + stop))
    return sorted(found)


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
