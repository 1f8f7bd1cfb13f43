"""Encode texts in batches, with the fastest library that gives the right token ids.

The ids are those of hf, the tokenizer itself (see `backends`), even if gigatoken encodes:

1. "auto" uses gigatoken if it gives the same ids on special tokens, odd texts, and documents of up
   to 20 files of the corpus; else hf.
2. While gigatoken runs, both encode 2 excerpts of 256 characters from every batch (about a MiB).
   The first difference ends the job with an error that names the document, so a corpus that changes
   its language halfway is covered. This is a sample: a difference outside the excerpts is not
   found. Use backend="hf" to be sure.

The special tokens that the tokenizer puts before and after every text are determined once and added
here. `tokenizer(texts)` would be a quarter slower, because it also makes masks, lists and warnings.

Each core's thread, or another process, reads, parses and encodes a batch at a time, while the
caller writes. Nothing is done document by document.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra
from nanoset_ref.preprocess.backends import LIBRARIES, Encode, Ragged, hf, threads
from nanoset_ref.preprocess.special import (
    Found,
    SpecialFinder,
    SpecialTokenCounter,
    SpecialTokens,
)
from nanoset_ref.preprocess.text_blocks import TextBatch
from nanoset_ref.preprocess.tokenizer import TokenizerError, own_copy, restored
from nanoset_ref.tokens import token_dtype_for

if TYPE_CHECKING:
    from tokenizers import Tokenizer
MAX_EXCERPTS = 2  # compared in every batch
EXCERPT_CHARS = 256
PROBE_TEXTS = (
    "",
    " ",
    "a",
    "  a  b\n\n c\t1234567 don't",
    "\u00e9 e\u0301 \ufb01 \u4f60\U0001f600\u200d\u0301\x00\r\n\xa0.",
)
PROBE_SPECIAL = ("{0}", "a{0}b", "a {0} b", " {0}\n{0}{0} ", "a\n  {0}  b", "{0} a")
Backend = Literal["auto", "hf", "gigatoken"]
Item = TypeVar("Item")
Done = TypeVar("Done")
logger = logging.getLogger(__name__)


class Encoded(NamedTuple):
    """The documents of a batch.

    Args:
        ids: integers [total], the documents back to back, with the prefix and suffix of each.
        lengths: int64 [documents], in tokens.
        found: the special tokens in the texts.
        rows: the number of each document in its block, counted from 0.
        skipped: {kind: number} of the skipped documents.
    """

    ids: NDArray[Any]
    lengths: NDArray[np.int64]
    found: Found
    rows: Sequence[int]
    skipped: dict[str, int]


Lane = Callable[[TextBatch], Encoded]


@dataclass(eq=False)
class BatchEncoder:
    """Encodes batches with one Rust tokenizer; several threads may use it.

    Args:
        fast: the tokenizer.
        backend: "hf" or "gigatoken".
        prefix, suffix: the ids before and after each document.
        dtype: dtype of the ids.
        vocab_size: every id is below it.
        special: the ids of special tokens.
    """

    fast: "Tokenizer"
    backend: str
    prefix: list[int]
    suffix: list[int]
    dtype: np.dtype[Any]
    vocab_size: int
    special: list[int]

    def __post_init__(self) -> None:
        self._hf = hf(self.fast)
        self.encode: Encode = self._hf
        if self.backend != "hf":
            self.encode = LIBRARIES[self.backend](self.fast)
        self._find = SpecialFinder(self.special)

    def encode_text(self, batch: TextBatch) -> Encoded:
        """Read and encode a batch of text."""
        texts, rows, skipped = batch.read()
        ids, lengths, found = self.encode_texts(texts, batch.where)
        return Encoded(ids, lengths, found, rows, skipped)

    def encode_texts(
        self, texts: list[str], where: Callable[[int], str]
    ) -> tuple[NDArray[Any], NDArray[np.int64], Found]:
        """Encode texts.

        1. Compare a few excerpts with the tokenizer itself.
        2. Check that ids are below `vocab_size`, and find special tokens.
        3. Add the ids before and after each document.

        Args:
            texts: texts with a UTF-8 form.
            where: returns the name of a text in errors, from its index.

        Returns:
            (ids [total] of `dtype`, back to back; lengths int64 [texts]; the special tokens found).

        Raises:
            TokenizerError: the library gives other ids than the tokenizer itself, or an id that is
                not below `vocab_size`.
        """
        # 1.
        if self.backend != "hf":
            self._check_excerpts(texts, where)
        ids, lengths = self.encode(texts)
        # 2.
        largest = ids.max(initial=0)
        if largest >= self.vocab_size:
            raise TokenizerError(
                f"token id {largest} is not below {self.vocab_size}, the size of the vocabulary"
            )
        found = self._find(ids, lengths)
        # 3.
        ids, lengths = self._with_separators(ids.astype(self.dtype), lengths)
        return ids, lengths, found

    def _check_excerpts(self, texts: list[str], where: Callable[[int], str]) -> None:
        """Raise TokenizerError if the library gives other ids for the middle of some texts."""
        number = min(MAX_EXCERPTS, len(texts))
        for index in [k * len(texts) // number for k in range(number)]:
            start = max(0, (len(texts[index]) - EXCERPT_CHARS) // 2)
            excerpt = [texts[index][start : start + EXCERPT_CHARS]]
            if not _same(self.encode(excerpt), self._hf(excerpt)):
                what = "gigatoken gives other ids than the tokenizer itself"
                raise TokenizerError(
                    f"{where(index)}: {what}; begin again with backend hf (--backend hf)"
                )

    def _with_separators(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> Ragged:
        """Add prefix and suffix to each document: 1 2 3 of lengths 2 1 -> p 1 2 s p 3 s."""
        separators = [*self.prefix, *self.suffix]
        if not separators:
            return ids, lengths
        ends = np.cumsum(lengths)
        places = [ends - lengths] * len(self.prefix) + [ends] * len(self.suffix)
        before = np.stack(places, axis=1).ravel()  # the index in ids that each separator precedes
        whole = np.insert(ids, before, np.tile(separators, len(lengths)))
        return whole, lengths + len(separators)


class Encoder(BatchEncoder):
    """Encodes texts with one tokenizer.

    Args:
        tokenizer: a tokenizer from `open_tokenizer` or `load_tokenizer`, or any fast one of
            transformers; it is not changed.
        backend: "auto", "hf" or "gigatoken".
        add_special_tokens: add the special tokens that the tokenizer puts around a text (BOS, ...).
        append_eod: add the EOS id after each document, unless the special tokens end with it.
        bos_text, eos_text: one token each, before and after each document and its special tokens.
        probe: texts of the corpus on which gigatoken must agree with hf; read only if gigatoken is
            tried.
        special_tokens: "keep", "split" or "refuse" special tokens in texts (see `special`).

    Attributes:
        vocab_size: every id is below it; len(tokenizer), or more if its ids have gaps.
        dtype: np.dtype of the ids, the one for `vocab_size`.
        eos_token_id: int or None.
        backend: the library that encodes: "hf" or "gigatoken".
        encode: the library's function, which adds no special tokens (see `backends`).
        prefix, suffix: lists of the ids before and after each document.
        found: counts the special tokens in the texts so far.

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
        fast = own_copy(tokenizer)
        vocab_size = max(fast.get_vocab_size(), max(fast.get_vocab().values()) + 1)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self._adds_special_tokens = add_special_tokens
        before, after = _special_ids(fast) if add_special_tokens else ([], [])
        prefix = self._one_id(fast, "bos_text", bos_text) + before
        suffix = after + self._one_id(fast, "eos_text", eos_text)
        if append_eod and self.eos_token_id is None:
            raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none")
        if append_eod and suffix[-1:] != [self.eos_token_id]:
            suffix.append(self.eos_token_id)
        named = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        self.found = SpecialTokenCounter(fast, named, special_tokens)
        fast.encode_special_tokens = special_tokens == "split" or tokenizer.split_special_tokens
        dtype = np.dtype(token_dtype_for(vocab_size))
        special = sorted(self.found.names)
        super().__init__(fast, "hf", prefix, suffix, dtype, vocab_size, special)
        self._choose(backend, probe)

    def _choose(self, backend: Backend, probe: Iterable[str]) -> None:
        """Use gigatoken if it is chosen and gives the right ids."""
        if backend != "hf":
            problem = self._try_gigatoken(probe)
            if problem and backend == "gigatoken":
                raise TokenizerError(f"gigatoken cannot be used: {problem}; use --backend hf")
            if problem:
                logger.info("gigatoken is not used: %s", problem)
        logger.info("tokenizing with the %s backend", self.backend)

    def _try_gigatoken(self, probe: Iterable[str]) -> str:
        """Use gigatoken if it gives the tokenizer's own ids; else return the problem."""
        texts = [*probe, *PROBE_TEXTS]
        added = self.fast.get_added_tokens_decoder().values()
        for token in islice(added, 100):
            texts += [form.format(token.content) for form in PROBE_SPECIAL]
        try:
            encode = LIBRARIES["gigatoken"](self.fast)
            same = _same(encode(texts), self._hf(texts))
        except Exception as error:  # gigatoken raises errors of its own
            return f"{type(error).__name__}: {error}"
        if not same:
            return "it gives other ids than the tokenizer itself on texts of this corpus"
        self.backend = "gigatoken"
        self.encode = encode
        return ""

    def _one_id(self, fast: "Tokenizer", name: str, text: str) -> list[int]:
        """The id of a separator, in a list; [] for no text."""
        if not text:
            return []
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
        """Everything that decides the ids of a text, as JSON.

        A hash of the tokenizer's definition (model, normalizer, pre-tokenizer, added tokens), and
        the ids before and after each document.
        """
        with extra("text", "a tokenizer"):
            import orjson
        backend = self.tokenizer.backend_tokenizer
        definition = orjson.loads(backend.to_str())
        names = ("model", "normalizer", "pre_tokenizer", "added_tokens")
        used = {name: definition.get(name) for name in names}
        used["encode_special_tokens"] = self.tokenizer.split_special_tokens
        digest = xxhash.xxh3_128_hexdigest(orjson.dumps(used, option=orjson.OPT_SORT_KEYS))
        return {"tokenizer": f"xxh3_128:{digest}", "prefix": self.prefix, "suffix": self.suffix}

    @property
    def worker_config(self) -> dict[str, Any]:
        """The message from which another process builds the same encoder (see `from_config`)."""
        return {
            "tokenizer": self.fast.to_str(),
            "split": self.fast.encode_special_tokens,
            "backend": self.backend,
            "prefix": self.prefix,
            "suffix": self.suffix,
            "dtype": self.dtype.name,
            "vocab_size": self.vocab_size,
            "special": self.special,
        }

    def warn_without_separator(self) -> None:
        """Log a warning if nothing separates documents."""
        if not self.prefix and not self.suffix:
            logger.warning(
                "nothing is put between documents, so a model cannot tell where one ends; "
                "append_eod (--append-eod) puts the EOS token after each"
            )

    def encode_batch(self, texts: Iterable[str]) -> Ragged:
        """Encode texts.

        Returns:
            ids [total] of `dtype`, the texts back to back, and lengths int64 [texts].
        """
        ids, lengths, found = self.encode_texts(list(texts), _text_number)
        self.found.note(found, _text_number)
        return ids, lengths

    def stream(
        self, batches: Iterable[TextBatch], lanes: Sequence[Lane] = ()
    ) -> Generator[tuple[TextBatch, Encoded]]:
        """Encode batches, a few in advance; yield each with its ids, in order.

        Args:
            batches: batches of text; prefetched.
            lanes: functions that read and encode a batch, one at a time each; default:
                `encode_text`, once for each core.
        """
        lanes = lanes or [self.encode_text] * threads()
        for batch, encoded in _in_order(batches, lanes):
            self.found.note(encoded.found, batch.where)
            yield batch, encoded


