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
pre-tokenizer of fixed lengths, a regular expression that pairs quotation marks or brackets. Limit: a home-made
expression that pairs other things far apart is not recognised.

Cost: 2 % of the encoding, for long documents only, and one pass over the vocabulary at the first of them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

STRETCH_CHARS = 1 << 15
WINDOW_CHARS = 128
MOST_CANDIDATES = 256  # tried for one cut; then the rest of the document stays whole
SEPARATOR = re.compile(r"(?<=\S)[ \n](?=\S)")
PAIRS = ("()", "[]", "{}", "<>", *(2 * mark for mark in string.punctuation))


class StretchCutter:
    """Cuts documents for one Rust tokenizer into stretches of at least `stretch_chars` characters."""

    def __init__(self, tokenizer: Tokenizer, stretch_chars: int = STRETCH_CHARS) -> None:
        self._tokenizer, self._stretch_chars = tokenizer, stretch_chars
        self._is_safe = _is_plain_bpe(tokenizer.model) and _looks_near(tokenizer.pre_tokenizer)
        before_merges = (tokenizer.normalizer, tokenizer.pre_tokenizer)
        self._byte_level = any(part and b'"ByteLevel"' in part.__getstate__() for part in before_merges)
        self._joined = {separator: self._precede(separator) for separator in " \n"}
        special = tokenizer.get_added_tokens_decoder().values()
        self._width = max(WINDOW_CHARS, *(2 * len(token.content) for token in special))

    def __call__(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the stretches of `text` in order, each with whether it is the last; all of it if no cut is safe."""
        begin = 0
        while self._is_safe and (cut := self._next_cut(text, begin + self._stretch_chars)):
            end, begin_of_next = cut
            yield text[begin:end], False
            begin = begin_of_next
        yield text[begin:], True

    def _next_cut(self, text: str, start: int) -> tuple[int, int] | None:
        """(end of the left stretch, beginning of the right one) for the first safe cut at or after `start`."""
        candidates = SEPARATOR.finditer(text, start, len(text) - self._stretch_chars)
        for match in islice(candidates, MOST_CANDIDATES):
            cut = match.start()
            left, right = text[max(0, cut - self._width) : cut], text[cut : cut + self._width]
            if self._last_character(left) in self._joined[match.group()]:
                continue
            whole, before, kept, dropped = map(self._ids, (left + right, left, right, right[1:]))
            if whole == before + kept:
                return cut, cut
            if right[0] == " " and whole == before + dropped:
                return cut, cut + 1
        return None

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _precede(self, separator: str) -> set[str]:
        """The characters that precede a separator inside some token, and "" for no character.

        Tokens of a byte-level vocabulary spell a space "\u0120" and a line feed "\u010a", others a space "\u2581".
        """
        spelled = self._in_vocabulary(separator) if self._byte_level else {" ": "[\u2581 ]"}.get(separator, separator)
        tokens = "\0".join(self._tokenizer.get_vocab(with_added_tokens=False))
        return {"", *re.findall(f"(?s)(.)(?={spelled})", tokens)}

    def _last_character(self, left: str) -> str:
        """The last character of a text as the vocabulary spells it."""
        normalizer = self._tokenizer.normalizer
        last = (normalizer.normalize_str(left) if normalizer else left)[-1:]
        return self._in_vocabulary(last) if self._byte_level else last

    def _in_vocabulary(self, character: str) -> str:
        """How a byte-level vocabulary spells the last byte of a character."""
        spelled = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(character)
        return "".join(part for part, _ in spelled)[-1:]


def _is_plain_bpe(model: Any) -> bool:
    others = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    return isinstance(model, BPE) and not any(getattr(model, name) for name in others)


def _looks_near(pre_tokenizer: Any) -> bool:
    """Whether a pre-tokenizer parts a text alike with and without what stands before it, marks left open included."""

    def parted(text: str, start: int) -> set[int]:
        return {begin - start for _, (begin, _) in pre_tokenizer.pre_tokenize_str(text) if begin > start}

    texts = [(f"x{pair[0]}x", f" y{pair[1]}y z{pair[0]}z z{pair[1]}") for pair in PAIRS]
    return not pre_tokenizer or all(parted(left + right, len(left)) == parted(right, 0) for left, right in texts)
