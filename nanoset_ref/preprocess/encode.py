"""Texts to token ids, in batches, with the fastest library that gives the right ids.

The ids are those of hf, the tokenizer itself (see `backends`), whether gigatoken is used or not:

1. "auto" uses gigatoken if it gives the same ids on special tokens, odd texts, and documents of up
   to 20 files of the corpus; else hf.
2. While gigatoken runs, both encode 8 excerpts of 256 characters from every batch (4 million
   characters). The first difference ends the job with an error that names the document, so a corpus
   that changes its language halfway is covered. This is a sample: a difference outside of the
   excerpts is not found. backend="hf" is the way to be sure.

The special tokens that the tokenizer puts before and after every text are worked out once and added
here: `tokenizer(texts)` is a quarter slower, for masks, lists and warnings that nobody reads.

Threads encode a few batches ahead, or other processes do, while the caller reads and writes. Long
documents are encoded in stretches (see `cut`).
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra
from nanoset_ref.preprocess.backends import Encode, Ragged, gigatoken, hf
from nanoset_ref.preprocess.cut import StretchCutter
from nanoset_ref.preprocess.special import SpecialTokenCounter, SpecialTokens, Text, Trail, restored
from nanoset_ref.preprocess.tokenizer import TokenizerError
from nanoset_ref.tokens import token_dtype_for

BATCH_CHARS = 1 << 22
BATCH_DOCUMENTS = 1 << 14
CHECKED_TEXTS = 8  # of every batch
CHECKED_CHARS = 256  # of each of them
PROBE = (
    "",
    " ",
    "a",
    "  a  b\n\n c\t1234567 don't",
    "\u00e9 e\u0301 \ufb01 \u4f60\U0001f600\u200d\u0301\x00\r\n\xa0.",
)
PROBE_SPECIAL = ("{0}", "a{0}b", "a {0} b", " {0}\n{0}{0} ", "a\n  {0}  b", "{0} a")
Backend = Literal["auto", "hf", "gigatoken"]
# (stretch of a document, whether it is the last of the document, number of the document)
Batch = list[tuple[str, bool, int]]
logger = logging.getLogger(__name__)


class Encoder:
    """Encodes texts with one tokenizer.

    Args:
        tokenizer: from `load_tokenizer`, or any fast tokenizer of transformers.
        backend: "auto", "hf" or "gigatoken".
        add_special_tokens: add the special tokens that the tokenizer puts around a text (BOS, ...).
        append_eod: add the EOS id after each document, unless the special tokens end with it.
        bos_text, eos_text: one token each, before and after each document and its special tokens.
        probe: texts of the corpus on which gigatoken must agree with hf; read only if it is tried.
        special_tokens: "keep", "split" or "refuse" special tokens in texts (see `special`).

    Attributes:
        vocab_size: every id is below it; len(tokenizer), or more if its ids have gaps.
        dtype: np.dtype of the ids, the one for `vocab_size`.
        eos_token_id: int or None.
        backend: the library that encodes: "hf" or "gigatoken".
        encode: its function, which adds no special tokens (see `backends`).
        prefix: list of the ids before each document.
        suffix: list of the ids after each document.
        found: a SpecialTokenCounter of the texts so far.

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
        probe: Iterable[str] = (),
        special_tokens: SpecialTokens = "keep",
    ) -> None:
        if backend not in get_args(Backend):
            raise ValueError(f"backend must be one of {get_args(Backend)}, got {backend!r}")
        if not tokenizer.is_fast:
            what = "has no fast form; save one with a tokenizer.json"
            raise TokenizerError(f"{tokenizer.name_or_path} {what}")
        self.tokenizer = tokenizer
        self.vocab_size = max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
        self.dtype = token_dtype_for(self.vocab_size)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self._adds_special_tokens = add_special_tokens
        tokenizer("", add_special_tokens=False)  # resets truncation and padding
        before, after = self._special_ids() if add_special_tokens else ([], [])
        self.prefix = self._one_id("bos_text", bos_text) + before
        self.suffix = after + self._one_id("eos_text", eos_text)
        if append_eod and self.eos_token_id is None:
            raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none")
        if append_eod and self.suffix[-1:] != [self.eos_token_id]:
            self.suffix.append(self.eos_token_id)
        self.found = SpecialTokenCounter(tokenizer, self.vocab_size, special_tokens)
        split = special_tokens == "split" or tokenizer.split_special_tokens
        # a copy: truncation that the caller sets for a prompt must not cut documents short
        self._fast = restored(tokenizer.backend_tokenizer.to_str(), split)
        self._cut = StretchCutter(self._fast)
        self._hf = hf(self._fast)
        self._choose(backend, probe)

    def _choose(self, backend: Backend, probe: Iterable[str]) -> None:
        """Set `backend` and `encode`."""
        self.backend = "hf"
        self.encode = self._hf
        if backend != "hf":
            problem = self._try_gigatoken(probe)
            if problem and backend == "gigatoken":
                raise TokenizerError(f"gigatoken cannot be used: {problem}; use --backend hf")
            if problem:
                logger.info("gigatoken is not used: %s", problem)
        logger.info("tokenizing with the %s backend", self.backend)

    def _try_gigatoken(self, probe: Iterable[str]) -> str:
        """Encode with gigatoken if it gives the tokenizer's own ids; else return the problem."""
        texts = [*probe, *PROBE]
        for token in list(self.tokenizer.get_added_vocab())[:100]:
            texts += [form.format(token) for form in PROBE_SPECIAL]
        try:
            encode = gigatoken(self._fast)
            same = _same(encode(texts), self._hf(texts))
        except Exception as error:  # its errors are its own
            return f"{type(error).__name__}: {error}"
        if not same:
            return "it gives other ids than the tokenizer itself on texts of this corpus"
        self.backend = "gigatoken"
        self.encode = encode
        return ""

    def _special_ids(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer puts before and after every text."""
        found = self.tokenizer.backend_tokenizer.encode("a")
        start = found.special_tokens_mask.index(0)
        stop = len(found.ids) - found.special_tokens_mask[::-1].index(0)
        return found.ids[:start], found.ids[stop:]

    def _one_id(self, name: str, text: str) -> list[int]:
        """[the id of a separator], or [] for no text."""
        if not text:
            return []
        fast = self.tokenizer.backend_tokenizer
        ids: list[int] = fast.encode(text, add_special_tokens=False).ids
        if len(ids) > 1:
            known = ", ".join(map(repr, self.tokenizer.all_special_tokens)) or "it has none"
            raise TokenizerError(
                f"{name} {text!r} is {len(ids)} tokens of this tokenizer and would not be seen as "
                f"one; take one of its special tokens: {known}"
            )
        return ids

    @property
    def facts(self) -> dict[str, Any]:
        """The arguments of a `TokenFileWriter` that describe the ids."""
        return {
            "dtype": self.dtype,
            "vocab_size": self.vocab_size,
            "eos_token_id": self.eos_token_id,
            "appended_eod": self.suffix[-1:] == [self.eos_token_id],
            "added_special_tokens": self._adds_special_tokens,
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the ids of a text, as JSON: a hash of the tokenizer's definition
        (model, normalizer, pre-tokenizer, added tokens), and the ids before and after each
        document.
        """
        with extra("text", "a tokenizer"):
            import orjson
        backend = self.tokenizer.backend_tokenizer
        definition = orjson.loads(backend.to_str())
        names = ("model", "normalizer", "pre_tokenizer", "added_tokens")
        used = {name: definition.get(name) for name in names}
        used["encode_special_tokens"] = getattr(backend, "encode_special_tokens", False)
        digest = xxhash.xxh3_128_hexdigest(orjson.dumps(used, option=orjson.OPT_SORT_KEYS))
        return {"tokenizer": f"xxh3_128:{digest}", "prefix": self.prefix, "suffix": self.suffix}

    @property
    def worker_config(self) -> dict[str, Any]:
        """The message that lets a worker process build the same encoder."""
        split = self._fast.encode_special_tokens
        return {"backend": self.backend, "tokenizer": self._fast.to_str(), "split": split}

    def warn_without_separator(self) -> None:
        """Log a warning if documents will lie back to back with nothing between them."""
        if not self.prefix and not self.suffix:
            logger.warning(
                "nothing is put between documents, so a model cannot tell where one ends; "
                "append_eod (--append-eod) puts the EOS token after each"
            )

    def encode_batch(self, texts: Iterable[str]) -> Ragged:
        """Encode `texts` at once: (ids [total] of `dtype`, back to back; lengths int64 [texts])."""
        no_ids = np.empty(0, self.dtype)
        no_lengths = np.empty(0, np.int64)
        ids, lengths = zip((no_ids, no_lengths), *self.stream(texts), strict=True)
        return np.concatenate(ids), np.concatenate(lengths)

    def stream(
        self,
        texts: Iterable[Text],
        encoders: Sequence[Encode] = (),
        advance: Callable[[int], None] = lambda characters: None,
    ) -> Generator[Ragged]:
        """Encode batch after batch, a few ahead; yield (ids, lengths) of whole documents in order.

        1. Gather stretches of documents into batches; threads encode them.
        2. Meanwhile, join the stretches of the documents that end in earlier batches.
        3. Look for special tokens in these documents, and add the ids before and after each.

        Args:
            texts: texts with a UTF-8 form, or documents, which errors name; prefetched.
            encoders: encode one batch at a time each; default: this encoder's `encode`, twice.
            advance: called with the characters of every finished batch, also inside a document.
        """
        unfinished: list[NDArray[Any]] = []
        trail = Trail()
        num_documents = 0  # of earlier batches

        def where(index: int) -> str:
            return trail.where(num_documents + index)

        # 1.
        for batch, ragged in self._encoded(texts, encoders or [self.encode] * 2, trail):
            # 2.
            ids, lengths = _complete_documents(batch, ragged, unfinished)
            if lengths.size:
                trail.forget(num_documents)
                # 3.
                self._check_ids(ids)
                self.found.look(ids, lengths, where)
                num_documents += len(lengths)
                yield self._with_separators(ids, lengths)
            advance(sum(len(stretch) for stretch, *_ in batch))

    def _encoded(
        self, texts: Iterable[Text], encoders: Sequence[Encode], trail: Trail
    ) -> Iterator[tuple[Batch, Ragged]]:
        """Batches with their ids, in order; a thread for each encoder."""
        free = deque(encoders)

        def encode(batch: Batch) -> Ragged:
            encoder = free.popleft()
            ragged = encoder([stretch for stretch, *_ in batch])
            self._check(batch, trail)
            free.append(encoder)  # unless it failed
            return ragged

        coming: deque[tuple[Batch, Future[Ragged]]] = deque()
        pool = ThreadPoolExecutor(len(encoders))
        try:
            for batch in self._batches(texts, trail):
                coming.append((batch, pool.submit(encode, batch)))
                if len(coming) > 2 * len(encoders):
                    done, future = coming.popleft()
                    yield done, future.result()
            for batch, future in coming:
                yield batch, future.result()
        finally:
            for _, future in coming:  # an interrupt waits only for the batches that run
                future.cancel()
            pool.shutdown()  # cancel_futures fails at the end of a program with an open generator

    def _batches(self, texts: Iterable[Text], trail: Trail) -> Iterator[Batch]:
        """Stretches of documents, up to BATCH_CHARS characters or BATCH_DOCUMENTS stretches."""
        batch: Batch = []
        size = 0
        for number, document in enumerate(texts):
            for stretch, last in self._cut(trail.text(document)):
                batch.append((stretch, last, number))
                size += len(stretch)
                if size >= BATCH_CHARS or len(batch) >= BATCH_DOCUMENTS:
                    yield batch
                    batch = []
                    size = 0
        if batch:
            yield batch

    def _check(self, batch: Batch, trail: Trail) -> None:
        """Raise TokenizerError if gigatoken and the tokenizer itself differ on excerpts of a batch:
        the middles of CHECKED_TEXTS evenly spaced texts.
        """
        if self.backend == "hf":
            return
        number = min(CHECKED_TEXTS, len(batch))
        chosen = [batch[k * len(batch) // number] for k in range(number)]
        excerpts = [_middle(text) for text, *_ in chosen]
        if _same(self.encode(excerpts), self._hf(excerpts)):
            return
        _, _, wrong = chosen[0]
        for (_, _, document), excerpt in zip(chosen, excerpts, strict=True):
            if not _same(self.encode([excerpt]), self._hf([excerpt])):
                wrong = document
                break
        what = "gigatoken gives other ids than the tokenizer itself"
        raise TokenizerError(
            f"{trail.where(wrong)}: {what}; begin again with backend hf (--backend hf)"
        )

    def _check_ids(self, ids: NDArray[Any]) -> None:
        largest = ids.max(initial=0)
        if largest >= self.vocab_size:
            raise TokenizerError(
                f"token id {largest} is not below {self.vocab_size}, the size of the vocabulary"
            )

    def _with_separators(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> Ragged:
        """Add prefix and suffix to each document: 1 2 3 of lengths 2 1 -> p 1 2 s p 3 s."""
        ids = ids.astype(self.dtype)
        around = self.prefix + self.suffix
        if not around:
            return ids, lengths
        ends = np.cumsum(lengths)
        starts = ends - lengths
        places = np.stack([starts] * len(self.prefix) + [ends] * len(self.suffix), axis=1)
        ids = np.insert(ids, places.ravel(), np.tile(around, len(ends)))
        return ids, lengths + len(around)


def _complete_documents(batch: Batch, ragged: Ragged, unfinished: list[NDArray[Any]]) -> Ragged:
    """Join the stretches of a batch into the documents that end in it.

    After 4 unfinished ids, a batch of stretches of 2, 1 and 3 ids, the first two of which end a
    document, completes documents of 6 and 1 ids and leaves 3 ids unfinished.

    Args:
        batch: the stretches.
        ragged: (ids of these stretches, back to back; lengths int64 [stretches]).
        unfinished: the ids so far of a document that continues in the next batch; updated.

    Returns:
        (ids, back to back; lengths int64 [documents]); empty if no document ends here.
    """
    ids, lengths = ragged
    is_last = [last for _, last, _ in batch]
    ends = np.cumsum(lengths)[is_last]
    if not ends.size:
        unfinished.append(ids)
        return ids[:0], ends
    num_earlier = sum(map(len, unfinished))
    complete = np.concatenate([*unfinished, ids[: ends[-1]]])
    unfinished[:] = [ids[ends[-1] :]]
    return complete, np.diff(ends, prepend=-num_earlier)


def _middle(text: str) -> str:
    """At most CHECKED_CHARS characters out of the middle of a text."""
    start = max(0, (len(text) - CHECKED_CHARS) // 2)
    return text[start : start + CHECKED_CHARS]


def _same(one: Ragged, other: Ragged) -> bool:
    return all(map(np.array_equal, one, other))
