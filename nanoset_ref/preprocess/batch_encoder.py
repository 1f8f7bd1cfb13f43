"""Encode batches of text with one tokenizer, in several threads; yield them in order.

While gigatoken encodes, hf encodes a few excerpts of every batch as well (see `encoder`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nanoset_ref.io.threads import map_ahead
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.preprocess.backends import LIBRARIES, Encode, IdsAndLengths, hf_encoder
from nanoset_ref.preprocess.bos_eos import add_separators
from nanoset_ref.preprocess.special_tokens import FoundTokens, IdFinder
from nanoset_ref.preprocess.text_blocks import TextBatch
from nanoset_ref.preprocess.tokenizer import TokenizerError
from nanoset_ref.tokens import token_dtype_for

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EXCERPT_CHARS = 256  # compared of two texts of every batch


class EncodedBatch(NamedTuple):
    """The documents of a batch.

    Attributes:
        ids: integers [total], the documents back to back, with the prefix and suffix of each.
        lengths: int64 [documents], in tokens.
        found_tokens: the special tokens in the texts.
        document_numbers: of each document in its block, from 0.
        skipped: {reason: number} of the skipped documents.
    """

    ids: Array
    lengths: Int64Array
    found_tokens: FoundTokens
    document_numbers: Sequence[int]
    skipped: dict[str, int]


BatchFunction = Callable[[TextBatch], EncodedBatch]


@dataclass(eq=False)
class BatchEncoder:
    """Encodes batches with one Rust tokenizer; several threads may use it.

    Args:
        fast: the tokenizer.
        backend: "hf" or "gigatoken".
        prefix, suffix: the ids before and after each document.
        vocab_size: every id is below it.
        special_token_ids: the ids of the special tokens to find.

    Attributes:
        dtype: np.dtype of the ids, the one for `vocab_size`.
    """

    fast: Tokenizer
    backend: str
    prefix: list[int]
    suffix: list[int]
    vocab_size: int
    special_token_ids: list[int]

    def __post_init__(self) -> None:
        self.dtype = np.dtype(token_dtype_for(self.vocab_size))
        self._hf_encode = hf_encoder(self.fast)
        self.encode: Encode = self._hf_encode
        if self.backend != "hf":
            self.encode = LIBRARIES[self.backend](self.fast)
        self._find = IdFinder(self.special_token_ids)

    def encode_text(self, batch: TextBatch) -> EncodedBatch:
        """Read and encode a batch of text."""
        texts, document_numbers, skipped = batch.read()
        ids, lengths, found_tokens = self.encode_texts(texts, batch.file_and_line)
        return EncodedBatch(ids, lengths, found_tokens, document_numbers, skipped)

    def encode_texts(
        self, texts: list[str], describe_text: Callable[[int], str]
    ) -> tuple[Array, Int64Array, FoundTokens]:
        """Encode texts.

        1. Encode; compare a few excerpts with the tokenizer itself.
        2. Check that ids are below `vocab_size`, and find special tokens.
        3. Add the ids before and after each document.

        Args:
            texts: texts with a UTF-8 form.
            describe_text: returns the name of a text in errors, from its index.

        Returns:
            (ids [total] of `dtype`, back to back; lengths int64 [texts]; the special tokens found).

        Raises:
            TokenizerError: the library produces different ids from the tokenizer itself, or an id
                that is not below `vocab_size`.
        """
        # 1.
        ids, lengths = self._encode_and_compare(texts, describe_text)
        # 2.
        largest = ids.max(initial=0)
        if largest >= self.vocab_size:
            raise TokenizerError(
                f"token id {largest} is not below {self.vocab_size}, the size of the vocabulary"
            )
        found_tokens = self._find(ids, lengths)
        # 3.
        ids = ids.astype(self.dtype)
        ids, lengths = add_separators(ids, lengths, self.prefix, self.suffix)
        return ids, lengths, found_tokens

    def _encode_and_compare(
        self, texts: list[str], describe_text: Callable[[int], str]
    ) -> IdsAndLengths:
        """Encode texts together with excerpts, whose ids must be those of the tokenizer itself."""
        if self.backend == "hf":
            return self.encode(texts)
        excerpts = {}
        for index in [0, len(texts) // 2][: len(texts)]:
            start = max(0, (len(texts[index]) - EXCERPT_CHARS) // 2)
            excerpts[index] = texts[index][start : start + EXCERPT_CHARS]
        ids, lengths = self.encode([*excerpts.values(), *texts])
        start = 0
        for length, index in zip(lengths, excerpts, strict=False):
            expected, _ = self._hf_encode([excerpts[index]])
            if not np.array_equal(ids[start : start + length], expected):
                raise TokenizerError(
                    f"{describe_text(index)}: gigatoken produces different ids from the tokenizer "
                    "itself; begin again with backend hf (--backend hf)"
                )
            start += length
        return ids[start:], lengths[len(excerpts) :]


def encode_in_order(
    batches: Iterable[TextBatch], encode_functions: Sequence[BatchFunction]
) -> Iterator[tuple[TextBatch, EncodedBatch]]:
    """Encode batches, a few in advance; yield each with its ids, in order.

    Args:
        batches: batches of text; prefetched.
        encode_functions: each runs in a thread of its own, one batch at a time.
    """
    free = deque(encode_functions)

    threads = len(free)

    def run(batch: TextBatch) -> tuple[TextBatch, EncodedBatch]:
        encode = free.popleft()
        try:
            return batch, encode(batch)
        finally:
            # also after an error: an earlier batch may still have to take one
            free.append(encode)

    return map_ahead(run, batches, threads, 2 * threads)
