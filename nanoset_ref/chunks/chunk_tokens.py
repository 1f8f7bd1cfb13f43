"""Chunks as training reads them, one at a time, every row a sample, in the order of the file.

A chunk is converted to a token file when it is first asked for, into `token_files` beside the chunks: 2 or 4 bytes per
token, once for all ranks and runs.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.chunks.chunk_manifest import above
from nanoset_ref.chunks.chunk_rows import chunks_to_tokens, row_files
from nanoset_ref.files import PathLike, lock
from nanoset_ref.orders import Order
from nanoset_ref.tokens import TokenFile

Int64 = NDArray[np.int64]


def chunk_files(folder: PathLike) -> list[Path]:
    """The chunks in a folder, chunk 2 before chunk 10: those in train/ of what `mix` wrote, or all .jsonl files."""
    train = Path(folder, "train")
    return row_files([train if train.is_dir() else folder])


def count_rows(path: Path) -> int:
    """Rows of a chunk, from the manifest above it, or else by counting."""
    for folder, manifest in above([path]).items():
        entry = manifest.files.get(path.resolve().relative_to(folder).as_posix())
        if entry is not None:
            return entry.lines
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def chunk_tokens(path: Path, vocab_size: int | None) -> TokenFile:
    """The token file of a chunk; processes that ask for it at once wait for the one that writes it.

    Raises:
        ValueError: as `chunks_to_tokens`.
    """
    target = path.parent / "token_files" / f"{path.stem}_input_ids.npy"
    target.parent.mkdir(exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as file:
        with contextlib.suppress(OSError):  # without locks some write it twice, each completely
            lock(file, wait=True)
        is_new = target.exists() and target.stat().st_mtime_ns > path.stat().st_mtime_ns
        if not is_new or TokenFile(target).manifest is None:
            chunks_to_tokens([path], target, vocab_size=vocab_size, overwrite=True)
        return TokenFile(target)


class FileOrder(Order):
    """The samples of one file as they lie in it, again and again."""

    name = "file"

    def lookup(self, positions: Int64) -> tuple[Int64, Int64]:
        return np.zeros_like(positions), positions % self.samples_per_epoch

    def _positions(self, dataset: int, sample: int, until: int) -> Int64:
        return np.arange(sample, until, self.samples_per_epoch)

    def _counts(self, until: int) -> Int64:
        return np.array([until])
