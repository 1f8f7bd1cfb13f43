"""Documents out of text: JSON lines (plain, gzip, zstd), Parquet, Hub and local datasets, in one fixed order.

A `TextSource` is a list of parts (a file, a dataset), and every part is a sequence of blocks of about a MiB (see
`parts`). The order of parts, blocks and documents depends on the input alone.

Nothing in memory grows with the input. Blank lines are no documents. `datasets.load_dataset("json")` reads only what
nothing else can: it first writes the corpus a second time as Arrow, and reports a broken line without its number.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from nanoset_ref.files import listed
from nanoset_ref.text.lines import DocumentError as DocumentError
from nanoset_ref.text.lines import InputError
from nanoset_ref.text.parts import SUFFIXES, Block, Document, OnError, RowDataset, TextPart, file_part

__all__ = [
    "SUFFIXES",
    "Block",
    "Document",
    "InputError",
    "OnError",
    "TextSource",
    "hub_problem",
    "open_text",
    "text_files",
]
PROBE_DOCUMENTS, PROBE_CHARS = 500, 2000
SAVED = ("state.json", "dataset_dict.json")  # one of them lies in a folder that Dataset.save_to_disk has written


@dataclass(frozen=True)
class TextSource:
    """What `open_text` returns: an ordered list of parts, each a sequence of blocks."""

    column: str
    parts: tuple[TextPart, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk, in bytes: what the `num_bytes` of all blocks add up to, roughly."""
        return sum(part.num_bytes for part in self.parts)

    def blocks(self) -> Iterator[Block]:
        """The blocks in their order."""
        for part in self.parts:
            yield from part.blocks()

    def documents(self) -> Iterator[Document]:
        """All documents in their order."""
        for block in self.blocks():
            yield from block.documents()

    def beginning(self) -> Iterator[str]:
        """The beginnings of the first documents: enough to try a tokenizer on."""
        return (document.text[:PROBE_CHARS] for document in islice(self.documents(), PROBE_DOCUMENTS))


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
    inputs = listed(input)
    parts: list[TextPart] = []
    for given in inputs:
        name = os.fspath(given)
        files = None if split and os.path.isdir(name) else _files(name)
        if files is None:
            data, title = _load_dataset(name, split, config)
            parts.append(RowDataset(title, int(data.data.nbytes), column, on_error, data))
        elif split not in (None, "train"):
            raise InputError(f"{name}: a file has no splits other than 'train', got {split!r}")
        parts += [file_part(file, column, on_error) for file in files or ()]
    source = TextSource(column, tuple(parts))
    if not source.num_bytes:
        raise InputError(f"{', '.join(map(str, inputs)) or 'an empty list'}: the input is empty")
    return source


def _files(name: str) -> list[str] | None:
    """The files that a name stands for; None: it is the name of a dataset."""
    path = Path(name)
    if path.is_file():
        return [name]
    if path.is_dir():
        if any((path / saved).is_file() for saved in SAVED):
            return None
        files = list(map(str, text_files(path)))
    elif glob.has_magic(name):
        files = sorted(file for file in glob.glob(name, recursive=True) if os.path.isfile(file))
    elif name.endswith(SUFFIXES) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FileNotFoundError(f"{name}: no such file or folder")
    else:
        return None
    if not files:
        raise FileNotFoundError(f"{name}: no file matches; known kinds are {', '.join(SUFFIXES)}")
    return files


def text_files(folder: Path) -> list[Path]:
    """The files with text below a folder, sorted; not what lies in .ipynb_checkpoints, nor _SUCCESS."""
    found = (file for file in sorted(folder.rglob("*")) if file.name.endswith(SUFFIXES) and file.is_file())
    return [file for file in found if not any(part[0] in "._" for part in file.relative_to(folder).parts)]


def hub_problem() -> str:
    """Why the Hub cannot be reached, if so. Asked once, because other libraries ask for a minute before they say so."""
    from huggingface_hub import constants, get_session

    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # of the HTTP library
        return f"{constants.ENDPOINT} cannot be reached: {error}"
    return ""


def _load_dataset(name: str, split: str | None, config: str | None) -> tuple[Any, str]:
    """A dataset, and how errors call it."""
    import datasets

    saved = any(Path(name, file).is_file() for file in SAVED)
    if not Path(name).exists() and (problem := hub_problem()):
        cached = "HF_HUB_OFFLINE=1 reads what was downloaded before"
        raise InputError(f"{name}: neither a file nor a folder, and {problem}; {cached}")
    try:
        data = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except Exception as error:  # the Hub, the network, the cache and the builders each raise their own
        raise InputError(f"{name}: neither a file, a folder nor a dataset that loads ({error})") from error
    splits = data if isinstance(data, dict) else {data.split and str(data.split): data}
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise InputError(f"{name}: name one of its splits {list(splits)}, got {split!r}")
    return splits[split], f"{name} ({split})" if split else name
