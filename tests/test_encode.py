"""Encoding: ids identical to the tokenizer's own, with every backend, in batches, in pieces, with special tokens."""

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from functools import partial
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from nanoset_ref.cli import main
from nanoset_ref.preprocess import backends, batch_encoder, preprocess, text_formats
from nanoset_ref.preprocess.backends import LIBRARIES, hf_encoder
from nanoset_ref.preprocess.bos_eos import special_ids
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.piece_cutter import PieceCutter
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.tokenizer import (
    TokenizerError,
    load_tokenizer,
    rebuild_tokenizer,
)
from nanoset_ref.tokens import open_tokens
from nanoset_ref.train.config import TokenizerConfig

TEXTS = [
    "",
    "one two three",
    "  x\n\ny ",
    "\u00e9e\u0301 \u4f60\u597d\U0001f600\x00",
    "a</s>b <s>",
    "",
    "and so on",
]
WORDS = "the quick brown fox, it's 1234567 (jumps) over.\nthe lazy dog's \u00e9t\u00e9 \u4f60\u597d\u3002 x"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def trained(
    *,
    normalizer=None,
    pre_tokenizer=None,
    byte_fallback=False,
    model=models.BPE,
    trainer=trainers.BpeTrainer,
):
    """A small tokenizer of the given build, trained on WORDS; it knows <s>, </s> and a special token with spaces."""
    fallback = (
        {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
        if byte_fallback
        else {}
    )
    tokenizer = Tokenizer(model(**fallback))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    special = [
        "<unk>",
        "<s>",
        "</s>",
        *([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []),
    ]
    options = {"special_tokens": special, "vocab_size": 600, "show_progress": False}
    if trainer is trainers.BpeTrainer and not byte_fallback:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [" " + word for word in WORDS.split(" ")] * 20, trainer(**options)
    )
    tokenizer.add_special_tokens(
        ["<|end of text|>", AddedToken("<mask>", lstrip=True, rstrip=True)]
    )
    return tokenizer


def byte_level(*before, **options):
    return pre_tokenizers.Sequence(
        [*before, pre_tokenizers.ByteLevel(add_prefix_space=False, **options)]
    )


class Builds(dict):
    def __repr__(self):
        return ", ".join(self)  # not whole vocabularies, when hypothesis reports


@pytest.fixture(scope="module")
def known(golden):
    """The builds that are cut: GPT-2's, Llama 3's, Qwen's, Llama 2's, the two Metaspace forms, Gemma's."""
    llama_2 = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    builds = {
        "golden": Tokenizer.from_file(str(golden / "tokenizer" / "tokenizer.json")),
        "llama 3": trained(pre_tokenizer=byte_level(split, use_regex=False)),
        "nfc": trained(
            normalizer=normalizers.NFC(),
            pre_tokenizer=byte_level(split, use_regex=False),
        ),
        "llama 2": trained(normalizer=llama_2, byte_fallback=True),
        "metaspace": trained(
            pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            byte_fallback=True,
        ),
        "metaspace, split": trained(
            pre_tokenizer=pre_tokenizers.Metaspace(), byte_fallback=True
        ),
        "gemma": trained(
            normalizer=normalizers.Replace(" ", "\u2581"),
            pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
            byte_fallback=True,
        ),
    }
    return Builds(builds)


@pytest.fixture(scope="module")
def tokenizer(golden):
    return load_tokenizer(golden / "tokenizer")


def whole(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def in_pieces(tokenizer, text, piece_chars):
    pieces = list(PieceCutter(tokenizer, piece_chars)(text))
    ids = [token for piece in pieces for token in whole(tokenizer, piece)]
    return ids, len(pieces)


# ------------------------------------------------------------------------------------------------ long documents

NASTY = st.one_of(
    st.sampled_from(WORDS.split(" ")),
    st.sampled_from(
        [
            " ",
            " ",
            "\n",
            "  ",
            "\t",
            "\r\n",
            "\xa0",
            "\u3000",
            "<s>",
            "</s>",
            "<|end of text|>",
            "<mask>",
        ]
    ),
    st.sampled_from(
        [
            "1234567",
            "'s",
            "e\u0301",
            "\u0301",
            "\u0338",
            "\ufb01",
            "\u2581",
            "\u0120",
            "\x00",
            '"',
        ]
    ),
    st.text(max_size=3),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.lists(NASTY, min_size=5, max_size=120),
    gap=st.sampled_from(["", " "]),
    piece_chars=st.integers(4, 80),
)
def test_pieces_of_any_text_have_the_ids_of_the_whole(known, parts, gap, piece_chars):
    text = gap.join(parts).encode(errors="ignore").decode()
    for name, tokenizer in known.items():
        ids, _ = in_pieces(tokenizer, text, piece_chars)
        assert ids == whole(tokenizer, text), name


def test_every_known_build_is_cut_and_the_real_gpt_2(known, real_text):
    text = (real_text / "scenes.jsonl").read_text()[:60_000]
    gpt_2 = load_tokenizer(real_text / "gpt2").backend_tokenizer
    for name, tokenizer in {**known, "gpt 2": gpt_2}.items():
        ids, number = in_pieces(tokenizer, text, 1_000)
        assert number > 45, name
        assert ids == whole(tokenizer, text), name


def test_tokenizers_that_look_far_are_not_cut_nor_texts_without_a_safe_place(tokenizer):
    quotes = byte_level(
        pre_tokenizers.Split(Regex('"[^"]*"'), "isolated"), use_regex=False
    )
    brackets = byte_level(
        pre_tokenizers.Split(Regex(r"\([^)]*\)| ?[^\s()]+|\s+|."), "isolated"),
        use_regex=False,
    )
    long_special = trained(pre_tokenizer=byte_level())
    long_special.add_special_tokens(["<" + "x " * 40 + ">"])
    builds = {
        "long special": long_special,
        "quotes": trained(pre_tokenizer=quotes),
        "brackets": trained(pre_tokenizer=brackets),
        "unigram": trained(
            pre_tokenizer=pre_tokenizers.Metaspace(),
            model=models.Unigram,
            trainer=trainers.UnigramTrainer,
        ),
        "wordpiece": trained(
            pre_tokenizer=pre_tokenizers.Whitespace(),
            model=models.WordPiece,
            trainer=trainers.WordPieceTrainer,
        ),
    }
    for name, build in builds.items():
        assert list(PieceCutter(build, 10)(WORDS * 20)) == [WORDS * 20], name
    for text in ("x" * 500, "a  b" * 100, ""):
        assert list(PieceCutter(tokenizer.backend_tokenizer, 10)(text)) == [text]


def test_no_cut_goes_through_what_a_token_may_join():
    """Two words to a token: a look around the cut sees whole tokens there, and a mile before it begins on odd words."""
    vocabulary = {" ": 0, "a": 1, " a": 2, " a a": 3}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(" ", "a"), (" a", " a")]))
    text = " a" * 2_000
    assert in_pieces(tokenizer, text, 1_002)[0] == whole(tokenizer, text)