def _special_ids(fast: "Tokenizer") -> tuple[list[int], list[int]]:
    """The ids that a tokenizer puts before and after every text."""
    found = fast.encode("a")
    start = found.special_tokens_mask.index(0)
    stop = len(found.ids) - found.special_tokens_mask[::-1].index(0)
    return found.ids[:start], found.ids[stop:]


def from_config(tokenizer: str, split: bool, **config: Any) -> BatchEncoder:
    """The encoder of another process, from its `worker_config`."""
    config["dtype"] = np.dtype(config["dtype"])
    return BatchEncoder(restored(tokenizer, split), **config)


def _in_order(
    items: Iterable[Item], lanes: Sequence[Callable[[Item], Done]]
) -> Iterator[tuple[Item, Done]]:
    """Map items through the lanes; yield (item, result) in order. Each lane has a thread."""
    free = deque(lanes)

    def run(item: Item) -> Done:
        lane = free.popleft()
        done = lane(item)
        free.append(lane)  # unless it failed
        return done

    pending: deque[tuple[Item, Future[Done]]] = deque()
    pool = ThreadPoolExecutor(len(lanes))
    try:
        for item in items:
            pending.append((item, pool.submit(run, item)))
            if len(pending) > 2 * len(lanes):
                first, future = pending.popleft()
                yield first, future.result()
        for item, future in pending:
            yield item, future.result()
    finally:
        for _, future in pending:  # an interrupt waits only for the running batches
            future.cancel()
        pool.shutdown()  # cancel_futures fails at the end of a program with an open generator


def _text_number(index: int) -> str:
    return f"text {index + 1}"


def _same(one: Ragged, other: Ragged) -> bool:
    return all(map(np.array_equal, one, other))
