"""Texts to token ids, in batches, with the fastest library that gives the right ids.

The backend "auto" takes gigatoken if it gives the same ids as hf (see `backends`) on texts of the very corpus and on
every special token, else hf. Special tokens are worked out once, as what the tokenizer puts before and after every
text, and set there by us: `tokenizer(texts)` builds masks, lists and warnings nobody reads and is a quarter slower.

Threads, or other processes, encode a few batches ahead while the caller reads and writes. Long documents are encoded
in stretches (see `cutting`).
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.tokenise.backends import Fast, Gigatoken, Ragged, Slow, threads
from nanoset_ref.tokenise.cutting import StretchCutter
from nanoset_ref.tokenise.processes import Workers
from nanoset_ref.tokens import token_dtype_for

BATCH_CHARS = 1 << 22
BATCH_DOCUMENTS = 1 << 14
LONG_CHARS = 1 << 16
AHEAD = 2
Backend = Literal["auto", "hf", "gigatoken"]
Batch = tuple[list[str], list[bool]]  # documents or stretches; for each, whether its document ends with it
logger = logging.getLogger(__name__)


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded or cannot do what was asked of it."""


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> Any:
    """`AutoTokenizer.from_pretrained`, with one clear TokenizerError for everything that can go wrong in it."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(os.fspath(name_or_path))
    except Exception as error:  # transformers, the Hub and the network each raise their own
        reason = " ".join(str(error).split())
        if Path(name_or_path, "tokenizer.model").exists() and find_spec("sentencepiece") is None:
            reason = "to read its tokenizer.model: pip install sentencepiece"
        raise TokenizerError(
            f"{name_or_path}: no tokenizer to load; give a folder with a tokenizer.json or a name on the Hub ({reason})"
        ) from error


class Encoder:
    """Encodes texts with one tokenizer.

    Args:
        tokenizer: from `load_tokenizer`, or any transformers tokenizer.
        backend: "auto", "hf" or "gigatoken".
        add_special_tokens: add what the tokenizer itself puts around a text (such as BOS).
        append_eod: add the EOS id after each document, unless the special tokens already end with it.
        bos_text, eos_text: put before and after each document, outside of its special tokens; one token each.
        probe: texts of the corpus on which gigatoken must agree with hf.

    Attributes:
        vocab_size: every id is below it; len(tokenizer), or more if its ids have gaps.
        dtype: np.dtype of the ids, the one for `vocab_size`.
        eos_token_id: int or None.
        prefix, suffix: lists of ids set before and after each document.

    Raises:
        TokenizerError: no EOS token to append; a bos_text or eos_text that is not one token; gigatoken missing, unable
            or wrong where it was asked for.
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
        probe: Sequence[str] = (),
    ) -> None:
        if backend not in get_args(Backend):
            raise ValueError(f"backend must be one of {get_args(Backend)}, got {backend!r}")
        self.tokenizer = tokenizer
        self.vocab_size = max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
        self.dtype = token_dtype_for(self.vocab_size)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self._ids("", add_special_tokens=False)  # lets the tokenizer forget truncation and padding
        before, after = self._special_ids() if add_special_tokens else ([], [])
        self.prefix = self._one_id("bos_text", bos_text) + before
        self.suffix = after + self._one_id("eos_text", eos_text)
        if append_eod:
            self._append_eod()
        self.library = Fast(tokenizer.backend_tokenizer) if tokenizer.is_fast else Slow(tokenizer)
        if backend != "hf":
            self._try_gigatoken(probe, required=backend == "gigatoken")
        logger.info("tokenizing with the %s backend", self.backend)

    @property
    def backend(self) -> str:
        """What runs: "hf", "gigatoken" or "slow"."""
        return self.library.name

    def encode_batch(self, texts: Iterable[str]) -> Ragged:
        """All of `texts` at once: (ids [total] of `dtype`, back to back; lengths int64 [number of texts])."""
        nothing = np.empty(0, self.dtype), np.empty(0, np.int64)
        ids, lengths = zip(nothing, *self.stream(texts), strict=True)
        return np.concatenate(ids), np.concatenate(lengths)

    def stream(
        self,
        texts: Iterable[str],
        *,
        workers: Workers | None = None,
        advance: Callable[[int, int], None] = lambda characters, tokens: None,
    ) -> Iterator[Ragged]:
        """Encode batch after batch, a few ahead; yields (ids, lengths) of whole documents in order.

        1. Gather stretches of documents until a batch is full, and hand it to an encoding thread.
        2. While that works, put the stretches of the documents of earlier batches together.
        3. Set the special tokens.

        Args:
            texts: any number of texts with a UTF-8 form; read a few batches ahead.
            workers: processes that encode with this encoder's library; None: this one.
            advance: called with the characters and ids of every batch that is done, inside a long document too.
        """
        begun: list[NDArray[Any]] = []  # the ids so far of a document that goes on in the next batch
        for (stretches, is_last), (ids, lengths) in self._encoded(texts, workers):
            ends = np.cumsum(lengths)[np.array(is_last)]
            if ends.size:
                before = sum(map(len, begun))
                whole = np.concatenate([*begun, ids[: ends[-1]]])
                yield self._finished(whole, np.diff(ends, prepend=-before))
                begun, ids = [], ids[ends[-1] :]
            begun.append(ids)
            advance(sum(map(len, stretches)), int(lengths.sum()))

    def _encoded(self, texts: Iterable[str], workers: Workers | None) -> Iterator[tuple[Batch, Ragged]]:
        """Batches with their ids, in order; without threads where there is one core, or Python, and they take turns."""
        encode, ahead, batch_chars = self.library.encode, AHEAD, BATCH_CHARS
        if workers:
            encode, ahead, batch_chars = workers.encode, workers.count, BATCH_CHARS // 4
        elif threads() == 1 or self.backend == Slow.name:
            yield from ((batch, encode(batch[0])) for batch in self._batches(texts, batch_chars))
            return
        pool = ThreadPoolExecutor(ahead, "encode")
        coming: deque[tuple[Batch, Future[Ragged]]] = deque()
        try:
            for batch in self._batches(texts, batch_chars):
                coming.append((batch, pool.submit(encode, batch[0])))
                if len(coming) > ahead:
                    batch, future = coming.popleft()
                    yield batch, future.result()
            yield from ((batch, future.result()) for batch, future in coming)
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt waits for the batches under way only

    @cached_property
    def _cutter(self) -> StretchCutter:
        return StretchCutter(self.tokenizer.backend_tokenizer)

    def _batches(self, texts: Iterable[str], batch_chars: int) -> Iterator[Batch]:
        stretches: list[str] = []
        is_last: list[bool] = []
        size = 0
        for text in texts:
            is_long = len(text) >= LONG_CHARS and self.tokenizer.is_fast
            for stretch, last in self._cutter(text) if is_long else ((text, True),):
                stretches.append(stretch)
                is_last.append(last)
                size += len(stretch)
                if size >= batch_chars or len(stretches) >= BATCH_DOCUMENTS:
                    yield stretches, is_last
                    stretches, is_last, size = [], [], 0
        if stretches:
            yield stretches, is_last

    def _finished(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> Ragged:
        """Check the ids, set prefix and suffix."""
        if ids.size and ids.max() >= self.vocab_size:
            raise TokenizerError(f"token id {ids.max()} is not below {self.vocab_size}, the size of the vocabulary")
        ids = ids.astype(self.dtype)
        if self.prefix or self.suffix:
            ends = np.cumsum(lengths)
            places = np.stack([ends - lengths] * len(self.prefix) + [ends] * len(self.suffix), axis=1)
            ids = np.insert(ids, places.ravel(), np.tile(self.prefix + self.suffix, len(ends)))
            lengths = lengths + places.shape[1]
        return ids, lengths

    def _special_ids(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after every text."""
        plain, full = (self._ids("a", add_special_tokens=special) for special in (False, True))
        for begin in range(len(full)):
            if full[begin : begin + len(plain)] == plain:
                return full[:begin], full[begin + len(plain) :]
        raise TokenizerError("the special tokens of this tokenizer are not a fixed prefix and suffix of every text")

    def _one_id(self, name: str, text: str) -> list[int]:
        """The id of a separator; none for no text."""
        ids = self._ids(text, add_special_tokens=False) if text else []
        if len(ids) > 1:
            raise TokenizerError(
                f"{name} {text!r} is {len(ids)} tokens of this tokenizer and would not be seen as one; take one of its "
                f"special tokens: {', '.join(map(repr, self.tokenizer.all_special_tokens)) or 'it has none'}"
            )
        return ids

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])

    def _append_eod(self) -> None:
        if self.eos_token_id is None:
            raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none")
        if self.suffix[-1:] == [self.eos_token_id]:
            logger.info("the tokenizer's special tokens end with EOS already: append_eod adds none")
        else:
            self.suffix.append(self.eos_token_id)

    def _try_gigatoken(self, probe: Sequence[str], *, required: bool) -> None:
        """Take gigatoken if it is there, loads the tokenizer and gives the ids that the present library gives."""
        specials = list(self.tokenizer.get_added_vocab())[:100]
        probe = [*probe, *PROBE, *(form.format(token) for token in specials for form in PROBE_SPECIAL)]
        try:
            found = Gigatoken(self.tokenizer.backend_tokenizer if self.tokenizer.is_fast else self.tokenizer)
            same = all(map(np.array_equal, found.encode(probe), self.library.encode(probe)))
            reason = "" if same else "it gives other ids than the tokenizer itself on texts of this corpus"
        except ImportError:
            reason = "it is not installed (pip install gigatoken)"
        except Exception as error:  # its errors are its own
            reason = " ".join(f"it cannot load this tokenizer: {error}".split())
        if not reason:
            self.library = found
        elif required:
            raise TokenizerError(f"the gigatoken backend cannot be used: {reason}; use --backend hf")
        else:
            logger.info("gigatoken is not used: %s", reason)


PROBE = ("", " ", "a", "  a  b\n\n c\t1234567 don't", "\u00e9 e\u0301 \ufb01 \u4f60\U0001f600\u200d\u0301\x00\r\n\xa0.")
PROBE_SPECIAL = ("{0}", "a{0}b", "a {0} b", " {0}\n{0}{0} ", "a\n  {0}  b", "{0} a")