def test_a_long_document_is_encoded_in_pieces_and_groups_of_them(
    tokenizer, monkeypatch
):
    monkeypatch.setattr(backends, "BATCH_CHARS", 1000)
    monkeypatch.setattr(backends, "PieceCutter", partial(PieceCutter, piece_chars=200))
    encoder = Encoder(tokenizer, backend="hf", append_eod=True)
    texts = ["first", WORDS * 100, "", "last"]
    expected = [[*whole(tokenizer.backend_tokenizer, text), 2] for text in texts]
    ids, lengths = encoder.encode_batch(texts)
    assert lengths.tolist() == list(map(len, expected))
    assert ids.tolist() == [token for one in expected for token in one]
    assert len(list(backends._groups(iter([WORDS] * 100)))) > 5


# ------------------------------------------------------------------------------------------------ batches


def lines_of(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return open_text(path)


def batches_of(source):
    return (batch for block in source.blocks() for batch in block.batches())


def test_who_stops_early_waits_for_no_queued_batch(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 1)
    source = lines_of(tmp_path / "a.jsonl", map(str, range(9)))
    encoder, begun = Encoder(tokenizer, backend="hf"), []

    def encode(batch):
        begun.append(batch)
        time.sleep(0.2)
        return encoder.encode_text(batch)

    stream = encoder.stream(batches_of(source), [encode])
    next(stream)
    stream.close()
    assert len(begun) == 2  # the one that came, and the one under way


@pytest.mark.parametrize("backend", ["hf", "gigatoken", "auto"])
def test_every_backend_gives_the_tokenizers_own_ids(tokenizer, backend):
    encoder = Encoder(tokenizer, backend=backend, probe=TEXTS)
    ids, lengths = encoder.encode_batch(TEXTS)
    expected = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS
    ]
    assert ids.dtype == np.uint16
    assert lengths.dtype == np.int64
    assert ids.tolist() == [token for one in expected for token in one]
    assert lengths.tolist() == list(map(len, expected))
    assert encoder.backend == ("hf" if backend == "hf" else "gigatoken")
    assert [(it.dtype, it.size) for it in encoder.encode_batch([])] == [
        (np.uint16, 0),
        (np.int64, 0),
    ]


