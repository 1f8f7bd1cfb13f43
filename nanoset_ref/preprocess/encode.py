"""Texts to token ids, in batches, with the fastest library that gives the right ids.

The ids are those of hf, the tokenizer itself (see `backends`), whether gigatoken is installed or not:

1. "auto" takes gigatoken if it gives the same ids on special tokens, odd texts, and documents of up
   to 20 files of the corpus, else hf.
2. As long as gigatoken runs, 8 pieces of 256 characters of every batch (4 million characters) are
   encoded by both. The first that differs ends the job with an error that names the document. So a
   corpus that changes its language in the middle is looked at, too. What this guarantees is a
   sample: a difference that no piece touches is not found. backend="hf" is the way to be sure.

What the tokenizer puts before and after every text is worked out once and set there by us:
`tokenizer(texts)` builds masks, lists and warnings nobody reads and is a quarter slower.

Threads encode a few batches ahead, or let other processes do it, while the caller reads and writes. Long documents are
encoded in stretches (see `cutting`).
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.extras import extra
from nanoset_ref.preprocess.backends import Encode, Ragged, gigatoken, hf
from nanoset_ref.preprocess.cut import StretchCutter
from nanoset_ref.preprocess.special import SpecialTokenCounter, SpecialTokens, Text, Trail, restored
from nanoset_ref.preprocess.text import hub_problem
from nanoset_ref.tokens import token_dtype_for

BATCH_CHARS = 1 << 22
BATCH_DOCUMENTS = 1 << 14
PROBE = (
    "",
    " ",
    "a",
    "  a  b\n\n c\t1234567 don't",
    "\u00e9 e\u0301 \ufb01 \u4f60\U0001f600\u200d\u0301\x00\r\n\xa0.",
)
PROBE_SPECIAL = ("{0}", "a{0}b", "a {0} b", " {0}\n{0}{0} ", "a\n  {0}  b", "{0} a")
Backend = Literal["auto", "hf", "gigatoken"]
CHECKED_PIECES, CHECKED_CHARS = 8, 256  # of every batch
# documents or stretches of them; for each, whether its document ends with it, and the document's number
Batch = list[tuple[str, bool, int]]
SPACE = "\u2581"  # how SentencePiece writes a space
logger = logging.getLogger(__name__)


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded or cannot do what was asked of it."""


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> Any:
    """`AutoTokenizer.from_pretrained`, with one clear TokenizerError for everything that can go wrong in it.

    A folder with a SentencePiece model (tokenizer.model) and nothing else gives the ids of SentencePiece itself. A file
    stands for the folder it lies in.
    """
    with extra("text", "a tokenizer"):
        from transformers import AutoTokenizer

    if (folder := Path(name_or_path)).is_file():
        name_or_path = folder = folder.parent
    model = folder / "tokenizer.model"
    problem = "" if folder.is_dir() else hub_problem()
    try:
        rules = (
            normalizer_of(model) if model.is_file() and not list(folder.glob("*.json")) else None
        )
        tokenizer = AutoTokenizer.from_pretrained(
            os.fspath(name_or_path), local_files_only=bool(problem)
        )
    except Exception as error:  # transformers, the Hub and the network each raise their own
        reason = problem or " ".join(str(error).split())
        raise TokenizerError(
            f"{name_or_path}: no tokenizer to load; give a folder with a tokenizer.json or a name on the Hub ({reason})"
        ) from error
    if rules:
        tokenizer.backend_tokenizer.normalizer = rules
    return tokenizer


def normalizer_of(model: Path) -> Any:
    """A SentencePiece model's own rules for spaces, which a tokenizer made of it needs.

    transformers has no file that says them, and leaves out the space before a document and the joining of spaces. Two
    differences stay: where two ways to cut a text score nearly the same in a Unigram model, the libraries may choose
    differently; and a literal <unk>, <s> or </s> in a text becomes that one token, as with all of transformers.

    Source: `NormalizerSpec` in SentencePiece's sentencepiece_model.proto.
    """
    with extra("sentencepiece", "reading a tokenizer.model"):
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
    with extra("text", "encoding text"):
        from tokenizers import Regex, normalizers

    rules = ModelProto.FromString(model.read_bytes()).normalizer_spec
    steps: list[Any] = []
    if rules.precompiled_charsmap:
        steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
    if rules.remove_extra_whitespaces:
        ends = normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), "")
        steps += [ends, normalizers.Replace(Regex(" {2,}"), " ")]
    steps.append(normalizers.Replace(" ", SPACE))
    if rules.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    return normalizers.Sequence(steps)


