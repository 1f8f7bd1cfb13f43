"""Cut a long document into pieces whose token ids, put together, are the ids of the whole.

A document of 50 MB is one work item for a tokenizer: one core is busy with it for a minute and holds it in memory
many times over. Cut into pieces it is work like any other, provided that no cut changes an id. A cut is made in front
of a lone space or line feed (no white space beside it) and only where two things hold:

1. No token joins its two sides. BPE merges neighbours into tokens of the vocabulary, so if no token holds the
   character before the cut followed by the separator, no merge ever crosses it and the two sides never learn of each
   other.
2. A window of text around the cut has the same ids whole as in two halves. That shows what stands before the merges
   to be indifferent to the cut: the normalizer, the pre-tokenizer, special tokens in the text. The right half is tried
   with its separator (GPT-2, Llama 3, Qwen) and without it, for tokenizers that put one before every text (Llama 2).

Where a cut fails the piece grows to the next candidate. What is known to be safe is BPE over pre-tokenizers that look
at their neighbourhood only; every other tokenizer (Unigram, WordPiece, dropout, end-of-word suffixes, a pre-tokenizer
of fixed lengths, a regular expression that pairs quotation marks or brackets, for then text far away matters) encodes
its documents whole. Limit: a home-made expression that pairs other things far apart is not recognised.

Cost: 2 % of the encoding, for long documents only, and one pass over the vocabulary at the first of them.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

PIECE_CHARS = 1 << 15
WINDOW_CHARS = 128
MOST_CANDIDATES = 256  # tried for one cut; then the rest of the document stays whole
SEPARATOR = re.compile(r"(?<=\S)[ \n](?=\S)")
LOCAL_PRE_TOKENIZERS = frozenset(
    "Sequence ByteLevel Split Metaspace Digits Punctuation Whitespace WhitespaceSplit BertPreTokenizer".split()
)


class SafeCutter:
    """Cuts documents for one fast tokenizer; `piece_chars` is the least length of a piece, in characters."""

    def __init__(self, tokenizer: Tokenizer, piece_chars: int = PIECE_CHARS) -> None:
        self._tokenizer = tokenizer
        self._piece_chars = piece_chars

    @property
    def shortest(self) -> int:
        """The length in characters below which a document stays whole."""
        return 2 * self._piece_chars

    def __call__(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the pieces of `text` in order, each with whether it is the last; one piece if no cut is safe."""
        begin = 0
        if len(text) >= self.shortest:
            while cut := self._next_cut(text, begin + self._piece_chars):
                end, begin_of_next = cut
                yield text[begin:end], False
                begin = begin_of_next
        yield text[begin:], True

    def _next_cut(self, text: str, start: int) -> tuple[int, int] | None:
        """(end of the left piece, beginning of the right one) for the first safe cut at or after `start`."""
        tokenizer, (joined, byte_level, width) = self._tokenizer, self._rules
        if not joined:
            return None
        for match in islice(SEPARATOR.finditer(text, start, len(text) - self._piece_chars), MOST_CANDIDATES):
            cut, separator = match.start(), match.group()
            left, right = text[max(0, cut - width) : cut], text[cut : cut + width]
            tail = tokenizer.normalizer.normalize_str(left) if tokenizer.normalizer else left
            end = BYTE_CHARACTERS[tail[-1].encode()[-1]] if byte_level and tail else tail[-1:]
            if not end or end in joined[separator]:
                continue
            windows = tokenizer.encode_batch_fast([left + right, left, right, right[1:]], add_special_tokens=False)
            whole, before, kept, dropped = (window.ids for window in windows)
            if whole == before + kept:
                return cut, cut
            if separator == " " and whole == before + dropped:
                return cut, cut + 1
        return None

    @cached_property
    def _rules(self) -> tuple[dict[str, set[str]], bool, int]:
        """(separator -> characters that precede it inside some token, byte level?, width of a window in characters).

        The dictionary is empty if this kind of tokenizer is not known to be safe. Tokens of a byte-level vocabulary
        spell a space "\u0120" and a line feed "\u010a", others spell a space "\u2581".
        """
        tokenizer = self._tokenizer
        if not _is_known_bpe(tokenizer.model) or not _is_local(tokenizer.pre_tokenizer):
            return {}, False, 0
        before_merges = [_config(tokenizer.normalizer), _config(tokenizer.pre_tokenizer)]
        byte_level = '"ByteLevel"' in json.dumps(before_merges)
        space, line_feed = ("\u0120", "\u010a") if byte_level else ("[\u2581 ]", "\n")
        tokens = "\0".join(tokenizer.get_vocab(with_added_tokens=False))
        joined = {
            separator: set(re.findall(f"(?s)(.)(?={spelled})", tokens))
            for separator, spelled in ((" ", space), ("\n", line_feed))
        }
        longest = max((len(token.content) for token in tokenizer.get_added_tokens_decoder().values()), default=0)
        return joined, byte_level, max(WINDOW_CHARS, 2 * longest)


def _config(part: Any) -> dict[str, Any] | None:
    """What a normalizer or a pre-tokenizer is, as tokenizer.json has it (to read all of that takes 0.2 s)."""
    return None if part is None else json.loads(part.__getstate__())


def _is_local(pre_tokenizer: Any) -> bool:
    """Whether a pre-tokenizer parts a text alike with and without what stands before it, marks left open included."""
    config = _config(pre_tokenizer)
    if config is None:
        return True

    def parted(text: str, start: int) -> set[int]:
        return {begin - start for _, (begin, _) in pre_tokenizer.pre_tokenize_str(text) if begin > start}

    kinds = {config["type"], *(part["type"] for part in config.get("pretokenizers", ()))}
    pairs = ["()", "[]", "{}", "<>", *(2 * mark for mark in string.punctuation)]
    texts = [(f"x{pair[0]}x", f" y{pair[1]}y z{pair[0]}z z{pair[1]}") for pair in pairs]
    same = all(parted(left + right, len(left)) == parted(right, 0) for left, right in texts)
    return same and kinds <= LOCAL_PRE_TOKENIZERS


def _is_known_bpe(model: Any) -> bool:
    others = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    return isinstance(model, BPE) and not any(getattr(model, name) for name in others)


def _byte_characters() -> dict[int, str]:
    """byte -> what stands for it in a byte-level vocabulary: itself if it is printed, else a character from 256 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {byte: chr(byte) for byte in printed} | {byte: chr(256 + k) for k, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