def test_auto_falls_back_when_gigatoken_differs_or_is_missing(
    tokenizer, monkeypatch, caplog
):
    caplog.set_level("INFO", "nanoset_ref")
    with monkeypatch.context() as patch:
        patch.setitem(
            LIBRARIES,
            "gigatoken",
            lambda tokenizer: lambda texts: hf_encoder(tokenizer)(texts[::-1]),
        )
        assert Encoder(tokenizer).backend == "hf"
        assert "gigatoken is not used: its ids differ" in caplog.text
        with pytest.raises(
            TokenizerError,
            match="cannot be used: its ids differ .* use --backend hf",
        ):
            Encoder(tokenizer, backend="gigatoken")
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    assert Encoder(tokenizer).backend == "hf"
    with pytest.raises(
        TokenizerError, match="cannot be used: ModuleNotFoundError: .* use --backend hf"
    ):
        Encoder(tokenizer, backend="gigatoken")


def test_gigatoken_is_compared_all_the_time_and_the_first_difference_names_its_document(
    tokenizer, tmp_path, monkeypatch
):
    path = tmp_path / "a.jsonl"
    source = lines_of(path, ["one"] * 600 + ["deux"] * 600)

    def english(tokenizer):
        """As hf, but with other ids for a language that the beginning of the corpus is not in."""
        return lambda texts: hf_encoder(tokenizer)(
            [text.replace("deux", "two") for text in texts]
        )

    monkeypatch.setitem(LIBRARIES, "gigatoken", english)
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 16)  # of a line with "one"
    encoder = Encoder(tokenizer, probe=source.probe_texts())
    assert encoder.backend == "gigatoken"
    list(encoder.stream(islice(batches_of(source), 600)))
    with pytest.raises(
        TokenizerError,
        match=rf"{path}:601: gigatoken produces different ids .* begin again with backend hf",
    ):
        list(encoder.stream(batches_of(source)))


def test_an_error_leaves_the_batches_before_it_their_encoder(monkeypatch):
    """The first batch takes its encoder late, after those of two later ones have failed."""
    failed = threading.Semaphore(0)
    takes = iter([True])

    class LateFirst(deque):
        def popleft(self):
            if callable(self[0]) and next(takes, False):
                failed.acquire()
                failed.acquire()
            return super().popleft()

    def encode(batch):
        if batch:
            failed.release()
            raise TokenizerError(f"batch {batch}")
        return "ids"

    monkeypatch.setattr(batch_encoder, "deque", LateFirst)
    encoded = batch_encoder.encode_in_order(range(3), [encode, encode])
    assert next(encoded) == (0, "ids")
    with pytest.raises(TokenizerError, match="batch 1"):
        next(encoded)


def test_a_program_may_end_with_a_stream_half_read(golden):
    """The module that the stream hangs on has lost its names by the time the stream is closed."""
    program = f"""if True:
        import concurrent.futures.thread, itertools
        from nanoset_ref.preprocess import text, tokenizer
        from nanoset_ref.preprocess.encoder import Encoder
        encoder = Encoder(tokenizer.load_tokenizer({str(golden / "tokenizer")!r}), backend="hf")
        part = text.TextPart("a", 1, ("text",), "raise", None)
        block = text.TextBlock(part, 1, lambda: [(lambda: ["word"], 1)], lambda: 1)
        batches = (batch for _ in itertools.count() for batch in block.batches())
        concurrent.futures.thread.kept = encoder.stream(batches)
        next(concurrent.futures.thread.kept)
    """
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")