class Encoder:
    """Encodes texts with one tokenizer.

    Args:
        tokenizer: from `load_tokenizer`, or any transformers tokenizer of the fast kind.
        backend: "auto", "hf" or "gigatoken".
        add_special_tokens: add what the tokenizer itself puts around a text (such as BOS).
        append_eod: add the EOS id after each document, unless the special tokens already end with it.
        bos_text, eos_text: put before and after each document, outside of its special tokens; one token each.
        probe: texts of the corpus on which gigatoken must agree with hf; read only if it is tried.
        special_tokens: "keep", "split" or "refuse", for special tokens that texts hold (see `special`).

    Attributes:
        vocab_size: every id is below it; len(tokenizer), or more if its ids have gaps.
        dtype: np.dtype of the ids, the one for `vocab_size`.
        eos_token_id: int or None.
        backend: what runs: "hf" or "gigatoken". encode: its function, which sets no special tokens (see `backends`).
        prefix, suffix: lists of ids set before and after each document.
        found: a SpecialTokenCounter of what texts held so far.

    Raises:
        TokenizerError: a tokenizer without a fast form; no EOS token to append; a bos_text or eos_text that is not one
            token; gigatoken missing, unable or wrong where it was asked for.
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
            raise TokenizerError(
                f"{tokenizer.name_or_path} has no fast form; save one with a tokenizer.json"
            )
        self.tokenizer, self._adds_special_tokens = tokenizer, add_special_tokens
        self.vocab_size = max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
        self.dtype = token_dtype_for(self.vocab_size)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        tokenizer("", add_special_tokens=False)  # lets it forget truncation and padding
        before, after = self._special_ids() if add_special_tokens else ([], [])
        self.prefix = self._one_id("bos_text", bos_text) + before
        self.suffix = after + self._one_id("eos_text", eos_text)
        if append_eod and self.eos_token_id is None:
            raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none")
        if append_eod and self.suffix[-1:] != [self.eos_token_id]:
            self.suffix.append(self.eos_token_id)
        self.found = SpecialTokenCounter(tokenizer, self.vocab_size, special_tokens)
        split = special_tokens == "split" or tokenizer.split_special_tokens
        # a copy: whoever encodes a prompt with `tokenizer` and cuts it short must not cut documents short
        self._fast = restored(tokenizer.backend_tokenizer.to_str(), split)
        self._cut = StretchCutter(self._fast)
        self._hf = hf(self._fast)
        self.backend, self.encode = "hf", self._hf
        if backend != "hf" and (problem := self._take_gigatoken(probe)):
            if backend == "gigatoken":
                raise TokenizerError(f"gigatoken cannot be used: {problem}; use --backend hf")
            logger.info("gigatoken is not used: %s", problem)
        logger.info("tokenizing with the %s backend", self.backend)

    @property
    def facts(self) -> dict[str, Any]:
        """What a `TokenFileWriter` is told about the ids."""
        return {
            "dtype": self.dtype,
            "vocab_size": self.vocab_size,
            "eos_token_id": self.eos_token_id,
            "appended_eod": self.suffix[-1:] == [self.eos_token_id],
            "added_special_tokens": self._adds_special_tokens,
        }

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the ids of a text, as JSON: a hash of the whole definition of the tokenizer as far as it encodes
        (model, normalizer, pre-tokenizer, added tokens), and the ids set before and after each document.
        """
        with extra("text", "a tokenizer"):
            import orjson
        backend = self.tokenizer.backend_tokenizer
        definition = orjson.loads(backend.to_str())
        used = {
            name: definition.get(name)
            for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")
        }
        used["encode_special_tokens"] = getattr(backend, "encode_special_tokens", False)
        digest = xxhash.xxh3_128_hexdigest(orjson.dumps(used, option=orjson.OPT_SORT_KEYS))
        return {"tokenizer": f"xxh3_128:{digest}", "prefix": self.prefix, "suffix": self.suffix}

    def warn_without_separator(self) -> None:
        """Log a warning if the documents will lie back to back with nothing between them."""
        if not self.prefix and not self.suffix:
            logger.warning(
                "nothing is put between documents, so a model cannot tell where one ends; "
                "append_eod (--append-eod) puts the EOS token after each"
            )

    @property
    def described(self) -> dict[str, Any]:
        """What another process makes its own `encode` from."""
        split = self._fast.encode_special_tokens
        return {"backend": self.backend, "tokenizer": self._fast.to_str(), "split": split}

    def encode_batch(self, texts: Iterable[str]) -> Ragged:
        """All of `texts` at once: (ids [total] of `dtype`, back to back; lengths int64 [number of texts])."""
        nothing = np.empty(0, self.dtype), np.empty(0, np.int64)
        ids, lengths = zip(nothing, *self.stream(texts), strict=True)
        return np.concatenate(ids), np.concatenate(lengths)

    def stream(
        self,
        texts: Iterable[Text],
        encoders: Sequence[Encode] = (),
        advance: Callable[[int], None] = lambda characters: None,
    ) -> Generator[Ragged]:
        """Encode batch after batch, a few ahead; yields (ids, lengths) of whole documents in order.

        1. Gather stretches of documents until a batch is full, and hand it to an encoding thread.
        2. While that works, put the stretches of the documents of earlier batches together.
        3. Look for special tokens in them, and set those around them.

        Args:
            texts: any number of texts with a UTF-8 form, or documents, which errors name; read a few batches ahead.
            encoders: what encodes, each one batch at a time, as this encoder's `encode` does, which is the default.
            advance: called with the characters of every batch that is done, inside a long document too.
        """
        begun: list[
            NDArray[Any]
        ] = []  # the ids so far of a document that goes on in the next batch
        trail, done = Trail(), 0
        for batch, (ids, lengths) in self._encoded(
            texts, encoders or [self.encode, self.encode], trail
        ):
            ends = np.cumsum(lengths)[[last for _, last, _ in batch]]
            if ends.size:
                before = sum(map(len, begun))
                whole = np.concatenate([*begun, ids[: ends[-1]]])
                trail.forget(done)
                self._check_ids(whole)
                sizes = np.diff(ends, prepend=-before)
                self.found.look(whole, sizes, partial(_name, trail, done))
                done += len(ends)
                yield self._finished(whole, sizes)
                begun, ids = [], ids[ends[-1] :]
            begun.append(ids)
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
            yield from ((batch, future.result()) for batch, future in coming)
        finally:
            for _, future in coming:  # an interrupt waits for the batches under way only
                future.cancel()
            pool.shutdown()  # its own way to cancel fails where a program ends with the generator half read

    def _check(self, batch: Batch, trail: Trail) -> None:
        """Raise a TokenizerError if gigatoken and the tokenizer itself differ on pieces of a batch.

        The pieces are the middles of `CHECKED_PIECES` texts, evenly spaced.
        """
        if self.backend == "hf":
            return
        number = min(CHECKED_PIECES, len(batch))
        chosen = [batch[k * len(batch) // number] for k in range(number)]
        pieces = [_middle(text) for text, *_ in chosen]
        if _same(self.encode(pieces), self._hf(pieces)):
            return
        differs = [not _same(self.encode([piece]), self._hf([piece])) for piece in pieces]
        _, _, number = chosen[differs.index(True) if True in differs else 0]
        what = "gigatoken gives other ids than the tokenizer itself"
        raise TokenizerError(
            f"{trail.where(number)}: {what}; begin again with backend hf (--backend hf)"
        )

    def _batches(self, texts: Iterable[Text], trail: Trail) -> Iterator[Batch]:
        batch: Batch = []
        size = 0
        for number, document in enumerate(texts):
            for stretch, last in self._cut(trail.text(document)):
                batch.append((stretch, last, number))
                size += len(stretch)
                if size >= BATCH_CHARS or len(batch) >= BATCH_DOCUMENTS:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _check_ids(self, ids: NDArray[Any]) -> None:
        if ids.size and ids.max() >= self.vocab_size:
            raise TokenizerError(
                f"token id {ids.max()} is not below {self.vocab_size}, the size of the vocabulary"
            )

    def _finished(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> Ragged:
        """Set prefix and suffix."""
        ids = ids.astype(self.dtype)
        if self.prefix or self.suffix:
            ends = np.cumsum(lengths)
            places = np.stack(
                [ends - lengths] * len(self.prefix) + [ends] * len(self.suffix), axis=1
            )
            ids = np.insert(ids, places.ravel(), np.tile(self.prefix + self.suffix, len(ends)))
            lengths = lengths + places.shape[1]
        return ids, lengths

    def _special_ids(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after every text."""
        found = self.tokenizer.backend_tokenizer.encode("a")
        begin = found.special_tokens_mask.index(0)
        end = len(found.ids) - found.special_tokens_mask[::-1].index(0)
        return found.ids[:begin], found.ids[end:]

    def _one_id(self, name: str, text: str) -> list[int]:
        """The id of a separator; none for no text."""
        ids: list[int] = (
            self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
            if text
            else []
        )
        if len(ids) > 1:
            raise TokenizerError(
                f"{name} {text!r} is {len(ids)} tokens of this tokenizer and would not be seen as one; take one of its "
                f"special tokens: {', '.join(map(repr, self.tokenizer.all_special_tokens)) or 'it has none'}"
            )
        return ids

    def _take_gigatoken(self, probe: Iterable[str]) -> str:
        """Encode with gigatoken, if it gives the ids that the tokenizer itself gives; why not, otherwise."""
        special = list(self.tokenizer.get_added_vocab())[:100]
        texts = [
            *probe,
            *PROBE,
            *(form.format(token) for token in special for form in PROBE_SPECIAL),
        ]
        try:
            found = gigatoken(self._fast)
            same = _same(found(texts), self._hf(texts))
        except Exception as error:  # its errors are its own
            return f"{type(error).__name__}: {error}"
        if not same:
            return "it gives other ids than the tokenizer itself on texts of this corpus"
        self.backend, self.encode = "gigatoken", found
        return ""


def _name(trail: Trail, done: int, index: int) -> str:
    return trail.where(done + index)


def _middle(text: str) -> str:
    """At most `CHECKED_CHARS` characters out of the middle of a text."""
    begin = max(0, (len(text) - CHECKED_CHARS) // 2)
    return text[begin : begin + CHECKED_CHARS]


def _same(one: Ragged, other: Ragged) -> bool:
    return all(map(np.array_equal, one, other))
