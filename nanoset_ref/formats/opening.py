"""Any file of token ids, opened as `Tokens`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.files import PathLike
from nanoset_ref.formats.datatrove_files import DatatroveFile
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
    if path.suffix in (".bin", ".idx") and MMapIndexedDataset.exists(path.with_suffix("")):
        return MMapIndexedDataset(path.with_suffix(""))
    if MMapIndexedDataset.exists(path):
        return MMapIndexedDataset(path)
    if path.name.endswith(".documents.npy"):
        tokens = path.name.removesuffix(".documents.npy") + ".npy"
        raise TokenFileError(f"{path} holds the document boundaries of {tokens}; name that file instead")
    file = TokenFile(path, token_dtype)
    if file.manifest is not None or eos_token_id is None:
        return file
    return EosTokenFile(path, token_dtype, eos_token_id)


class EosTokenFile(TokenFile):
    """A token file without a manifest whose documents end with an id, which is searched for here."""

    def __init__(self, path: PathLike, token_dtype: DTypeLike | None, eos_token_id: int) -> None:
        super().__init__(path, token_dtype)
        ends = np.flatnonzero(self.tokens == eos_token_id) + 1
        closed = len(ends) > 0 and int(ends[-1]) == self.num_tokens
        self._offsets = np.concatenate([[0], ends, [] if closed else [self.num_tokens]]).astype(np.int64)
        self._facts = {"eos_token_id": eos_token_id, "appended_eod": closed}

    @property
    def facts(self) -> dict[str, Any]:
        return self._facts

    @property
    def document_offsets(self) -> NDArray[np.int64]:
        return self._offsets


def without_companions(paths: list[str]) -> list[str]:
    """The paths without those that a glob also names: the boundaries of token files among them, the .idx of a .bin."""
    beside = ((".documents.npy", ".npy"), (".idx", ".bin"))
    return [
        path
        for path in paths
        if not any(path.endswith(end) and path.removesuffix(end) + file in paths for end, file in beside)
    ]