# ------------------------------------------------------------------------------------------------ special tokens

SOME = st.lists(
    st.sampled_from(["</s>", "<s>", "<unk>", "<", "/s>", " ", "a", "\n", "é"]),
    max_size=8,
).map("".join)


@settings(max_examples=60)
@given(
    texts=st.lists(SOME, max_size=9),
    backend=st.sampled_from(["hf", "gigatoken"]),
    append_eod=st.booleans(),
)
def test_special_tokens_of_a_text_are_kept_and_counted_or_split_or_refused(
    tokenizer, texts, backend, append_eod
):
    options = {"backend": backend, "append_eod": append_eod}
    end = [2] * append_eod
    for mode, split in (("keep", False), ("split", True)):
        encoder = Encoder(tokenizer, special_tokens=mode, **options)
        ids, lengths = encoder.encode_batch(texts)
        expected = [
            tokenizer(text, add_special_tokens=False, split_special_tokens=split)[
                "input_ids"
            ]
            for text in texts
        ]
        assert ids.tolist() == [token for one in expected for token in one + end]
        assert lengths.tolist() == [len(one + end) for one in expected]
        found = Counter(token for one in expected for token in one if token < 3)
        assert encoder.special_token_counts.tokens == {
            ["<unk>", "<s>", "</s>"][token]: count for token, count in found.items()
        }
        assert encoder.special_token_counts.documents == sum(
            min(one, default=3) < 3 for one in expected
        )
    assert not encoder.special_token_counts.documents
    holders = [text for text in texts if re.search("<s>|</s>|<unk>", text)]
    refusing = Encoder(tokenizer, special_tokens="refuse", **options)
    if holders:
        with pytest.raises(
            InputError,
            match=f"text {texts.index(holders[0]) + 1}: the document holds the special token",
        ):
            refusing.encode_batch(texts)
    else:
        refusing.encode_batch(texts)


def test_long_documents_are_cut_and_counted_alike_with_special_tokens_of_spaces(
    monkeypatch,
):
    build = trained(pre_tokenizer=byte_level())
    tokenizer = wrapped(build, eos_token="</s>")
    text = " ".join([WORDS, "<|end of text|>", "<mask> ", WORDS] * 40)
    for mode, split in (("keep", False), ("split", True)):
        expected = tokenizer(
            text, add_special_tokens=False, split_special_tokens=split
        )["input_ids"]
        for piece_chars in (50, 10**6):
            monkeypatch.setattr(
                backends, "PieceCutter", partial(PieceCutter, piece_chars=piece_chars)
            )
            encoder = Encoder(tokenizer, backend="hf", special_tokens=mode)
            assert encoder.encode_batch([text])[0].tolist() == expected
            counted = {"<|end of text|>": 40, "<mask>": 40}
            assert (
                encoder.special_token_counts.documents,
                encoder.special_token_counts.tokens,
            ) == ((0, {}) if split else (1, counted))


def test_only_what_the_tokenizer_calls_special_is_split_and_counted(golden):
    build = Tokenizer.from_file(str(golden / "tokenizer" / "tokenizer.json"))
    build.add_tokens(["<tool>"])
    tokenizer = wrapped(build, eos_token="</s>", extra_special_tokens=[])
    for mode, counted in (("keep", {"</s>": 1}), ("split", {})):
        for backend in ("hf", "auto"):
            encoder = Encoder(tokenizer, special_tokens=mode, backend=backend)
            assert (
                build.token_to_id("<tool>")
                in encoder.encode_batch(["a<tool></s>"])[0].tolist()
            )
            assert encoder.special_token_counts.tokens == counted


