"""Encode texts in batches, with the fastest library that produces the right token ids.

The ids always equal those of hf, the Hugging Face tokenizer (see `backends`):

1. "auto" uses gigatoken if it produces the same ids on special tokens, odd texts, and documents of
   up to 20 files of the corpus; else hf.
2. While gigatoken runs, both encode 2 excerpts of 256 characters from every batch (about a MiB).
   The first difference ends the job with an error that names the document, so a change of language
   halfway is noticed. This is a sample: a difference outside the excerpts is not found. Use
   backend="hf" to be sure.

The special tokens that the tokenizer puts before and after every text are determined once and added
here. `tokenizer(texts)` would be a quarter slower, because it also makes masks, lists and warnings.

Each core's thread, or another process, reads, parses and encodes a batch at a time, while the
caller writes. Nothing is done document by document.
"""

import logging
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import xxhash

from nanoset_ref.io.extras import extra
from nanoset_ref.io.types import Json
from nanoset_ref.preprocess.backends import LIBRARIES, IdsAndLengths, num_threads
from nanoset_ref.preprocess.batch_encoder import (
    BatchEncoder,
    BatchFunction,
    EncodedBatch,
    encode_in_order,
)
from nanoset_ref.preprocess.bos_eos import separator_ids, special_ids, with_eos
from nanoset_ref.preprocess.special_tokens import SpecialTokenCounter, SpecialTokens
from nanoset_ref.preprocess.text_blocks import TextBatch
from nanoset_ref.preprocess.tokenizer import (
    TokenizerError,
    unshared_tokenizer,
    vocabulary_size,
)
from nanoset_ref.tokens.interface import Facts

PROBE_TEXTS = (
    "",
    " ",
    "a",
    "  a  b\n\n c\t1234567 don't",
    "\u00e9 e\u0301 \ufb01 \u4f60\U0001f600\u200d\u0301\x00\r\n\xa0.",
)
SPECIAL_TOKEN_TEMPLATES = (
    "{0}",
    "a{0}b",
    "a {0} b",
    " {0}\n{0}{0} ",
    "a\n  {0}  b",
    "{0} a",
)
Backend = Literal["auto", "hf", "gigatoken"]
logger = logging.getLogger(__name__)


