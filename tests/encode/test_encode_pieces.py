"""Long documents are cut into pieces whose ids are those of the whole, or are not cut."""

from functools import partial

import pytest
from encode_helpers import WORDS, byte_level, trained, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from nanoset_ref.preprocess import backends
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.piece_cutter import PieceCutter
from nanoset_ref.preprocess.tokenizer import load_tokenizer

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
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


def in_pieces(tokenizer, text, piece_chars):
    pieces = list(PieceCutter(tokenizer, piece_chars)(text))
    ids = [token for piece in pieces for token in whole(tokenizer, piece)]
    return ids, len(pieces)


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
