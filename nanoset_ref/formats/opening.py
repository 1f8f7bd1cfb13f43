"""Any file of token ids, opened as `Tokens`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.files import PathLike
from nanoset_ref.formats.datatrove import DatatroveFile
from nanoset_ref.megatron import MMapIndexedDataset
from nanoset_ref.tokens import TokenFile, TokenFileError, Tokens


def open_tokens(path: PathLike, token_dtype: DTypeLike | None = None, eos_token_id: int | None = None) -> Tokens:
    """Open a .npy token file, a .bin/.idx pair (by either name or their common prefix) or a .ds file.

    Args:
        path: the file.
        token_dtype: of a .npy or .ds file that does not say it itself.
        eos_token_id: documents end with this id, in a .npy file without a manifest.

    Raises:
        FileNotFoundError, TokenFileError, IndexedDatasetError: as the format's reader.
    """
    path = Path(path)
    if path.suffix == ".ds":
        return DatatroveFile(path, token_size=None if token_dtype is None else np.dtype(token_dtype).itemsize)
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    if MMapIndexedDataset.exists(prefix):
        return MMapIndexedDataset(prefix)
    if path.name.endswith(".documents.npy"):
        tokens = path.name.removesuffix(".documents.npy") + ".npy"
        raise TokenFileError(f"{path} holds the document boundaries of {tokens}; name that file instead")
    return TokenFile(path, token_dtype, eos_token_id)


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without those that a glob also names: the boundaries of token files among them, the .idx of a .bin."""
    companions = {path.removesuffix(".npy") + ".documents.npy" for path in paths if path.endswith(".npy")}
    companions |= {path.removesuffix(".bin") + ".idx" for path in paths if path.endswith(".bin")}
    return [path for path in paths if path not in companions]