def test_unknown_characters_are_no_special_tokens_unless_they_end_documents():
    for eos, unknown, counted in (
        ("</s>", "<unk>", {}),
        ("<unk>", "<unk>", {"<unk>": 1}),
    ):
        words = Tokenizer(
            models.WordLevel({"<unk>": 0, "a": 1, "</s>": 2}, unk_token=unknown)
        )
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        encoder = Encoder(wrapped(words, eos_token=eos, unk_token=unknown))
        encoder.encode_batch(["a b"])
        assert encoder.special_token_counts.tokens == counted
    with pytest.raises(
        InputError,
        match="'</s>' cannot be split: this tokenizer also makes it from plain text",
    ):
        Encoder(wrapped(words, eos_token="</s>"), special_tokens="split").encode_batch(
            ["a </s>"]
        )


def wrapped(backend, **special):
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def test_special_tokens_are_the_tokenizers_own_and_eod_is_not_doubled(golden):
    """The golden tokenizer with a post-processor <s> ... </s>, and a truncation that must be ignored."""
    backend = Tokenizer.from_file(str(golden / "tokenizer" / "tokenizer.json"))
    special = [("<s>", 1), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=special
    )
    backend.enable_truncation(4)
    backend.enable_padding()
    tokenizer = wrapped(backend, eos_token="</s>")
    plain = Encoder(tokenizer, backend="hf").encode_batch(["one two three"])[0].tolist()
    assert len(plain) > 4
    for options, prefix, suffix in [
        ({"append_eod": True}, [], [2]),
        ({"add_special_tokens": True}, [1], [2]),
        ({"add_special_tokens": True, "append_eod": True}, [1], [2]),
    ]:
        encoder = Encoder(tokenizer, **options)
        ids, lengths = encoder.encode_batch(["", "one two three", ""])
        assert ids.tolist() == [
            *prefix,
            *suffix,
            *prefix,
            *plain,
            *suffix,
            *prefix,
            *suffix,
        ]
        assert lengths.tolist() == [
            len(prefix + suffix),
            len(prefix + plain + suffix),
            len(prefix + suffix),
        ]


@pytest.mark.parametrize("words", [["b"], ["2"], ["é"]])
def test_special_tokens_are_found_with_any_character_that_has_an_id(words):
    vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", *words])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    special = [("<s>", 0), ("</s>", 1)]
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=special
    )
    if words == ["é"]:
        with pytest.raises(TokenizerError, match="no printable ASCII character"):
            special_ids(backend)
    else:
        assert special_ids(backend) == ([0], [1])


def test_a_prompt_that_is_cut_short_cuts_no_document_short(golden):
    tokenizer = load_tokenizer(golden / "tokenizer")
    encoder = Encoder(tokenizer, backend="hf")
    expected = encoder.encode_batch(["one two three </s>"])[0].tolist()
    tokenizer("a prompt", truncation=True, max_length=2, split_special_tokens=True)
    assert encoder.encode_batch(["one two three </s>"])[0].tolist() == expected
    assert (
        rebuild_tokenizer(encoder.worker_config["tokenizer"], False).truncation is None
    )


