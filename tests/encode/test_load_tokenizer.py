"""Tokenizers as they are loaded: a bare SentencePiece model, a vocabulary with gaps, and what does not load."""

import sys

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from nanoset_ref.cli import main
from nanoset_ref.preprocess import preprocess
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.tokenizer import TokenizerError, load_tokenizer
from nanoset_ref.tokens import open_tokens
from nanoset_ref.train.config import TokenizerConfig


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
        match="no tokenizer to load from .* or the Hub; give a folder with a tokenizer.json or a name",
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
