"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets, in one fixed order.

A `TextSource` is a list of parts (a file, a dataset) and every part is a sequence of blocks of about a MiB that know
how to read themselves (see `parts`). The order of parts, blocks and documents depends on the input alone, so several
processes can share the blocks out among themselves and still agree on what the result is.

Nothing in memory grows with the input. Blank lines are no documents. The alternative, `datasets.load_dataset("json")`
for everything, first writes the corpus a second time as Arrow, reports a broken line without its number and cannot
leave one out; it is used for what only it can read.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanoset_ref.text.lines import DocumentError, InputError, read_lines, text_of_line
from nanoset_ref.text.parts import PACKED, Block, Document, LineFile, OnError, ParquetFile, RowDataset, require_column

__all__ = [
    "SUFFIXES",
    "Block",
    "Document",
    "DocumentError",
    "InputError",
    "OnError",
    "TextSource",
    "open_text",
    "read_lines",
    "text_of_line",
]
SUFFIXES = (*(kind + packed for kind in (".json", ".jsonl") for packed in ("", *PACKED)), ".parquet")
Part = LineFile | ParquetFile | RowDataset


@dataclass(frozen=True)
class TextSource:
    """What `open_text` returns: an ordered list of parts, each a sequence of blocks. Other processes may be sent it."""

    column: str
    on_error: OnError
    parts: tuple[Part, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk, in bytes: what the `num_bytes` of all blocks add up to, roughly."""
        return sum(part.num_bytes for part in self.parts)

    def blocks_of(self, part: int) -> Iterator[Block]:
        """The blocks of one part, in order."""
        return self.parts[part].blocks(self.column, self.on_error)

    def blocks(self) -> Iterator[Block]:
        """All blocks in their global order."""
        for part in range(len(self.parts)):
            yield from self.blocks_of(part)

    def documents(self) -> Iterator[Document]:
        """All documents in their global order."""
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
    if on_error not in ("raise", "skip"):
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


def _hidden(path: Path) -> bool:
    """Whether a file or a folder above it is named as what is not data: .ipynb_checkpoints, _SUCCESS."""
    return any(name.startswith((".", "_")) for name in path.parts)


def _parts(input: str, split: str | None, config: str | None) -> Iterator[Part]:
    path = Path(input)
    saved = any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
    if path.is_dir() and not saved and split is None:
        found = (file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
        files = sorted(str(file) for file in found if not _hidden(file.relative_to(path)))
        if not files:
            raise FileNotFoundError(f"{input}: the folder holds no file ending in {', '.join(SUFFIXES)}")
    elif path.is_file():
        files = [input]
    elif glob.has_magic(input):
        files = sorted(file for file in glob.glob(input, recursive=True) if Path(file).is_file())
        if not files:
            raise FileNotFoundError(f"{input}: no file matches")
    elif not path.is_dir() and (input.endswith(SUFFIXES) or input.startswith((".", "/", "~")) or input.count("/") > 1):
        raise FileNotFoundError(f"{input}: no such file or folder")
    else:
        yield _load_dataset(input, split, config, saved)
        return
    if split not in (None, "train"):
        raise InputError(f"{input}: a file has no splits other than 'train', got {split!r}")
    for file in files:
        if not file.endswith(SUFFIXES):
            raise InputError(f"{file}: unknown kind of file; known are {', '.join(SUFFIXES)}")
        yield (ParquetFile if file.endswith(".parquet") else LineFile)(file, os.path.getsize(file))


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
