"""Companions of token files: document boundaries and labels; lists of files without companions."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.mmap_limit import should_map
from nanoset_ref.io.paths import (
    PathLike,
    as_path,
    checksum,
    file_size,
    file_version,
    location_of,
)
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.io.urls import local_copy
from nanoset_ref.tokens.interface import BLOCK_IDS
from nanoset_ref.tokens.manifest import (
    DOCUMENTS_SUFFIX,
    LABELS_SUFFIX,
    MANIFEST_SUFFIX,
    Manifest,
    TokenFileError,
)

SEAL_BEGINNING = b'"xxh3_128:'  # of the checksum in a .seal, as JSON
DAMAGED_BOUNDARIES = (
    "document boundaries do not ascend: their file is damaged, write it again"
)
# the endings of files that may lie beside a file of each format, in place of its suffix
COMPANIONS = {
    ".npy": (MANIFEST_SUFFIX, DOCUMENTS_SUFFIX, LABELS_SUFFIX),
    ".bin": (".idx", ".seal"),
    ".ds": (".ds.index", ".ds.metadata"),
}


def without_companions(paths: Sequence[str]) -> list[str]:
    """Drop the companions of other files: manifests, boundaries, indexes, seals, ..."""
    companions = {companion for path in paths for companion in companions_of(path)}
    return [path for path in paths if path not in companions]


def companions_of(path: PathLike) -> list[str]:
    """The paths of all files that may belong to a token file."""
    location = location_of(path)
    name = location if isinstance(location, str) else location.key
    stem, suffix = os.path.splitext(name)
    endings = [f"{suffix}.seal", *COMPANIONS.get(suffix, ())]
    if name is location:
        return [stem + ending for ending in endings]
    return [os.fspath(location.with_suffix(ending)) for ending in endings]


def refuse_link_without_companions(path: Path, *suffixes: str) -> None:
    """Raise TokenFileError if companions with the dtype lie beside a link's target alone."""
    target = path.resolve()
    for suffix in suffixes:
        companion = target.with_suffix(suffix)
        if companion.is_file():
            raise TokenFileError(
                f"{path} is a link to {target}, whose dtype is in {companion.name}: open that "
                "file, or link its companions as well"
            )


def prefix_of(path: PathLike) -> str:
    """The prefix of a .bin/.idx pair: its path or URL without .bin or .idx."""
    location = location_of(path)
    if isinstance(location, str):
        return location.removesuffix(".bin").removesuffix(".idx")
    if location.suffix in (".bin", ".idx"):
        location = location.with_suffix("")
    return os.fspath(location)


def bin_of_pair(path: PathLike) -> str | None:
    """The .bin of a .bin/.idx pair, from any of its names; None for anything else.

    A local pair has an .idx, and the URL of a pair ends in .bin or .idx.
    """
    location = location_of(path)
    if isinstance(location, str):
        prefix = prefix_of(location)
        return f"{prefix}.bin" if os.path.lexists(f"{prefix}.idx") else None
    if location.suffix not in (".bin", ".idx"):
        return None
    return os.fspath(location.with_suffix(".bin"))


def read_document_offsets(
    path: PathLike, num_documents: int, num_tokens: int
) -> Int64Array:
    """The document boundaries of a .npy token file, int64 [num_documents + 1], mapped.

    Raises:
        TokenFileError: the file is missing or damaged, or belongs to another token file.
    """
    try:
        # refuses pipes, folders and devices
        mode: Any = "r" if should_map(file_size(path)) else None
        with local_copy(path) as local:
            offsets = np.load(local, mmap_mode=mode, allow_pickle=False)
    except Exception as error:  # a damaged header raises errors of many types
        raise TokenFileError(
            f"{path} is missing, or is not a file of document boundaries ({error})"
        ) from error
    size = num_documents + 1
    fits = offsets.dtype == np.int64 and offsets.shape == (size,)
    if not fits or offsets[0] != 0 or offsets[-1] != num_tokens:
        raise TokenFileError(
            f"{path} must hold {size} int64 offsets from 0 to {num_tokens}; does it belong to "
            "another token file? Copy both again"
        )
    return offsets


def require_ascending(offsets: Int64Array, path: PathLike) -> None:
    """Raise TokenFileError if an offset [n] is below its predecessor; reads blocks of a mapping."""
    for first in range(0, len(offsets), BLOCK_IDS):
        block = offsets[first : first + BLOCK_IDS + 1]
        if np.any(block[1:] < block[:-1]):
            raise TokenFileError(f"{path}: {DAMAGED_BOUNDARIES}")


def find_document_offsets(ids: Array, eos_token_id: int) -> Int64Array:
    """The boundaries of documents that end with an id, int64 [documents + 1]."""
    eos_token_id = whole_number(eos_token_id, "eos_token_id", 0)
    ends = [np.array([0])]
    for first in range(0, len(ids), BLOCK_IDS):
        block = ids[first : first + BLOCK_IDS]
        ends.append(first + 1 + np.flatnonzero(block == eos_token_id))
    ends.append(np.array([len(ids)]))
    return np.unique(np.concatenate(ends))


def read_labels(
    path: PathLike, manifest: Manifest | None
) -> tuple[Array, Array] | None:
    """The labels, and each document's label number; None if the manifest records none.

    None also if the file is missing.

    Args:
        path: a file of `TokenFileWriter.write_labels`.
        manifest: the token file's.

    Raises:
        TokenFileError: the file is not the one that was written with the manifest.
    """
    recorded = None if manifest is None else manifest.sources
    if recorded is None or file_version(path) is None:
        return None
    if checksum(path) != recorded:
        raise TokenFileError(
            f"{path} was not written with its token file, or has changed since; copy it again, or "
            "remove it"
        )
    content = io.BytesIO(as_path(path).read_bytes())
    with np.load(content, allow_pickle=False) as archive:
        return archive["labels"], archive["numbers"]
