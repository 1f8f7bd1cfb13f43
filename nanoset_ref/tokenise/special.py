"""Special tokens that stand in documents as text, such as "before </s> after": kept, split, or refused.

    keep      "</s>" becomes the EOS token, as in Nanotron's and Megatron-LM's tools; they are counted, and a warning
              says how many there are
    split     "</s>" is text like any other: no document can write an EOS
    refuse    the first document that holds one is an error

Special is what the tokenizer itself calls so: its added tokens with special=True, and transformers' `all_special_ids`.
Other added tokens (user-defined symbols, tool tags) are part of the text in all three ways. Not counted are those that
a tokenizer makes of characters it does not know (<unk>, bytes), unless one of them is its BOS or EOS.

They are found as ids, after encoding and before any BOS or EOS is put around the document. So the counts are exact,
do not depend on who encodes, and cost one look at each id.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from nanoset_ref.text import Document, InputError

SpecialTokens = Literal["keep", "split", "refuse"]
Text = str | Document
WAYS_OUT = "--special-tokens split takes them as plain text, refuse stops at the first"
# of UTF-8's bytes every one that occurs
EVERY_BYTE = "".join(map(chr, [*range(0x800), *range(0x800, 0xD800, 0x800), *range(0xE000, 0x110000, 0x2000)]))
logger = logging.getLogger(__name__)


def special_tokens_of(tokenizer: Any) -> dict[int, str]:
    """{id: token} of what counts as a special token when a document holds it; `tokenizer` is transformers'."""
    fast: Tokenizer = tokenizer.backend_tokenizer
    added = fast.get_added_tokens_decoder().items()
    found = {number: token.content for number, token in added if token.special}
    found |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    ends = {tokenizer.bos_token_id, tokenizer.eos_token_id}
    of_any_text = set(fast.encode(EVERY_BYTE, add_special_tokens=False).ids) - ends
    return {number: token for number, token in found.items() if number not in of_any_text}


def place_of(document: Text) -> str:
    """How errors name a document, or a text of which no more is known."""
    return document.where if isinstance(document, Document) else repr(document[:80])


def restored(description: str, split: bool) -> Tokenizer:
    """A tokenizer out of its `to_str()`; with `split` it takes special tokens in a text for text."""
    tokenizer = Tokenizer.from_str(description)
    tokenizer.encode_special_tokens = split
    return tokenizer


class SpecialTokenCounter:
    """Looks at the ids of documents; counts the special tokens in them, or refuses them.

    Args:
        tokenizer: transformers' tokenizer.
        vocab_size: every id is below it.
        special_tokens: "keep", "split" or "refuse".

    Attributes:
        documents: how many documents held some. tokens: {token: how often}.
        quiet: whether another process gives the warnings.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, special_tokens: SpecialTokens) -> None:
        if special_tokens not in get_args(SpecialTokens):
            raise ValueError(f"special_tokens must be one of {get_args(SpecialTokens)}, got {special_tokens!r}")
        self.names = special_tokens_of(tokenizer)
        self.special_tokens = special_tokens
        self.quiet = False
        self._is_special = np.zeros(vocab_size, np.bool_)
        self._is_special[list(self.names)] = True
        self._least = min(self.names, default=vocab_size)
        self._largest = max(self.names, default=-1)
        self.restart()

    def restart(self) -> None:
        """Count from 0 on."""
        self.documents = 0
        self.tokens: Counter[str] = Counter()

    def look(self, ids: NDArray[Any], lengths: NDArray[np.int64], documents: Sequence[Text]) -> None:
        """Look at documents that were encoded: ids [sum(lengths)] back to back, lengths [documents].

        Raises:
            InputError: (refuse) a document holds a special token; (split) the tokenizer's vocabulary has one for an
                ordinary word, so no text is safe.
        """
        places = np.flatnonzero((ids >= self._least) & (ids <= self._largest))
        places = places[self._is_special[ids[places]]]
        if not places.size:
            return
        holders = np.searchsorted(np.cumsum(lengths), places, side="right")
        where = place_of(documents[holders[0]])
        token = self.names[int(ids[places[0]])]
        if self.special_tokens == "refuse":
            what = "remove it, or take --special-tokens keep or split"
            raise InputError(f"{where}: the document holds the special token {token!r}; {what}")
        if self.special_tokens == "split":
            what = "this tokenizer makes it of plain text; take --special-tokens keep or refuse"
            raise InputError(f"{where}: the special token {token!r} cannot be split: {what}")
        if not self.documents and not self.quiet:
            logger.warning("%s: the document holds the special token %r, which is kept; %s", where, token, WAYS_OUT)
        self.documents += len(np.unique(holders))
        for number, count in zip(*np.unique(ids[places], return_counts=True), strict=True):
            self.tokens[self.names[int(number)]] += int(count)

    def warn(self) -> None:
        """Log a warning that says how many documents held which special tokens, if any did."""
        if self.documents and not self.quiet:
            tokens = ", ".join(f"{count:,} x {token}" for token, count in self.tokens.most_common())
            logger.warning("documents that hold special tokens: %s (%s); %s", f"{self.documents:,}", tokens, WAYS_OUT)