class Encoder(BatchEncoder):
    """Encodes texts with one tokenizer.

    Args:
        tokenizer: a tokenizer from `open_tokenizer` or `load_tokenizer`, or any fast one of
            transformers; it is not changed.
        backend: "auto", "hf" or "gigatoken".
        add_special_tokens: add the special tokens that the tokenizer puts around a text (BOS, ...).
        append_eod: add the EOS id after each document, unless the special tokens end with it.
        bos_text, eos_text: one token each, before and after each document and its special tokens.
        probe_texts: texts of the corpus; gigatoken is used if it agrees with hf on them. They are
            read only if it is tried.
        special_tokens: "keep", "split" or "refuse" special tokens in texts (see `special_tokens`).

    Attributes:
        vocab_size: see `vocabulary_size`.
        dtype: np.dtype of the ids, the one for `vocab_size`.
        eos_token_id: int or None.
        backend: the library that encodes: "hf" or "gigatoken".
        encode: the library's function, which adds no special tokens (see `backends`).
        prefix, suffix: lists of the ids before and after each document.
        special_token_counts: counts the special tokens in the texts so far.

    Raises:
        TokenizerError: a tokenizer without a fast form; no EOS token to append; a bos_text or
            eos_text that is not one token; gigatoken is asked for, but missing, unable or wrong.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        backend: Backend = "auto",
        add_special_tokens: bool = False,
        append_eod: bool = False,
        bos_text: str = "",
        eos_text: str = "",
        probe_texts: Iterable[str] = (),
        special_tokens: SpecialTokens = "keep",
    ) -> None:
        if backend not in get_args(Backend):
            raise ValueError(
                f"backend must be one of {get_args(Backend)}, got {backend!r}"
            )
        if not tokenizer.is_fast:
            raise TokenizerError(
                f"{tokenizer.name_or_path} has no fast form; save one with a tokenizer.json"
            )
        self.tokenizer = tokenizer
        fast = unshared_tokenizer(tokenizer)
        vocab_size = vocabulary_size(tokenizer)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self._adds_special_tokens = add_special_tokens
        before, after = special_ids(fast) if add_special_tokens else ([], [])
        prefix = separator_ids(tokenizer, fast, "bos_text", bos_text) + before
        suffix = after + separator_ids(tokenizer, fast, "eos_text", eos_text)
        if append_eod:
            suffix = with_eos(suffix, self.eos_token_id)
        bos_and_eos = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        self.special_token_counts = SpecialTokenCounter(
            fast, bos_and_eos, special_tokens
        )
        fast.encode_special_tokens = (
            special_tokens == "split" or tokenizer.split_special_tokens
        )
        special = sorted(self.special_token_counts.token_by_id)
        super().__init__(fast, "hf", prefix, suffix, vocab_size, special)
        self._choose_backend(backend, probe_texts)

    def _choose_backend(self, backend: Backend, probe_texts: Iterable[str]) -> None:
        """Use gigatoken if it is chosen and produces the right ids."""
        if backend != "hf":
            problem = self._try_gigatoken(probe_texts)
            if problem and backend == "gigatoken":
                raise TokenizerError(
                    f"gigatoken cannot be used: {problem}; use --backend hf"
                )
            if problem:
                logger.info("gigatoken is not used: %s", problem)
        logger.info("tokenizing with the %s backend", self.backend)

    def _try_gigatoken(self, probe_texts: Iterable[str]) -> str | None:
        """Use gigatoken if its ids equal the tokenizer's own; else return the reason."""
        texts = [*probe_texts, *PROBE_TEXTS]
        added = self.fast.get_added_tokens_decoder().values()
        for token in islice(added, 100):
            for template in SPECIAL_TOKEN_TEMPLATES:
                texts.append(template.format(token.content))
        try:
            encode = LIBRARIES["gigatoken"](self.fast)
            encodings = encode(texts)
        except Exception as error:  # gigatoken raises errors of its own
            return f"{type(error).__name__}: {error}"
        if not all(map(np.array_equal, encodings, self._hf_encode(texts))):
            return "its ids differ from the tokenizer's own on texts of this corpus"
        self.backend = "gigatoken"
        self.encode = encode
        return None

    @property
    def facts(self) -> Facts:
        """The arguments of a `TokenFileWriter` that describe the ids."""
        return {
            "dtype": self.dtype,
            "vocab_size": self.vocab_size,
            "eos_token_id": self.eos_token_id,
            "appended_eod": self.suffix[-1:] == [self.eos_token_id],
            "added_special_tokens": self._adds_special_tokens,
        }

    @property
    def identity(self) -> Facts:
        """The facts that determine a text's ids, as JSON.

        They are a hash of the tokenizer's definition (model, normalizer, pre-tokenizer, added
        tokens), and the ids before and after each document.
        """
        with extra("text", "a tokenizer"):
            import orjson
        backend = self.tokenizer.backend_tokenizer
        definition = orjson.loads(backend.to_str())
        names = ("model", "normalizer", "pre_tokenizer", "added_tokens")
        used = {name: definition.get(name) for name in names}
        used["encode_special_tokens"] = self.tokenizer.split_special_tokens
        content = orjson.dumps(used, option=orjson.OPT_SORT_KEYS)
        digest = xxhash.xxh3_128_hexdigest(content)
        return {
            "tokenizer": f"xxh3_128:{digest}",
            "prefix": self.prefix,
            "suffix": self.suffix,
        }

    @property
    def worker_config(self) -> Json:
        """The message from which another process makes a BatchEncoder."""
        return {
            "tokenizer": self.fast.to_str(),
            "split": self.fast.encode_special_tokens,
            "backend": self.backend,
            "prefix": self.prefix,
            "suffix": self.suffix,
            "vocab_size": self.vocab_size,
            "special_token_ids": self.special_token_ids,
        }

    def warn_without_separator(self) -> None:
        """Log a warning if nothing separates documents."""
        if not self.prefix and not self.suffix:
            logger.warning(
                "nothing separates the documents, so a model cannot tell where one ends; "
                "append_eod (--append-eod) adds the EOS token after each"
            )

    def encode_batch(self, texts: Iterable[str]) -> IdsAndLengths:
        """Encode texts.

        Returns:
            ids [total] of `dtype`, the texts back to back, and lengths int64 [texts].
        """
        ids, lengths, found_tokens = self.encode_texts(list(texts), _text_number)
        self.special_token_counts.count(found_tokens, _text_number)
        return ids, lengths

    def stream(
        self,
        batches: Iterable[TextBatch],
        encode_functions: Sequence[BatchFunction] = (),
    ) -> Generator[tuple[TextBatch, EncodedBatch]]:
        """Encode batches, a few in advance; yield each with its ids, in order.

        Args:
            batches: batches of text; prefetched.
            encode_functions: read and encode a batch, one at a time each; default: `encode_text`,
                once for each core.
        """
        encode_functions = encode_functions or [self.encode_text] * num_threads()
        for batch, encoded in encode_in_order(batches, encode_functions):
            self.special_token_counts.count(encoded.found_tokens, batch.file_and_line)
            yield batch, encoded


def _text_number(index: int) -> str:
    return f"text {index + 1}"
