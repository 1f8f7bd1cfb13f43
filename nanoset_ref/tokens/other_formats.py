"""Open files of token ids that are not named .npy."""

from pathlib import Path

from numpy.typing import DTypeLike

from nanoset_ref.tokens.bin_idx import MMapIndexedDataset
from nanoset_ref.tokens.companions import bin_of_pair
from nanoset_ref.tokens.ds import DatatroveFile
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.llm_c_shard import LlmCFile, is_shard
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.npy import DTYPES, TokenFile, name_of_dtype

# of text, and of files that lie beside token files
SUFFIXES_WITHOUT_IDS = tuple(
    ".json .jsonl .parquet .gz .zst .npz .seal .ds.index .ds.metadata".split()
)


def open_other_format(
    path: Path, token_dtype: DTypeLike | None, eos_token_id: int | None
) -> Tokens:
    """Open a .ds file, a pair, a shard of llm.c, or raw ids; see `opening.open_tokens`."""
    opened = _open(path, token_dtype, eos_token_id)
    if opened is None:
        if path.name.endswith(SUFFIXES_WITHOUT_IDS):
            raise TokenFileError(
                f"{path} has no token ids; preprocess text to get some, "
                "or name the token file that it belongs to"
            )
        return TokenFile(path, token_dtype, eos_token_id)
    require_dtype(opened, token_dtype)
    return opened


def require_dtype(opened: Tokens, token_dtype: DTypeLike | None) -> None:
    """Raise TokenFileError if a file has another dtype than the one that was asked for."""
    asked_for = name_of_dtype(token_dtype)
    if asked_for not in (None, str(opened.dtype)):
        raise TokenFileError(
            f"{opened.path}: token_dtype={asked_for} contradicts the file, which has {opened.dtype}"
        )


def _open(
    path: Path, token_dtype: DTypeLike | None, eos_token_id: int | None
) -> Tokens | None:
    """Open a file whose format is known by its suffix, its companion or its header."""
    name = name_of_dtype(token_dtype)
    if path.suffix == ".ds" and name in (None, *DTYPES):  # TokenFile refuses any other
        token_size = None if name is None else DTYPES[name].itemsize
        return DatatroveFile(path, token_size=token_size)
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    if bin_of_pair(path):  # in a bucket, opening it will tell
        return MMapIndexedDataset(prefix)
    if path.suffix == ".bin" and path.is_file() and is_shard(path):
        return LlmCFile(path, eos_token_id)
    return None