def test_every_id_is_below_the_size_of_a_vocabulary_with_gaps(tmp_path):
    """Also for a config, and for a file that is given its tokenizer later."""
    inner = Tokenizer(models.WordLevel({"a": 0, "b": 1, "</s>": 5}, unk_token="a"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")
    fast.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "text.jsonl").write_text('{"text": "a b"}\n')
    preprocess(
        tmp_path / "text.jsonl", tmp_path / "t", tmp_path / "tokenizer", append_eod=True
    )
    path = tmp_path / "t_input_ids.npy"
    assert open_tokens(path).facts["vocab_size"] == 6
    assert TokenizerConfig(tokenizer_name_or_path=str(tmp_path / "tokenizer")).size == 6
    copy = tmp_path / "copy.npy"
    raw = tmp_path / "raw.npy"
    raw.write_bytes(path.read_bytes())
    options = ["--tokenizer", str(tmp_path / "tokenizer"), "--eos-token-id", "5"]
    assert main(["convert", str(raw), str(copy), *options]) == 0
    assert open_tokens(copy).facts["vocab_size"] == 6


def test_the_dtype_follows_the_largest_id():
    backend = Tokenizer(
        models.WordLevel(
            {"<unk>": 0, "a": 1, "b": 70_000, "</s>": 2}, unk_token="<unk>"
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    ids, lengths = Encoder(
        wrapped(backend, eos_token="</s>"), append_eod=True
    ).encode_batch(["a b", ""])
    assert (ids.dtype, ids.tolist(), lengths.tolist()) == (
        np.int32,
        [1, 70_000, 2, 2],
        [3, 1],
    )


def test_separators_are_one_token_each_and_what_an_encoder_cannot_do_is_an_error(
    tokenizer,
):
    encoder = Encoder(
        tokenizer, backend="hf", bos_text="<s>", eos_text="</s>", append_eod=True
    )
    assert (encoder.prefix, encoder.suffix) == ([1], [2])
    encoder.encode = lambda texts: (np.array([70_000]), np.array([1]))
    with pytest.raises(
        TokenizerError,
        match="token id 70000 is not below 480, the size of the vocabulary",
    ):
        encoder.encode_batch(["a"])
    without_eos = wrapped(Tokenizer(models.WordLevel({"a": 0})))
    slow = SimpleNamespace(is_fast=False, name_or_path="mine")
    for wrong, options, message in [
        (
            tokenizer,
            {"eos_text": "<end>"},
            r"eos_text '<end>' must be a single token .* use one of its special .*'</s>'",
        ),
        (without_eos, {"append_eod": True}, "this tokenizer has none"),
        (slow, {}, "mine has no fast form"),
        (None, {"backend": "rust"}, "backend must be one of"),
        (tokenizer, {"special_tokens": "drop"}, "special_tokens must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            Encoder(wrong, **options)


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"normalization_rule_name": "identity"},
    ],
)
def test_a_bare_sentencepiece_model_gives_the_ids_of_sentencepiece(tmp_path, rules):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the hat of the cat", "that cat, the hat", "a bath, a bat"] * 9), vocab_size=290,
        model_prefix=str(tmp_path / "tokenizer"), model_type="bpe", byte_fallback=True, minloglevel=2,
        **rules,
    )  # fmt: skip
    own = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "tokenizer.model")
    )
    (tmp_path / "tokenizer.vocab").unlink()
    assert (
        load_tokenizer(tmp_path / "tokenizer.model").get_vocab()
        == load_tokenizer(tmp_path).get_vocab()
    )
    encoder = Encoder(load_tokenizer(tmp_path))
    random = np.random.default_rng(0)
    texts = [
        "".join(random.choice(list("that  bc,\n\t\u2581\xa0é漢"), 20))
        for _ in range(300)
    ]
    texts += ["the hat", " a  bat "]
    assert [encoder.encode_batch([text])[0].tolist() for text in texts] == [
        own.encode(text) for text in texts
    ]
    splitting = Encoder(load_tokenizer(tmp_path), special_tokens="split")
    texts = [
        "".join(random.choice(["the", " ", "<s>", "</s>", "<unk>", "<"], 9))
        for _ in range(100)
    ]
    for (
        text
    ) in texts:  # what SentencePiece itself does with the names of its control symbols
        assert splitting.encode_batch([text])[0].tolist() == own.encode(text)


def test_a_tokenizer_that_does_not_load(tmp_path, monkeypatch):
    with pytest.raises(
        TokenizerError,
        match="no tokenizer to load; give a folder with a tokenizer.json or a name",
    ):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(
        b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
    )
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(
        TokenizerError,
        match=r'reading a tokenizer.model needs .*: pip install "nanoset_ref.sentencepiece.*"',
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["eos_text", "bos_text"])
def test_a_separator_that_the_tokenizer_does_not_know_is_refused(tmp_path, name):
    """Without ids nothing would stand between documents."""
    model = models.BPE(vocab={"a": 0, "b": 1}, merges=[])
    fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
    with pytest.raises(
        TokenizerError,
        match=f"{name} '#' must be a single token of this tokenizer, but is 0",
    ):
        Encoder(fast, backend="hf", **{name: "#"})
    assert Encoder(fast, backend="hf", **{name: "b"}).encode_batch(["a"])[0].size == 2
