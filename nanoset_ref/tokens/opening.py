"""Any file of token ids, opened as `Tokens`."""

from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.files import PathLike
from nanoset_ref.storage import BucketPath, located
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.reader import TokenFile
from nanoset_ref.tokens.view import Tokens

# readers of other systems' formats, imported when such a file is opened
DATATROVE = "nanoset_ref.formats.datatrove:DatatroveFile"
MEGATRON = "nanoset_ref.megatron.indexed_dataset:MMapIndexedDataset"


def open_tokens(path: PathLike, token_dtype: DTypeLike | None = None, eos_token_id: int | None = None) -> Tokens:
    """Open a .npy token file, a .bin/.idx pair (by either name or their common prefix) or a .ds file.

    Args:
        path: the file, or the URL of a .npy token file (see `nanoset_ref.storage`).
        token_dtype: of a .npy or .ds file that does not say it itself.
        eos_token_id: documents end with this id, in a .npy file without a manifest.

    Raises:
        FileNotFoundError, TokenFileError: as the format's reader.
    """
    path = located(path)
    dtype = None if token_dtype is None else np.dtype(token_dtype)
    if isinstance(path, BucketPath) and path.suffix in (".bin", ".idx", ".ds"):
        raise TokenFileError(f"{path}: of a bucket .npy token files are read; nanoset-ref convert makes one")
    if path.suffix == ".ds":
        file: Tokens = resolve_name(DATATROVE)(path, token_size=dtype and dtype.itemsize)
        return file
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    if Path(f"{prefix}.idx").is_file():
        pair: Any = resolve_name(MEGATRON)(prefix)
        if dtype not in (None, pair.dtype):
            raise TokenFileError(f"{path}: token_dtype={dtype} contradicts the .idx, which says {pair.dtype}")
        return pair
    if path.name.endswith(".documents.npy"):
        tokens = path.name.removesuffix(".documents.npy") + ".npy"
        raise TokenFileError(f"{path} holds the document boundaries of {tokens}; name that file instead")
    return TokenFile(path, token_dtype, eos_token_id)


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without those that a glob also names: the boundaries of token files, the .idx and .seal of a .bin."""
    companions = {path.removesuffix(".npy") + ".documents.npy" for path in paths if path.endswith(".npy")}
    pairs = [path.removesuffix(".bin") for path in paths if path.endswith(".bin")]
    companions |= {prefix + end for prefix in pairs for end in (".idx", ".seal")}
    return [path for path in paths if path not in companions]
