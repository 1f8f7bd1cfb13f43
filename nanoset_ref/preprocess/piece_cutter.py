"""Cut a long document into pieces whose token ids, concatenated, are the ids of the whole.

A document of 50 MB is one work item for a tokenizer: it keeps one core busy for a minute and takes
many times its size in memory. Pieces spread this work over cores, provided that no cut changes
an id. A cut is made before a single space or line feed (no white space next to it), and only if
two conditions hold:

1. No token joins its two sides. BPE merges neighbors into tokens of the vocabulary; if no token
   contains the character before the cut followed by the separator, no merge ever crosses the cut.
2. A window of text around the cut has the same ids whole as in two halves. So the steps before the
   merges (normalizer, pre-tokenizer, special tokens in the text) do not depend on the cut. The
   right half is tried with its separator (GPT-2, Llama 3, Qwen) and without it, for tokenizers that
   put a separator before every text (Llama 2).

If a cut fails, the piece grows to the next candidate. Documents are cut only for BPE with a
pre-tokenizer that looks at nearby characters. Other tokenizers encode whole documents: Unigram,
WordPiece, dropout, end-of-word suffixes, a pre-tokenizer of fixed lengths, a regular expression
that pairs quotation marks or brackets, special tokens of over 64 characters. Limit: a custom
expression that pairs other characters far apart is not recognized.

Cost: 2 % of the encoding, for long documents only, and one pass over the vocabulary.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from nanoset_ref.io.extras import extra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PIECE_CHARS = 1 << 15
CONTEXT_CHARS = 128
MAX_CANDIDATES = 256  # tried for one cut; then the rest of the document stays whole
SEPARATOR = re.compile(r"(?<=\S)[ \n](?=\S)")
PAIRS = ("()", "[]", "{}", "<>", *(2 * mark for mark in string.punctuation))


class PieceCutter:
    """Cuts documents into pieces.

    Args:
        tokenizer: the Rust tokenizer that encodes them.
        piece_chars: the minimum length of a piece, in characters.

    Attributes:
        min_length: the minimum length of a document that is cut, in characters.
    """

    def __init__(self, tokenizer: Tokenizer, piece_chars: int = PIECE_CHARS) -> None:
        self._tokenizer = tokenizer
        self._piece_chars = piece_chars
        self.min_length = 2 * piece_chars

    def __call__(self, text: str) -> Iterator[str]:
        """Yield the pieces of `text` in order."""
        start = 0
        while len(text) - start >= self.min_length:
            cut = self._next_cut(text, start)
            if cut is None:
                break
            stop, next_start = cut
            yield text[start:stop]
            start = next_start
        yield text[start:]

    def _next_cut(self, text: str, start: int) -> tuple[int, int] | None:
        """Find the first safe cut of text[start:].

        Returns:
            (stop of the left piece, start of the right one); None if there is no safe cut.
        """
        if not self._can_be_cut:
            return None
        first = start + self._piece_chars
        last = len(text) - self._piece_chars
        for match in islice(SEPARATOR.finditer(text, first, last), MAX_CANDIDATES):
            cut = match.start()
            left = text[max(0, cut - CONTEXT_CHARS) : cut]
            right = text[cut : cut + CONTEXT_CHARS]
            # 1.
            if self._is_joined(left, match.group()):
                continue
            # 2.
            whole = self._ids(left + right)
            before = self._ids(left)
            if whole == before + self._ids(right):
                return cut, cut
            if match.group() == " " and whole == before + self._ids(right[1:]):
                return cut, cut + 1
        return None

    def _ids(self, text: str) -> list[int]:
        """The ids of a text, without those around it."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    @cached_property
    def _can_be_cut(self) -> bool:
        """Whether this is a tokenizer whose documents may be cut (see the module)."""
        with extra("text", "encoding text"):
            from tokenizers.models import BPE
        model = self._tokenizer.model
        if not isinstance(model, BPE):
            return False
        if model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix:
            return False
        special = self._tokenizer.get_added_tokens_decoder().values()
        if any(2 * len(token.content) > CONTEXT_CHARS for token in special):
            return False
        return _is_local(self._tokenizer.pre_tokenizer)

    @cached_property
    def _neighbors(self) -> set[tuple[str, str]]:
        """All pairs of characters that are neighbors in some token."""
        return set(
            pairwise("\0".join(self._tokenizer.get_vocab(with_added_tokens=False)))
        )

    def _is_joined(self, left: str, separator: str) -> bool:
        """Whether some token contains the last character of `left` followed by the separator.

        A byte-level vocabulary spells a space "\u0120" and a line feed "\u010a", others spell a
        space "\u2581". Every spelling is looked up: that costs a few cuts and is always safe.
        """
        with extra("text", "encoding text"):
            from tokenizers.pre_tokenizers import ByteLevel
        normalizer = self._tokenizer.normalizer
        if normalizer:
            left = normalizer.normalize_str(left)
        plain = left[-1:] + separator
        byte_level = ByteLevel(add_prefix_space=False, use_regex=False)
        ((in_bytes, _),) = byte_level.pre_tokenize_str(plain)
        for spelling in (plain, plain.replace(" ", "\u2581"), in_bytes):
            last_two = f"\0{spelling}"[-2:]
            if tuple(last_two) in self._neighbors:
                return True
        return False


def _is_local(pre_tokenizer: Any) -> bool:
    """Whether a pre-tokenizer splits a text in the same way with and without the text before it.

    An opening mark before the text must not change this either.
    """
    if not pre_tokenizer:
        return True

    def starts(text: str, origin: int) -> set[int]:
        words = pre_tokenizer.pre_tokenize_str(text)
        return {start - origin for _, (start, _) in words if start > origin}

    for pair in PAIRS:
        left = f"x{pair[0]}x"
        right = f" y{pair[1]}y z{pair[0]}z z{pair[1]}"
        if starts(left + right, len(left)) != starts(right, 0):
            return False
    return True
