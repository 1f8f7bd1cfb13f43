"""Open text: JSON lines (plain, gzip, zstd), Parquet files, Hub and local datasets.

A `TextSource` is a list of parts (a file, a dataset). `open_text` finds them; `text_formats` cuts
each into blocks, `text_blocks` reads the documents in them, `json_lines` the text of one. The order
of parts, blocks and documents depends on the input alone.
"""

import contextlib
import dataclasses
import glob
import logging
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.io.urls import local_path
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text_blocks import Document, OnError, TextBlock, TextPart
from nanoset_ref.preprocess.text_formats import (
    SUFFIXES,
    blocks_of_dataset,
    part_of_file,
)
from nanoset_ref.preprocess.tokenizer import hub_problem
from nanoset_ref.tokens import MANIFEST_SUFFIX, Manifest, TokenFileError

logger = logging.getLogger(__name__)

# Dataset.save_to_disk writes one of them
SAVED_FILE_NAMES = "state.json", "dataset_dict.json"
# a tokenizer is tried on at most
PROBE_PARTS = 20
PROBE_DOCUMENTS = 500  # in all these parts, roughly
PROBE_CHARS = 2000  # of each document


@dataclass(frozen=True)
class TextSource:
    """The parts of an input in order; `open_text` makes one.

    Args:
        column: as given to `open_text`.
        parts: the files and datasets, each a sequence of blocks.
    """

    column: str | Sequence[str]
    parts: tuple[TextPart, ...]

    @property
    def num_bytes(self) -> int:
        """The size of the input on disk; roughly the sum of `num_bytes` over all blocks."""
        return sum(part.num_bytes for part in self.parts)

    def blocks(self) -> Iterator[TextBlock]:
        """The blocks of all parts, in order."""
        for part in self.parts:
            yield from part.read_blocks(part)

    def documents(self) -> Iterator[Document]:
        """All documents, in order."""
        for block in self.blocks():
            yield from block.documents()

    def probe_texts(self) -> Iterator[str]:
        """Yield beginnings of the first documents of evenly spaced parts, to try a tokenizer on.

        An unreadable document ends its part here; reading the whole part will report the error.
        """
        chosen = self.parts[:: math.ceil(len(self.parts) / PROBE_PARTS)]
        number = math.ceil(PROBE_DOCUMENTS / len(chosen))
        for part in chosen:
            documents = dataclasses.replace(self, parts=(part,)).documents()
            with contextlib.suppress(InputError):
                for document in islice(documents, number):
                    yield document.text[:PROBE_CHARS]


# ---- inputs


def open_text(
    input: PathLike | Sequence[PathLike],
    *,
    column: str | Sequence[str] = "text",
    split: str | None = None,
    on_error: OnError = "raise",
    config: str | None = None,
) -> TextSource:
    """Open the documents of an input.

    Args:
        input: a .json/.jsonl file (one JSON object per line; .gz and .zst too), a .parquet file, a
            folder (all such files below it, sorted by path), a glob, a folder written by
            `Dataset.save_to_disk`, the name of a Hub dataset, or a list of these, read in this
            order.
        column: the column with the text; or several names: the first that a document has is used.
        split: the split of a dataset. A folder with a split is read by `datasets.load_dataset`; a
            file has only "train".
        on_error: "raise" stops at the first unusable document; "skip" leaves it out and counts it.
        config: the configuration of a Hub dataset that has several.

    Raises:
        FileNotFoundError: no such file, or no match.
        InputError: wrong type of file, empty input, unknown split or configuration, missing column;
            the message lists the alternatives.
    """
    if on_error not in get_args(OnError):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    inputs = as_list(input)
    columns = (column,) if isinstance(column, str) else tuple(column)
    parts = []
    for name in map(os.fspath, inputs):
        local_path(name, "text")
        files = None if split and os.path.isdir(name) else _files(name)
        if files is None:
            data, title = _load_dataset(name, split, config)
            read_blocks = partial(blocks_of_dataset, data)
            parts.append(
                TextPart(title, int(data.data.nbytes), columns, on_error, read_blocks)
            )
            continue
        if split not in (None, "train"):
            raise InputError(
                f"{name}: a file has no splits other than 'train', got {split!r}"
            )
        if config is not None:
            raise _configuration_error(name, "files have", config)
        parts += [part_of_file(file, columns, on_error) for file in files]
    _warn_of_repeated(parts)
    source = TextSource(column, tuple(parts))
    if not source.num_bytes:
        raise InputError(
            f"{', '.join(map(str, inputs)) or 'an empty list'}: the input is empty"
        )
    return source


