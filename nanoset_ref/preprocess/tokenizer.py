"""Tokenizers: a folder, a file in it, or a name on the Hub."""

import os
from pathlib import Path
from typing import Any

from nanoset_ref.io.extras import extra
from nanoset_ref.preprocess.text import hub_problem

SPACE = "\u2581"  # a space in SentencePiece


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded, or cannot do what was asked."""


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> Any:
    """Load a tokenizer by `AutoTokenizer.from_pretrained`.

    A folder with nothing but a SentencePiece model (tokenizer.model) gives the ids of SentencePiece
    itself. A file stands for its folder.

    Raises:
        TokenizerError: there is no tokenizer to load; the message has the reason.
    """
    with extra("text", "a tokenizer"):
        from transformers import AutoTokenizer

    folder = Path(name_or_path)
    if folder.is_file():
        folder = folder.parent
        name_or_path = folder
    model = folder / "tokenizer.model"
    problem = "" if folder.is_dir() else hub_problem()
    rules = None
    try:
        if model.is_file() and not list(folder.glob("*.json")):
            rules = normalizer_of(model)
        tokenizer = AutoTokenizer.from_pretrained(
            os.fspath(name_or_path), local_files_only=bool(problem)
        )
    except Exception as error:  # transformers, the Hub and the network each raise their own
        reason = problem or " ".join(str(error).split())
        what = "give a folder with a tokenizer.json or a name on the Hub"
        raise TokenizerError(f"{name_or_path}: no tokenizer to load; {what} ({reason})") from error
    if rules:
        tokenizer.backend_tokenizer.normalizer = rules
    return tokenizer


def normalizer_of(model: Path) -> Any:
    """A SentencePiece model's own rules for spaces, for the tokenizer that is made of the model.

    transformers ignores them: it neither adds the space before a document nor joins spaces. Two
    differences stay: where two segmentations by a Unigram model score nearly the same, the
    libraries may choose differently; and a literal <unk>, <s> or </s> in a text becomes that token,
    as always in transformers.

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
        steps.append(normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    steps.append(normalizers.Replace(" ", SPACE))
    if rules.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    return normalizers.Sequence(steps)
