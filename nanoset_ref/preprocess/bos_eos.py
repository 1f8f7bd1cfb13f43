"""The ids before and after each document: BOS, EOS, and texts that the user chooses."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import numpy as np

from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.preprocess.backends import IdsAndLengths
from nanoset_ref.preprocess.tokenizer import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def special_ids(fast: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that a tokenizer puts before and after every text."""
    encoding = fast.encode("a")
    if 0 not in encoding.special_tokens_mask:
        # a vocabulary without "a"
        encoding = fast.encode(string.printable)
    is_special = encoding.special_tokens_mask
    if 0 not in is_special:
        raise TokenizerError(
            "this tokenizer encodes no printable ASCII character, so the ids that it adds to a "
            "text cannot be told from the text's; encode without them (add_special_tokens=False)"
        )
    start = is_special.index(0)
    stop = len(is_special) - is_special[::-1].index(0)
    return encoding.ids[:start], encoding.ids[stop:]


def separator_ids(tokenizer: Any, fast: Tokenizer, name: str, text: str) -> list[int]:
    """The id of a separator, in a list; [] if `text` is empty.

    Raises:
        TokenizerError: the text is several tokens, or none; the message calls it `name`.
    """
    if not text:
        return []
    ids = fast.encode(text, add_special_tokens=False).ids
    if len(ids) != 1:
        known = ", ".join(map(repr, tokenizer.all_special_tokens)) or "it has none"
        raise TokenizerError(
            f"{name} {text!r} must be a single token of this tokenizer, but is {len(ids)}; "
            f"use one of its special tokens: {known}"
        )
    return ids


def with_eos(suffix: list[int], eos_token_id: int | None) -> list[int]:
    """The ids after each document with the EOS id at their end, unless they end with it."""
    if eos_token_id is None:
        raise TokenizerError(
            "append_eod needs an EOS token, and this tokenizer has none"
        )
    if suffix[-1:] == [eos_token_id]:
        return suffix
    return [*suffix, eos_token_id]


def add_separators(
    ids: Array, lengths: Int64Array, prefix: list[int], suffix: list[int]
) -> IdsAndLengths:
    """Add prefix and suffix to each document: 1 2 3 of lengths 2 1 -> p 1 2 s p 3 s."""
    separators = [*prefix, *suffix]
    if not separators:
        return ids, lengths
    ends = np.cumsum(lengths)
    insert_at = [ends - lengths] * len(prefix) + [ends] * len(suffix)
    # the index in ids that each separator precedes
    before = np.stack(insert_at, axis=1).ravel()
    whole = np.insert(ids, before, np.tile(separators, len(lengths)))
    return whole, lengths + len(separators)
