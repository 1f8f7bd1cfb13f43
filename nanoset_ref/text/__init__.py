"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets, in one fixed order.

A `TextSource` is a list of parts (a file, a dataset), and every part is a sequence of blocks of about a MiB (see
`parts`). The order of parts, blocks and documents depends on the input alone, so several processes can each take a
share of the blocks and still agree on the result.

Nothing in memory grows with the input. Blank lines are no documents. `datasets.load_dataset("json")` reads only what
nothing else can: it first writes the corpus a second time as Arrow, and reports a broken line without its number.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from nanoset_ref.text.lines import DocumentError, InputError
from nanoset_ref.text.parts import (
    PACKED,
    Block,
    Document,
    LineFile,
    OnError,
    PackedFile,
    ParquetFile,
    RowDataset,
    TextPart,
    require_column,
)

__all__ = ["SUFFIXES", "Block", "Document", "DocumentError", "InputError", "OnError", "TextSource", "open_text"]
SUFFIXES = (*(kind + packed for kind in (".json", ".jsonl") for packed in ("", *PACKED)), ".parquet")


@dataclass(frozen=True)
class TextSource:
    """What `open_text` returns: an ordered list of parts, each a sequence of blocks."""

    column: str
    on_error: OnError
    parts: tuple[TextPart, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk, in bytes: what the `num_bytes` of all blocks add up to, roughly."""
        return sum(part.num_bytes for part in self.parts)

    def blocks(self, share: int = 0, shares: int = 1) -> Iterator[Block]:
        """The blocks in their order: all, or those that begin in the share-th of `shares` equal stretches of bytes.

        What comes before a share is passed over unread, except in a compressed file.
        """
        begin, end = (self.num_bytes * k // shares for k in (share, share + 1))
        before = 0
        for part in self.parts:
            if before < end and begin < before + part.num_bytes:
                for block in part.blocks(self.column, self.on_error):
                    if before + block.begin >= end:
                        return
                    if before + block.begin >= begin:
                        yield block
            before += part.num_bytes

    def documents(self) -> Iterator[Document]:
        """All documents in their order."""
        for block in self.blocks():
            yield from block.documents()


def open_text(
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str = "text",
    split: str | None = None,
    on_error: OnError = "raise",
    config: str | None = None,
) -> TextSource:
    """Find out what `input` is and return its documents as a `TextSource`.

    Args:
        input: a .json/.jsonl file (one JSON object per line; .gz and .zst too), a .parquet file, a folder (all such
            files below it, sorted by path), a glob, a folder written by `Dataset.save_to_disk`, the name of a Hub
            dataset, or a list of these, read in the order given.
        column: the name of the column with the text.
        split: of a dataset. A folder with a split is read by `datasets.load_dataset`; a file has only "train".
        on_error: "raise" stops at the first document that cannot be used; "skip" leaves it out and counts it.
        config: the configuration of a Hub dataset, where it has several.

    Raises:
        FileNotFoundError: no such file, nothing matches.
        InputError: wrong kind of file, empty input, unknown split or missing column, with what exists.
    """
    if on_error not in get_args(OnError):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    inputs = [input] if isinstance(input, (str, os.PathLike)) else list(input)
    if not inputs:
        raise InputError("the list of inputs is empty")
    parts = tuple(part for one in inputs for part in _parts(os.fspath(one), split, config))
    if not sum(part.num_bytes for part in parts):
        raise InputError(f"{', '.join(map(str, inputs))}: the input is empty")
    for part in parts:
        if isinstance(part, RowDataset):
            require_column(column, part.dataset.column_names, part.path)
    return TextSource(column, on_error, parts)


def _parts(input: str, split: str | None, config: str | None) -> Iterator[TextPart]:
    path = Path(input)
    saved = any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
    if path.is_dir() and not saved and split is None:
        files = sorted(str(file) for file in path.rglob("*") if _is_data(file, path))
        nothing = f"the folder holds no file ending in {', '.join(SUFFIXES)}"
    elif path.is_file():
        files, nothing = [input], ""
    elif glob.has_magic(input):
        files = sorted(file for file in glob.glob(input, recursive=True) if Path(file).is_file())
        nothing = "no file matches"
    elif not path.is_dir() and (input.endswith(SUFFIXES) or input.startswith((".", "/", "~")) or input.count("/") > 1):
        files, nothing = [], "no such file or folder"
    else:
        yield _load_dataset(input, split, config, saved)
        return
    if not files:
        raise FileNotFoundError(f"{input}: {nothing}")
    if split not in (None, "train"):
        raise InputError(f"{input}: a file has no splits other than 'train', got {split!r}")
    for file in files:
        yield _file(file)


def _is_data(file: Path, folder: Path) -> bool:
    """A file with text in it; not what lies in .ipynb_checkpoints, nor _SUCCESS."""
    hidden = any(name.startswith((".", "_")) for name in file.relative_to(folder).parts)
    return file.name.endswith(SUFFIXES) and not hidden and file.is_file()


def _file(path: str) -> TextPart:
    if not path.endswith(SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(SUFFIXES)}")
    kinds = {".parquet": ParquetFile} | dict.fromkeys(PACKED, PackedFile)
    return kinds.get(Path(path).suffix, LineFile)(path, os.path.getsize(path))


def _load_dataset(name: str, split: str | None, config: str | None, saved: bool) -> RowDataset:
    import datasets

    try:
        data = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except Exception as error:  # the Hub, the network, the cache and the builders each raise their own
        raise InputError(f"{name}: neither a file, a folder nor a dataset that loads ({error})") from error
    if isinstance(data, datasets.DatasetDict):
        if split is None and len(data) == 1:
            split = next(iter(data))
        if split not in data:
            raise InputError(f"{name}: name one of its splits {list(data)}, got {split!r}")
        data = data[split]
    elif split is not None and split != str(data.split):
        raise InputError(f"{name}: holds the split {str(data.split)!r}, got {split!r}")
    return RowDataset(f"{name} ({split})" if split else name, int(data.data.nbytes), data)
