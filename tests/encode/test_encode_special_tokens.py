"""Special tokens: those of a text are kept, split or refused; those that separate documents are one each."""

import re
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from encode_helpers import WORDS, byte_level, trained, wrapped
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from nanoset_ref.preprocess import backends
from nanoset_ref.preprocess.bos_eos import special_ids
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.piece_cutter import PieceCutter
from nanoset_ref.preprocess.tokenizer import TokenizerError

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
