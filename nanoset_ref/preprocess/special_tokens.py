"""Special tokens that documents contain as text, as in "before </s> after".

    keep      "</s>" becomes the EOS token, as in Nanotron's and Megatron-LM's tools; such tokens
              are counted, and a warning reports the counts
    split     "</s>" is text like any other: no document can write an EOS
    refuse    the first document that holds one is an error

Special tokens are the added tokens with special=True in the tokenizer's file, and its BOS and EOS.
Other added tokens (SentencePiece's user-defined symbols, tags of tools) are always part of the
text. Tokens that stand for unknown characters (<unk>, bytes) are not counted, unless one of them is
the BOS or EOS.

The tokens are found as ids, after encoding and before a BOS or EOS is added around the document. So
the counts are exact and do not depend on the backend, and a batch without special tokens costs only
a search for its largest and smallest ids.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.preprocess.json_lines import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SpecialTokens = Literal["keep", "split", "refuse"]
# (index of the document, id) of each special token, int64 [found] both
FoundTokens = tuple[Int64Array, Int64Array]
ADVICE = (
    "--special-tokens split encodes such tokens as text, and refuse stops at the first"
)
# characters whose UTF-8 forms contain every byte that occurs in UTF-8
CHARACTERS = [
    *range(0x800),
    *range(0x800, 0xD800, 0x800),
    *range(0xE000, 0x110000, 0x2000),
]
TEXT_OF_EVERY_BYTE = "".join(map(chr, CHARACTERS))
logger = logging.getLogger(__name__)


class IdFinder:
    """Finds ids in encoded documents.

    Args:
        wanted: the ids to find.
    """

    def __init__(self, wanted: Iterable[int]) -> None:
        self._wanted = np.array(sorted(wanted), np.int64)

    def __call__(self, ids: Array, lengths: Int64Array) -> FoundTokens:
        """Find the ids.

        Args:
            ids: integers [sum(lengths)], the documents back to back.
            lengths: int64 [documents], in tokens.

        Returns:
            (index of the document, id) of each, int64 [found] both, in order.
        """
        none = np.empty(0, np.int64)
        if not ids.size or not self._wanted.size:
            return none, none
        smallest = self._wanted[0]
        largest = self._wanted[-1]
        if ids.max() < smallest or ids.min() > largest:
            return none, none
        indices = np.flatnonzero((ids >= smallest) & (ids <= largest))
        indices = indices[np.isin(ids[indices], self._wanted)]
        documents = np.searchsorted(np.cumsum(lengths), indices, side="right")
        return documents, ids[indices].astype(np.int64)


class SpecialTokenCounter:
    """Counts the special tokens in documents, or refuses them.

    Args:
        fast: a Rust tokenizer.
        bos_and_eos: their ids; None for a missing one.
        special_tokens: "keep", "split" or "refuse".

    Attributes:
        token_by_id: {id: token} of the tokens that count as special in a document.
        documents: the number of documents with special tokens.
        tokens: {token: count}.
        quiet: whether to log no warnings, because another process logs them.
    """

    def __init__(
        self,
        fast: Tokenizer,
        bos_and_eos: Iterable[int | None],
        special_tokens: SpecialTokens,
    ) -> None:
        modes = get_args(SpecialTokens)
        if special_tokens not in modes:
            raise ValueError(
                f"special_tokens must be one of {modes}, got {special_tokens!r}"
            )
        added = fast.get_added_tokens_decoder().items()
        self.token_by_id = {
            number: token.content for number, token in added if token.special
        }
        for number in fast.encode(TEXT_OF_EVERY_BYTE, add_special_tokens=False).ids:
            self.token_by_id.pop(number, None)
        for token_id in bos_and_eos:
            if token_id is not None:
                text = fast.id_to_token(token_id)
                if text is not None:
                    self.token_by_id[token_id] = text
        self.special_tokens = special_tokens
        self.quiet = False
        self.reset()

    def reset(self) -> None:
        """Count from 0 again."""
        self.documents = 0
        self.tokens: Counter[str] = Counter()

    def count(self, found: FoundTokens, describe_text: Callable[[int], str]) -> None:
        """Count the special tokens that an IdFinder has found.

        Args:
            found: (index of the document, id) of each.
            describe_text: returns the name of a text in errors, from its index.

        Raises:
            InputError: a document holds a special token, with "refuse"; or, with "split", the
                tokenizer makes one of plain text, as Unigram vocabularies do.
        """
        documents, token_ids = found
        if not documents.size:
            return
        first = int(documents[0])
        token = self.token_by_id[int(token_ids[0])]
        held = f"the document holds the special token {token!r}"
        if self.special_tokens == "refuse":
            raise InputError(
                f"{describe_text(first)}: {held}; remove it, or use --special-tokens keep or split"
            )
        if self.special_tokens == "split":
            raise InputError(
                f"{describe_text(first)}: the special token {token!r} cannot be split: this "
                "tokenizer also makes it from plain text; use --special-tokens keep or refuse"
            )
        if not self.documents and not self.quiet:
            logger.warning(
                "%s: %s, which is kept; %s", describe_text(first), held, ADVICE
            )
        self.documents += len(np.unique(documents))
        self.tokens.update(map(self.token_by_id.__getitem__, token_ids.tolist()))

    def warn(self) -> None:
        """Log how many documents hold which special tokens, if any do."""
        if self.documents and not self.quiet:
            tokens = ", ".join(
                f"{count:,} x {token}" for token, count in self.tokens.most_common()
            )
            logger.warning(
                f"documents that hold special tokens: {self.documents:,} ({tokens}); {ADVICE}"
            )
