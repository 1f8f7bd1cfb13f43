"""`open_tokens`: a file of token ids, in whatever format it is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.io.paths import PathLike, in_bucket, located
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.npy import TokenFile


def open_tokens(
    path: PathLike,
    token_dtype: DTypeLike | None = None,
    eos_token_id: int | None = None,
    *,
    allow_unversioned: bool = False,
) -> Tokens:
    """Open a .npy token file, a .bin/.idx pair (by either name or their common prefix), a .ds file, or a .bin with the
    header of llm.c.

    Args:
        path: the file, or the URL of a .npy, .bin/.idx or .ds (see `nanoset_ref.io.buckets`).
        token_dtype: of a .npy or .ds file that does not say it itself.
        eos_token_id: documents end with this id, in a .npy file without a manifest.
        allow_unversioned: read also from a server that tells no versions of its objects, where nobody would notice a
            replaced one.

    Raises:
        FileNotFoundError, TokenFileError: as the format's reader.
        StorageError: a URL that cannot be read (see `nanoset_ref.io.buckets`).
    """
    path = located(path, allow_unversioned)
    dtype = None if token_dtype is None else np.dtype(token_dtype)
    if path.suffix == ".ds":
        from nanoset_ref.tokens.ds import DatatroveFile  # only where such a file is met

        return DatatroveFile(path, token_size=dtype and dtype.itemsize)
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    is_pair = prefix != path  # in a bucket nobody looks whether the .idx is there
    if not in_bucket(path):
        is_pair = path.suffix != ".npy" and Path(f"{prefix}.idx").exists()
    if is_pair:
        from nanoset_ref.tokens.bin_idx import MMapIndexedDataset  # as above

        pair = MMapIndexedDataset(prefix)
        if dtype not in (None, pair.dtype):
            raise TokenFileError(
                f"{path}: token_dtype={dtype} contradicts the .idx, which says {pair.dtype}"
            )
        return pair
    if path.suffix == ".bin" and path.is_file():  # a format that few files have
        from nanoset_ref.tokens.llm_c_shard import LlmCFile, has_header

        if has_header(path):
            return LlmCFile(path, eos_token_id)
    if path.name.endswith(".documents.npy"):
        tokens = path.name.removesuffix(".documents.npy") + ".npy"
        raise TokenFileError(
            f"{path} holds the document boundaries of {tokens}; name that file instead"
        )
    return TokenFile(path, token_dtype, eos_token_id)


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without those that a glob also names: the boundaries of token files, the .idx of a .bin, and seals."""
    companions = {
        path.removesuffix(".npy") + ".documents.npy" for path in paths if path.endswith(".npy")
    }
    pairs = [path.removesuffix(".bin") for path in paths if path.endswith(".bin")]
    companions |= {prefix + end for prefix in pairs for end in (".idx", ".seal")}
    companions |= {f"{path}.seal" for path in paths}
    return [path for path in paths if path not in companions]