def _warn_of_repeated(parts: Sequence[TextPart]) -> None:
    """Warn of the first file that several inputs name, such as a folder and a pattern."""
    versions = set()
    for part in parts:
        if part.version in versions:
            logger.warning("%s is read again: several inputs name it", part.path)
            return
        if part.version is not None:
            versions.add(part.version)


def _configuration_error(name: str, subject: str, config: str) -> InputError:
    """The error for a configuration of an input that has none."""
    return InputError(
        f"{name}: {subject} no configurations, got {config!r}; leave it out (--dataset-config)"
    )


def _is_saved(folder: Path) -> bool:
    """Whether `Dataset.save_to_disk` wrote this folder."""
    return any((folder / name).is_file() for name in SAVED_FILE_NAMES)


def _files(name: str) -> list[str] | None:
    """The files of an input; None if it is the name of a dataset."""
    path = Path(name)
    if path.is_file():
        return [name]
    if path.is_dir():
        if _is_saved(path):
            return None
        files = list(map(str, text_files(path)))
    elif path.exists():
        raise InputError(
            f"{name} is neither a regular file nor a folder; copy its content into a file"
        )
    elif glob.has_magic(name):
        matches = sorted(filter(os.path.isfile, glob.glob(name, recursive=True)))
        files = [match for match in matches if not _is_manifest(Path(match))]
    elif (
        name.endswith(SUFFIXES)
        or name.startswith((".", "/", "~"))
        or name.count("/") > 1
    ):
        raise FileNotFoundError(f"{os.path.abspath(name)}: no such file or folder")
    else:
        return None
    if not files:
        raise FileNotFoundError(
            f"{name}: no file matches; known types are {', '.join(SUFFIXES)}"
        )
    return files


def text_files(folder: Path) -> list[Path]:
    """The text files below a folder, sorted.

    Names that begin with "." or "_", such as .ipynb_checkpoints and _SUCCESS, are skipped. So are
    the manifests of token files. A link to a folder is not followed, since it may lead to files
    that are found without it; a warning says so.
    """
    files = []
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if any(part.startswith((".", "_")) for part in parts):
            continue
        is_text = file.name.endswith(SUFFIXES)
        if file.is_symlink() and (file.is_dir() or (is_text and not file.exists())):
            what = "folder" if file.is_dir() else "missing file"
            logger.warning("%s is a link to a %s and is skipped", file, what)
        elif is_text and file.is_file() and not _is_manifest(file):
            files.append(file)
    return files


def _is_manifest(file: Path) -> bool:
    """Whether this is the manifest of a token file."""
    if file.suffix != MANIFEST_SUFFIX or not file.with_suffix(".npy").is_file():
        return False
    with contextlib.suppress(TokenFileError):
        Manifest.read(file)
        return True
    return file.name.endswith("_input_ids.json")


def _load_dataset(name: str, split: str | None, config: str | None) -> tuple[Any, str]:
    """Load a dataset; return it, and its name for errors."""
    with extra("text", "reading a dataset"):
        import datasets

    saved = _is_saved(Path(name))
    if saved and config is not None:
        raise _configuration_error(
            name, "a dataset written by save_to_disk has", config
        )
    problem = "" if Path(name).exists() else hub_problem()
    if problem:
        raise InputError(
            f"{name}: neither a file nor a folder, and {problem}; "
            "HF_HUB_OFFLINE=1 reads what was downloaded before"
        )
    try:
        data = (
            datasets.load_from_disk(name)
            if saved
            else datasets.load_dataset(name, config)
        )
    # the Hub, the network, the cache and the builders raise their own
    except Exception as error:
        raise InputError(
            f"{name}: neither a file, a folder nor a dataset that loads ({error})"
        ) from error
    splits = data if isinstance(data, dict) else {data.split and str(data.split): data}
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise InputError(
            f"{name}: name one of its splits {list(splits)}, got {split!r}"
        )
    return splits[split], f"{name} ({split})" if split else name
