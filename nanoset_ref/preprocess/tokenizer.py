"""Load tokenizers from a folder, a file in it, or the Hub.

transformers imports torch, which takes seconds. If the files of a folder hold everything that
transformers would read, encoding needs only the `tokenizers` library.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanoset_ref.io.error_text import one_line
from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.types import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "\u2581"  # a space in SentencePiece
# transformers 5 (2026-11) uses a tokenizer.json unchanged if its class is one of these, if the
# folder holds none of these other files, and if the config has only these entries
VERBATIM_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
OTHER_FILES = (
    "config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
)
NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
PLAIN_ENTRIES = {"tokenizer_class", "backend", "model_max_length", *NAMED_TOKENS}


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded, or cannot do what was asked."""


class TokenizerFile:
    """A folder's tokenizer.json, and what encoding and `show` need of transformers' class.

    Args:
        folder: the folder.
        config: the content of its tokenizer_config.json.

    Raises:
        ValueError: transformers would change the tokenizer.
    """

    is_fast = True
    split_special_tokens = False

    def __init__(self, folder: Path, config: Json) -> None:
        with extra("text", "a tokenizer"):
            from tokenizers import Tokenizer

        if (
            config.get("tokenizer_class") not in VERBATIM_CLASSES
            or config.keys() - PLAIN_ENTRIES
        ):
            raise ValueError("an entry that changes the tokenizer")
        if any((folder / name).exists() for name in OTHER_FILES):
            raise ValueError("a file that changes the tokenizer")
        self.name_or_path = os.fspath(folder)
        self.is_taken = False
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.backend_tokenizer.no_truncation()
        if self.backend_tokenizer.padding:
            raise ValueError("padding, which names a token")
        added = self.backend_tokenizer.get_added_tokens_decoder().items()
        special = {token.content: number for number, token in added if token.special}
        self.all_special_tokens = []
        for name in NAMED_TOKENS:
            token = config.get(name)
            if token is not None and token not in special:
                raise ValueError("a special token that is to be added")
            setattr(self, name, token)
            setattr(self, f"{name}_id", special.get(token or ""))
            if token is not None:
                self.all_special_tokens.append(token)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """See transformers."""
        encoding = self.backend_tokenizer.encode(
            text, add_special_tokens=add_special_tokens
        )
        return encoding.ids

    def decode(
        self, ids: list[int], *, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """See transformers. Spaces are never cleaned up: no entry of the folder asks for it."""
        return self.backend_tokenizer.decode(ids, skip_special_tokens=False)


def _folder_of(name_or_path: PathLike) -> Path:
    """The folder of a tokenizer, from the folder or a file in it; a name on the Hub as it is."""
    folder = Path(name_or_path)
    return folder.parent if folder.is_file() else folder


def open_tokenizer(name_or_path: PathLike) -> Any:
    """Open a tokenizer for an `Encoder`: a TokenizerFile if possible, else by `load_tokenizer`."""
    folder = _folder_of(name_or_path)
    with suppress(Exception):  # the tokenizers library raises Exception itself
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        return TokenizerFile(folder, config)
    return load_tokenizer(name_or_path)


def unshared_tokenizer(tokenizer: Any) -> Tokenizer:
    """Return a Rust tokenizer for one `Encoder` alone.

    A caller of transformers may set truncation for a prompt, which must not cut documents short.

    Args:
        tokenizer: a tokenizer from `open_tokenizer` or of transformers.
    """
    if isinstance(tokenizer, TokenizerFile) and not tokenizer.is_taken:
        tokenizer.is_taken = True
        return tokenizer.backend_tokenizer
    return rebuild_tokenizer(tokenizer.backend_tokenizer.to_str(), False)


def rebuild_tokenizer(description: str, split: bool) -> Tokenizer:
    """Make a Rust tokenizer that neither truncates nor pads.

    Args:
        description: its `to_str()`.
        split: whether special tokens in a text are plain text.
    """
    with extra("text", "encoding text"):
        from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(description)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = split
    return tokenizer


def load_tokenizer(name_or_path: PathLike) -> Any:
    """Load a tokenizer by `AutoTokenizer.from_pretrained`.

    A tokenizer from a folder with only a SentencePiece model (tokenizer.model) gives the ids of
    SentencePiece itself.

    Args:
        name_or_path: a name on the Hub, a folder, or a file in it.

    Raises:
        TokenizerError: there is no tokenizer to load; the message has the reason.
    """
    with extra("text", "a tokenizer"):
        from transformers import AutoTokenizer

    folder = _folder_of(name_or_path)
    model = folder / "tokenizer.model"
    problem = "" if folder.is_dir() else hub_problem()
    rules = None
    try:
        if model.is_file() and not list(folder.glob("*.json")):
            rules = normalizer_of(model)
        name = folder if folder.is_dir() else name_or_path
        tokenizer = AutoTokenizer.from_pretrained(
            os.fspath(name), local_files_only=bool(problem)
        )
    # transformers, the Hub and the network raise errors of their own
    except Exception as error:
        reason = problem or one_line(error)
        raise TokenizerError(
            f"{name_or_path}: no tokenizer to load from {folder.absolute()} or the Hub; "
            f"give a folder with a tokenizer.json or a name on the Hub ({reason})"
        ) from error
    if rules:
        tokenizer.backend_tokenizer.normalizer = rules
    return tokenizer


def hub_problem() -> str:
    """Why the Hub cannot be reached, or "". Libraries that load from it retry for a minute."""
    with extra("text", "reading from the Hub"):
        from huggingface_hub import constants, get_session

    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # the HTTP library raises errors of its own
        return f"{constants.ENDPOINT} cannot be reached: {error}"
    return ""


def vocabulary_size(tokenizer: Any) -> int:
    """A number above every id: the number of ids, or more if they have gaps."""
    ids = getattr(tokenizer, "backend_tokenizer", tokenizer).get_vocab()
    return max(len(ids), max(ids.values()) + 1)


def normalizer_of(model: Path) -> Any:
    """A SentencePiece model's rules for spaces, as a normalizer of the `tokenizers` library.

    transformers ignores the rules: it neither adds the space before a document nor joins spaces.
    Two differences remain: if a Unigram model scores two segmentations nearly the same, the
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
