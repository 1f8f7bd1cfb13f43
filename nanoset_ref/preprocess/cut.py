"""Cut a long document into stretches whose token ids, put together, are the ids of the whole.

A document of 50 MB is one work item for a tokenizer: one core is busy with it for a minute and holds it in memory
many times over. Cut into stretches it is work like any other, provided that no cut changes an id. A cut is made in
front of a lone space or line feed (no white space beside it) and only where two things hold:

1. No token joins its two sides. BPE merges neighbours into tokens of the vocabulary, so if no token holds the
   character before the cut followed by the separator, no merge ever crosses it and the two sides never learn of each
   other.
2. A window of text around the cut has the same ids whole as in two halves. That shows that what comes before the
   merges (the normalizer, the pre-tokenizer, special tokens in the text) does not notice the cut. The right half is
   tried with its separator (GPT-2, Llama 3, Qwen) and without it, for tokenizers that put one before every text
   (Llama 2).

Where a cut fails the stretch grows to the next candidate. Only BPE over pre-tokenizers that look at their neighbourhood
is cut. Every other tokenizer encodes its documents whole: Unigram, WordPiece, dropout, end-of-word suffixes, a
pre-tokenizer of fixed lengths, a regular expression that pairs quotation marks or brackets, special tokens of over 64
characters. Limit: a home-made expression that pairs other things far apart is not recognised.

Cost: 2 % of the encoding, for long documents only, and one pass over the vocabulary at the first of them.
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

STRETCH_CHARS = 1 << 15
WINDOW_CHARS = 128
MOST_CANDIDATES = 256  # tried for one cut; then the rest of the document stays whole
SEPARATOR = re.compile(r"(?<=\S)[ \n](?=\S)")
PAIRS = ("()", "[]", "{}", "<>", *(2 * mark for mark in string.punctuation))


class StretchCutter:
    """Cuts documents for one Rust tokenizer into stretches of at least `stretch_chars` characters."""

    def __init__(self, tokenizer: Tokenizer, stretch_chars: int = STRETCH_CHARS) -> None:
        self._tokenizer, self._stretch_chars = tokenizer, stretch_chars

    def __call__(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the stretches of `text` in order, each with whether it is the last; all of it if no cut is safe."""
        begin = 0
        while len(text) - begin >= 2 * self._stretch_chars and (cut := self._next_cut(text, begin)):
            yield text[begin : cut[0]], False
            begin = cut[1]
        yield text[begin:], True

    def _next_cut(self, text: str, begin: int) -> tuple[int, int] | None:
        """(end of the left stretch, beginning of the right one) for the first safe cut of text[begin:]."""
        last = len(text) - self._stretch_chars if self._can_be_cut else 0
        for match in islice(
            SEPARATOR.finditer(text, begin + self._stretch_chars, last), MOST_CANDIDATES
        ):
            cut = match.start()
            left, right = text[max(0, cut - WINDOW_CHARS) : cut], text[cut : cut + WINDOW_CHARS]
            if self._is_joined(left, match.group()):
                continue
            whole, before = self._ids(left + right), self._ids(left)
            if whole == before + self._ids(right):
                return cut, cut
            if match.group() == " " and whole == before + self._ids(right[1:]):
                return cut, cut + 1
        return None

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    @cached_property
    def _can_be_cut(self) -> bool:
        with extra("text", "encoding text"):
            from tokenizers.models import BPE
        model = self._tokenizer.model
        others = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
        is_plain = isinstance(model, BPE) and not any(getattr(model, name) for name in others)
        special = self._tokenizer.get_added_tokens_decoder().values()
        fit = all(2 * len(token.content) <= WINDOW_CHARS for token in special)
        return is_plain and fit and _looks_near(self._tokenizer.pre_tokenizer)

    @cached_property
    def _neighbours(self) -> set[tuple[str, str]]:
        """All characters that follow each other in some token."""
        return set(pairwise("\0".join(self._tokenizer.get_vocab(with_added_tokens=False))))

    def _is_joined(self, left: str, separator: str) -> bool:
        """Whether some token holds the last character of `left` and the separator behind it.

        A byte-level vocabulary spells a space "\u0120" and a line feed "\u010a", another a space "\u2581". That one
        vocabulary is asked for all spellings costs a few cuts and is always safe.
        """
        with extra("text", "encoding text"):
            from tokenizers.pre_tokenizers import ByteLevel
        normalizer = self._tokenizer.normalizer
        plain = (normalizer.normalize_str(left) if normalizer else left)[-1:] + separator
        ((in_bytes, _),) = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
            plain
        )
        spellings = (plain, plain.replace(" ", "\u2581"), in_bytes)
        return any(tuple(f"\0{spelling}"[-2:]) in self._neighbours for spelling in spellings)


def _looks_near(pre_tokenizer: Any) -> bool:
    """Whether a pre-tokenizer parts a text alike with and without what stands before it, marks left open included."""

    def parted(text: str, start: int) -> set[int]:
        return {
            begin - start for _, (begin, _) in pre_tokenizer.pre_tokenize_str(text) if begin > start
        }

    texts = [(f"x{pair[0]}x", f" y{pair[1]}y z{pair[0]}z z{pair[1]}") for pair in PAIRS]
    return not pre_tokenizer or all(
        parted(left + right, len(left)) == parted(right, 0) for left, right in texts
    )
