"""Texts to token ids, in batches, with the fastest library that gives the right ids.

The backend "auto" takes gigatoken if it gives the same ids as hf (see `backends`) on texts of the very corpus and on
every special token, else hf. A special token written out in a text becomes its id with either, as transformers does by
default.

Encoding runs in a second thread, one batch ahead: the libraries release the interpreter lock, so reading, parsing,
turning ids into arrays and writing cost next to nothing in time. Long documents are encoded in pieces (see `pieces`).
Special tokens are worked out once as what the tokenizer puts before and after every text, and set there by us. The
alternative, `tokenizer(texts)`, builds masks, lists and warnings nobody reads and is a quarter slower.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.tokenise.backends import Fast, Gigatoken, Ragged, Slow, threads
from nanoset_ref.tokenise.pieces import SafeCutter
from nanoset_ref.tokens import token_dtype_for

BATCH_CHARS = 1 << 22
BATCH_DOCUMENTS = 1 << 14
AHEAD = 2
Backend = Literal["auto", "hf", "gigatoken"]
logger = logging.getLogger(__name__)


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded or cannot do what was asked of it."""


class EncodeError(ValueError):
    """One text has no valid ids. `index` counts the texts given, from 0; `kind` is short, for a tally."""

    def __init__(self, index: int, kind: str, what: str) -> None:
        super().__init__(what)
        self.index, self.kind = index, kind


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> Any:
    """`AutoTokenizer.from_pretrained`, with one clear TokenizerError for everything that can go wrong in it."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(os.fspath(name_or_path))
    except Exception as error:  # transformers, the Hub and the network each raise their own
        reason = " ".join(str(error).split())
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
        dtype: of the ids, by default the one for `len(tokenizer)`.
        probe: texts of the corpus on which gigatoken must agree with hf.

    Attributes:
        tokenizer: as given; None in a worker process that the Encoder was sent to.
        dtype: np.dtype of the ids. vocab_size: every id is below it; len(tokenizer), or more if its ids have gaps.
        eos_token_id: int or None.
        prefix, suffix: lists of ids set before and after each document.

    Raises:
        TokenizerError: no EOS token to append, gigatoken missing, unable or wrong where it was asked for.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        backend: Backend = "auto",
        add_special_tokens: bool = False,
        append_eod: bool = False,
        dtype: DTypeLike | None = None,
        probe: Sequence[str] = (),
    ) -> None:
        if backend not in get_args(Backend):
            raise ValueError(f"backend must be one of {get_args(Backend)}, got {backend!r}")
        self.tokenizer = tokenizer
        self.vocab_size = max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
        self.dtype = token_dtype_for(self.vocab_size) if dtype is None else np.dtype(dtype)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.prefix, self.suffix = self._special_ids() if add_special_tokens else ([], [])
        if append_eod:
            if self.eos_token_id is None:
                raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none")
            if self.suffix[-1:] == [self.eos_token_id]:
                logger.info("the tokenizer's special tokens end with EOS already: append_eod adds none")
            else:
                self.suffix.append(self.eos_token_id)
        fast = tokenizer.backend_tokenizer if tokenizer.is_fast else None
        self._library: Fast | Slow | Gigatoken = Fast(fast, tokenizer) if fast else Slow(tokenizer)
        self._cutter = SafeCutter(fast) if fast else None
        if backend != "hf":
            self._try_gigatoken(probe, required=backend == "gigatoken")
        logger.info("tokenizing with the %s backend", self.backend)

    @property
    def backend(self) -> str:
        """What runs: "hf", "gigatoken" or "slow"."""
        return self._library.name

    def __getstate__(self) -> dict[str, Any]:
        """For worker processes: they need the Rust tokenizer, and without transformers they start in no time."""
        return self.__dict__ | {"tokenizer": None}

    def encode_batch(self, texts: Iterable[str]) -> Ragged:
        """All of `texts` at once: (ids [total] of `dtype`, back to back; lengths int64 [number of texts]).

        Raises:
            EncodeError: a text with a lone surrogate, or an id that `dtype` cannot hold.
        """
        chunks = list(self.stream(texts))
        if not chunks:
            return np.empty(0, self.dtype), np.empty(0, np.int64)
        return np.concatenate([ids for ids, _ in chunks]), np.concatenate([lengths for _, lengths in chunks])

    def stream(
        self,
        texts: Iterable[str],
        *,
        on_error: Literal["raise", "skip"] = "raise",
        advance: Callable[[int, int], None] = lambda characters, tokens: None,
    ) -> Iterator[Ragged]:
        """Encode batch after batch, two ahead; yields (ids, lengths) of whole documents in order.

        1. Gather pieces of documents until a batch is full, and hand it to an encoding thread.
        2. While that works, turn the ids of the batch before into arrays, and put the pieces of documents together.
        3. Check the ids against the dtype, set the special tokens.

        Args:
            texts: any number of texts; read about two batches ahead.
            on_error: "raise", or "skip": a document with an id that `dtype` cannot hold gets length -1 and no ids.
            advance: called with the characters and ids of every batch that is done, inside a long document too.
        """
        first = 0  # number of documents yielded
        rest: list[NDArray[Any]] = []  # the ids so far of a document that goes on in the next batch
        for pieces, last, (ids, lengths) in self._encoded(texts):
            ends = np.cumsum(lengths)[np.array(last)]
            done = int(ends[-1]) if ends.size else 0
            if ends.size:
                lengths = np.diff(ends, prepend=-sum(map(len, rest)))
                yield self._finished(np.concatenate([*rest, ids[:done]]), lengths, first, on_error)
                first += len(lengths)
                rest = []
            rest.append(ids[done:])
            advance(sum(map(len, pieces)), len(ids))

    def _encoded(self, texts: Iterable[str]) -> Iterator[tuple[list[str], list[bool], Ragged]]:
        """Batches with their ids: two ahead; as they come where there is one core, or Python, and threads take turns.

        With two batches at work no core waits for the last text of one. What the library returns is large and goes as
        soon as the ids are out of it.
        """
        library = self._library
        if threads() == 1 or library.name == Slow.name:
            for pieces, last in self._batches(texts):
                yield pieces, last, library.arrays(library.encode(pieces))
            return
        with ThreadPoolExecutor(AHEAD, "encode") as pool:
            ahead: deque[tuple[list[str], list[bool], Future[Any]]] = deque()

            def finish() -> tuple[list[str], list[bool], Ragged]:
                pieces, last, future = ahead.popleft()
                return pieces, last, library.arrays(future.result())

            for pieces, last in self._batches(texts):
                ahead.append((pieces, last, pool.submit(library.encode, pieces)))
                if len(ahead) > AHEAD:
                    yield finish()
            while ahead:
                yield finish()

    def _batches(self, texts: Iterable[str]) -> Iterator[tuple[list[str], list[bool]]]:
        """Lists of pieces, and for each piece whether it ends its document."""
        pieces: list[str] = []
        last: list[bool] = []
        size, cutter = 0, self._cutter
        for index, text in enumerate(texts):
            try:
                text.isascii() or text.encode()
            except UnicodeEncodeError as error:
                what = f"lone surrogate {text[error.start]!r} at character {error.start}"
                raise EncodeError(index, "lone surrogate", what) from None
            for piece, ends in cutter(text) if cutter and len(text) >= cutter.shortest else ((text, True),):
                pieces.append(piece)
                last.append(ends)
                size += len(piece)
                if size >= BATCH_CHARS or len(pieces) >= BATCH_DOCUMENTS:
                    yield pieces, last
                    pieces, last, size = [], [], 0
        if pieces:
            yield pieces, last

    def _finished(self, ids: NDArray[Any], lengths: NDArray[np.int64], first: int, on_error: str) -> Ragged:
        """Check the dtype, set prefix and suffix."""
        limit = np.iinfo(self.dtype).max
        if self.vocab_size > limit + 1 and ids.size and ids.max() > limit:
            document = np.repeat(np.arange(len(lengths)), lengths)
            bad = np.unique(document[ids > limit])
            if on_error == "raise":
                highest = ids[document == bad[0]].max()
                what = f"token id {highest} does not fit {self.dtype.name}, whose largest is {limit}"
                raise EncodeError(first + int(bad[0]), "id too large", what)
            ids = ids[~np.isin(document, bad)]
            lengths[bad] = -1
        ids = ids.astype(self.dtype)
        if self.prefix or self.suffix:
            kept = lengths >= 0
            ends = np.cumsum(lengths[kept])
            begins = ends - lengths[kept]
            places = np.stack([begins] * len(self.prefix) + [ends] * len(self.suffix), axis=1)
            ids = np.insert(ids, places.ravel(), np.tile(self.prefix + self.suffix, len(ends)))
            lengths[kept] += places.shape[1]
        return ids, lengths

    def _special_ids(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after every text."""
        found = []
        for text in ("a", "b c"):
            plain, full = (
                list(self.tokenizer(text, add_special_tokens=special)["input_ids"]) for special in (False, True)
            )
            places = [k for k in range(len(full)) if full[k : k + len(plain)] == plain]
            found.append((full[: places[0]], full[places[0] + len(plain) :]) if places else None)
        if found[0] is None or found[0] != found[1]:
            raise TokenizerError("the special tokens of this tokenizer are not a fixed prefix and suffix of every text")
        return found[0]

    def _try_gigatoken(self, probe: Sequence[str], *, required: bool) -> None:
        """Take gigatoken if it is there, loads the tokenizer and gives the ids that the present backend gives."""
        specials = list(self.tokenizer.get_added_vocab())[:100]
        probe = [*probe, *PROBE, *(form.format(token) for token in specials for form in PROBE_SPECIAL)]
        try:
            fast = self.tokenizer.backend_tokenizer if self.tokenizer.is_fast else self.tokenizer
            found = Gigatoken(fast)
            results = [library.arrays(library.encode(probe)) for library in (found, self._library)]
            same = all(map(np.array_equal, *results))
            reason = "" if same else "it gives other ids than the tokenizer itself on texts of this corpus"
        except ImportError:
            reason = "it is not installed (pip install gigatoken)"
        except Exception as error:  # its errors are its own
            reason = " ".join(f"it cannot load this tokenizer: {error}".split())
        if not reason:
            self._library = found
        elif required:
            raise TokenizerError(f"the gigatoken backend cannot be used: {reason}; use --backend hf")
        else:
            logger.info("gigatoken is not used: %s", reason)


PROBE = ("", " ", "a", "  a  b\n\n c\t1234567 don't", "\u00e9 e\u0301 \ufb01 \u4f60\U0001f600\u200d\u0301\x00\r\n\xa0.")
PROBE_SPECIAL = ("{0}", "a{0}b", "a {0} b", " {0}\n{0}{0} ", "a\n  {0}  b", "{0} a")
