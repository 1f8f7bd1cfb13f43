"""Small tokenizers of any build, for the tests that encode."""

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = "the quick brown fox, it's 1234567 (jumps) over.\nthe lazy dog's \u00e9t\u00e9 \u4f60\u597d\u3002 x"


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


def whole(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def wrapped(backend, **special):
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)
