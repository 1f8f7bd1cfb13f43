"""Special tokens that stand in documents as text, as in "before </s> after".

    keep      "</s>" becomes the EOS token, as in Nanotron's and Megatron-LM's tools; they are
              counted, and a warning says how many there are
    split     "</s>" is text like any other: no document can write an EOS
    refuse    the first document that holds one is an error

Special are the added tokens that the tokenizer's file calls so (special=True), and its BOS and EOS.
Other added tokens (SentencePiece's user-defined symbols, tags of tools) are part of the text in all
three ways. Not counted are those that a tokenizer makes of characters it does not know (<unk>,
bytes), unless one of them is its BOS or EOS.

They are found as ids, after encoding and before any BOS or EOS is put around the document. So the
counts are exact, do not depend on who encodes, and cost two comparisons for each id.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra
from nanoset_ref.preprocess.text import Block, Document, InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SpecialTokens = Literal["keep", "split", "refuse"]
Text = str | Document
WAYS_OUT = "--special-tokens split takes them as plain text, refuse stops at the first"
# characters in whose UTF-8 form every byte occurs that can
CHARACTERS = [*range(0x800), *range(0x800, 0xD800, 0x800), *range(0xE000, 0x110000, 0x2000)]
EVERY_BYTE = "".join(map(chr, CHARACTERS))
logger = logging.getLogger(__name__)


def special_tokens_of(tokenizer: Any) -> dict[int, str]:
    """{id: token} of what counts as a special token when a document holds it.

    Args:
        tokenizer: transformers' tokenizer, of the fast kind.
    """
    fast: Tokenizer = tokenizer.backend_tokenizer
    added = fast.get_added_tokens_decoder().items()
    special = {number: token.content for number, token in added if token.special}
    for number in fast.encode(EVERY_BYTE, add_special_tokens=False).ids:
        special.pop(number, None)
    for number in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if number is not None:
            special[number] = tokenizer.convert_ids_to_tokens(number)
    return special


class Trail:
    """Names the texts of a stream by their numbers in it, counted from 0.

    It keeps one entry for each block of documents under way, and no document: many small objects
    that live for long make Python's garbage collector slow.
    """

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int, Block]] = deque()  # number of a text, of its row, block
        self._count = 0

    def text(self, document: Text) -> str:
        """The text of the next document."""
        number = self._count
        self._count += 1
        if not isinstance(document, Document):
            return document
        if not self._blocks or self._blocks[-1][2] is not document.block:
            self._blocks.append((number, document.number, document.block))
        return document.text

    def forget(self, number: int) -> None:
        """Texts before `number` are not asked for any more."""
        while len(self._blocks) > 1 and self._blocks[1][0] <= number:
            self._blocks.popleft()

    def where(self, number: int) -> str:
        """How errors name a text: by its file and line, where it is a document."""
        for first, row, block in reversed(self._blocks):
            if first <= number:
                rest = (document for document in block.documents() if document.number >= row)
                return next(islice(rest, number - first, None)).where
        return f"text {number + 1}"


def restored(description: str, split: bool) -> Tokenizer:
    """A tokenizer from its `to_str()`. With `split` it takes special tokens in a text for text."""
    with extra("text", "encoding text"):
        from tokenizers import Tokenizer
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
        ways = get_args(SpecialTokens)
        if special_tokens not in ways:
            raise ValueError(f"special_tokens must be one of {ways}, got {special_tokens!r}")
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

    def look(
        self, ids: NDArray[Any], lengths: NDArray[np.int64], name: Callable[[int], str]
    ) -> None:
        """Look at documents that were encoded.

        Args:
            ids: integers [sum(lengths)], those of the documents back to back.
            lengths: int64 [documents], in tokens.
            name: says how errors call the document of an index into `lengths`.

        Raises:
            InputError: (refuse) a document holds a special token; (split) the tokenizer makes a
                special token of plain text, as Unigram vocabularies do, so this one cannot be split.
        """
        places = np.flatnonzero((ids >= self._least) & (ids <= self._largest))
        places = places[self._is_special[ids[places]]]
        if not places.size:
            return
        holders = np.searchsorted(np.cumsum(lengths), places, side="right")
        first = int(holders[0])
        token = self.names[int(ids[places[0]])]
        if self.special_tokens == "refuse":
            what = "remove it, or take --special-tokens keep or split"
            raise InputError(
                f"{name(first)}: the document holds the special token {token!r}; {what}"
            )
        if self.special_tokens == "split":
            what = "this tokenizer makes it of plain text; take --special-tokens keep or refuse"
            raise InputError(f"{name(first)}: the special token {token!r} cannot be split: {what}")
        if not self.documents and not self.quiet:
            what = f"the document holds the special token {token!r}, which is kept"
            logger.warning("%s: %s; %s", name(first), what, WAYS_OUT)
        self.documents += len(np.unique(holders))
        for number, count in zip(*np.unique(ids[places], return_counts=True), strict=True):
            self.tokens[self.names[int(number)]] += int(count)

    def warn(self) -> None:
        """Log a warning that says how many documents held which special tokens, if any did."""
        if self.documents and not self.quiet:
            tokens = ", ".join(f"{count:,} x {token}" for token, count in self.tokens.most_common())
            what = f"documents that hold special tokens: {self.documents:,} ({tokens})"
            logger.warning("%s; %s", what, WAYS_OUT)
