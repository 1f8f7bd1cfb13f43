"""One writer per format: documents in pieces, into files that are complete or absent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.files import atomic_write
from nanoset_ref.formats.documents import Ragged
from nanoset_ref.megatron.indexed_dataset import idx_path
from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder
from nanoset_ref.tokens import TokenFileError, TokenFileWriter, documents_path, manifest_path


def _write_token_file(path: Path, pieces: Iterable[Ragged], dtype: np.dtype[Any], description: dict[str, Any]) -> None:
    with TokenFileWriter(path, dtype=dtype, overwrite=True, **description) as writer:
        for ids, lengths in pieces:
            writer.write(ids, lengths)


def _write_megatron(path: Path, pieces: Iterable[Ragged], dtype: np.dtype[Any], description: dict[str, Any]) -> None:
    with MMapIndexedDatasetBuilder(path, dtype, overwrite=True) as builder:
        for ids, lengths in pieces:
            builder.add_documents(ids, lengths)
        builder.finalize(idx_path(path.with_suffix("")))


def _write_datatrove(path: Path, pieces: Iterable[Ragged], dtype: np.dtype[Any], description: dict[str, Any]) -> None:
    width = np.dtype("<u2" if dtype.itemsize == 2 else "<u4")
    total = 0
    with contextlib.ExitStack() as files:  # closes in reverse: the ids are renamed last
        tokens = files.enter_context(atomic_write(path))
        ends = files.enter_context(atomic_write(f"{path}.index"))
        metadata = files.enter_context(atomic_write(f"{path}.metadata", "w"))
        for ids, lengths in pieces:
            if ids.size and (int(ids.min()) < 0 or int(ids.max()) > np.iinfo(width).max):
                raise TokenFileError(
                    f"{path}: ids {ids.min()} to {ids.max()} do not fit {width.name}; choose a wider dtype"
                )
            tokens.write(np.ascontiguousarray(ids, dtype=width).data)
            ends.write((np.cumsum(lengths) + total).astype("<u8").tobytes())
            total += int(ids.size)
        if total == 0:
            raise TokenFileError(f"nothing was written to {path}: a token file holds at least one id")
        metadata.write(f"{description.get('tokenizer') or 'unknown'}|{width.itemsize}\n{total}\n{_short(total)}")


def _short(count: float) -> str:
    """2338 -> "2.34 kT", as datatrove writes it."""
    units = iter(["", "k", "M", "G", "T"])
    unit = next(units)
    while count >= 1000:
        count, unit = count / 1000, next(units)
    return f"{count:.2f} {unit}T"


WRITERS = {".npy": _write_token_file, ".bin": _write_megatron, ".ds": _write_datatrove}


def remove(target: Path) -> None:
    """Remove what `convert` wrote: the ids first, so that no reader takes the rest for a file."""
    beside = {
        ".npy": [manifest_path(target), documents_path(target)],
        ".bin": [target.with_suffix(".idx")],
        ".ds": [Path(f"{target}.index"), Path(f"{target}.metadata")],
    }
    for path in [target, *beside[target.suffix]]:
        path.unlink(missing_ok=True)
