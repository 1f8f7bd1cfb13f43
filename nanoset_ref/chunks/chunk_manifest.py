"""The manifest of a prepared folder, and the accounts in it: no token disappears unnamed.

`manifest.json` records what a folder is made with (`settings`) and, once `complete`, what it holds: lines and checksum
of every file, and where the tokens of every subset went. It is written before the first file and again after
the last. A run that finds it incomplete knows what to go on with; a run with other settings refuses to mix two corpora
in one folder. The files themselves are complete or absent, so this is all the state there is.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import PathLike, atomic_write, checksum

with extra("text", "preparing a corpus"):
    from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

NAME = "manifest.json"
ROWS = "train.jsonl"  # the rows of a subset
OUR_NAMES = re.compile(  # of the files that commands write into a folder
    r"train\.jsonl|train\d*_input_ids\.(npy|json|documents\.npy|sources\.npz)"  # a subset
    r"|train/train_\d+\.jsonl|(valid|leftover)/.+\.jsonl"  # a mix
    r"|train/token_files/train_\d+_input_ids\.(npy|json|documents\.npy|sources\.npz|made_of|lock)"
    r"|(.+/)?\.[^/]+\.\d+-[0-9a-f]{8}\.tmp"  # what a killed writer left
)
OURS = (b"nanoset_ref.chunks/", b'"conservation"')  # one of them is in every manifest of ours


class ManifestError(ValueError):
    """A prepared folder is unfinished, was made with other settings, or does not hold what its manifest says."""


class _Entry(BaseModel):
    """Checked fields; a wrong one is a ValidationError, which is a ValueError."""

    model_config = ConfigDict(frozen=True, strict=True)


class FileEntry(_Entry):
    """One file: its lines (samples; documents of a token file), and "xxh3_128:<hex>"."""

    lines: int
    checksum: str

    @classmethod
    def of(cls, path: Path, lines: int) -> Self:
        return cls(lines=lines, checksum=checksum(path))


class Account(_Entry, extra="allow"):
    """Where the tokens, or the samples, of one subset went. All but its name are counts.

    From documents to rows, `tokenize`:
        documents, skipped_documents: read, and left out.
        special_documents, special_tokens: documents that hold special tokens as text, and how many in all; kept.
        document_tokens, separator_tokens: what the tokenizer made of the documents; the BOS and EOS put around them.
        carried_in_tokens, padding_tokens: the tail of the previous subset; what filled the last row.
        samples, written_tokens: rows written, and the tokens in them.
        cut_tokens, tail_tokens, carried_out_tokens: cut off without wrap; dropped at the end; given to the next subset.

    From rows to chunks, `mix`: samples = valid + train + leftover.
    """

    subset: str
    __pydantic_extra__: dict[str, NonNegativeInt]


class RowFacts(_Entry, extra="ignore"):
    """What the settings of a folder say about its rows: their length, the tokenizer; None where they do not."""

    concat_tokens: PositiveInt | None = None
    tokenizer: str | None = None
    vocab_size: PositiveInt | None = None
    eos_token_id: NonNegativeInt | None = None


class ChunkManifest(_Entry):
    """The content of manifest.json; `files` and what follows are filled in when the folder is complete.

    Args:
        settings: all that the content of the folder depends on, as JSON gives it back.
        facts: about its rows. files: {path in the folder: entry}. conservation: an account per subset.
        carried_tail: ids of the tail that goes to the next subset.
    """

    format: Literal["nanoset_ref.chunks/2"]
    settings: dict[str, Any]
    complete: bool = False
    facts: RowFacts = RowFacts()
    files: dict[str, FileEntry] = {}
    conservation: list[Account] = []
    carried_tail: list[int] = []

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The manifest of `folder`; None if it has none, or somebody else's.

        Raises:
            ManifestError: it is broken.
        """
        path = folder / NAME
        content = path.read_bytes() if path.is_file() else b""
        if not any(word in content for word in OURS):
            return None
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise ManifestError(
                f"{path} is no good manifest: {where} {fault['msg']}; remove what it is of"
            ) from error

    def write(self, folder: Path) -> Self:
        with atomic_write(folder / NAME, "w") as file:
            file.write(self.model_dump_json(indent=1))
        return self

    def finish(self, folder: Path, **content: Any) -> Self:
        """Write it with all that it holds: the folder is complete."""
        return self.model_copy(update={"complete": True, **content}).write(folder)


def complete(
    folder: Path, settings: dict[str, Any], outputs: Sequence[str], overwrite: bool
) -> ChunkManifest | None:
    """The manifest of a folder that a run need not make again; None: it has to.

    The run has `settings`, of values that JSON gives back unchanged, and writes `outputs`, patterns of files or folders
    in the folder.

    Raises:
        ManifestError: there is something of other settings, or that no manifest lists, and `overwrite` is False.
    """
    found = ChunkManifest.read(folder)
    if overwrite or (found and not found.complete):
        return None
    if found and found.settings == settings:
        return found
    if existing := _existing(folder, [*outputs, NAME]):
        known = found.settings if found else {}
        differing = [key for key, value in settings.items() if known.get(key) != value]
        raise ManifestError(
            f"{existing[0]} was not made with these settings, {', '.join(differing)} differ: "
            "choose another output folder, or --overwrite (overwrite=True)"
        )
    return None


def begin(
    folder: Path, settings: dict[str, Any], outputs: Sequence[str], facts: RowFacts
) -> ChunkManifest:
    """Make `folder` ready for a run that `complete` lets go on, and return its manifest.

    What an unfinished run of the same settings has written is complete and stays; what others wrote is removed first.

    Raises:
        ManifestError: something lies there that none of them wrote, and nothing is removed.
    """
    found = ChunkManifest.read(folder)
    if found and found.settings == settings and not found.complete:
        return found
    old = [
        path
        for path in _below(_existing(folder, outputs))
        if not path.is_dir() or path.is_symlink()
    ]
    for path in old:
        if path.is_symlink() or not OUR_NAMES.fullmatch(path.relative_to(folder).as_posix()):
            raise ManifestError(
                f"{path} is not known to be written by this command, and stays: move it away"
            )
    folder.mkdir(parents=True, exist_ok=True)
    manifest = ChunkManifest(format="nanoset_ref.chunks/2", settings={}, facts=facts)
    manifest.write(folder)  # killed from here on, the next run does this again
    for path in old:
        path.unlink()
    return manifest.model_copy(update={"settings": settings}).write(folder)


def _below(paths: Iterable[Path]) -> list[Path]:
    """The paths and all that lies in those of them that are folders."""
    return [found for path in paths for found in (path, *path.rglob("*"))]


def _existing(folder: Path, outputs: Sequence[str]) -> list[Path]:
    return [path for pattern in outputs for path in folder.glob(pattern)]


def above(paths: Iterable[Path]) -> dict[Path, ChunkManifest]:
    """{folder: manifest} of the prepared folders that `paths` lie in, those of the first path first."""
    folders = dict.fromkeys(folder for path in paths for folder in path.resolve().parents)
    return {folder: manifest for folder in folders if (manifest := ChunkManifest.read(folder))}


def faults(
    manifests: dict[Path, ChunkManifest], paths: Iterable[PathLike]
) -> Iterator[tuple[Path, str]]:
    """(path, what is wrong): folders that are not finished, files among or below `paths` that are not as listed."""
    given = [Path(path).resolve() for path in paths]
    for folder, manifest in manifests.items():
        if not manifest.complete:
            yield folder, "not finished: run the command that makes it once more"
        for name, entry in manifest.files.items():
            path = folder / name
            wanted = any(map(path.is_relative_to, given))
            if wanted and not path.exists():
                yield path, "missing, though the manifest lists it"
            elif wanted and entry.checksum != checksum(path):
                yield path, "changed: it has not the checksum that the manifest says"


def agreed(manifests: dict[Path, ChunkManifest], paths: Iterable[PathLike]) -> RowFacts:
    """What all say about their rows.

    Raises:
        ManifestError: what `faults` finds, or they do not say the same.
    """
    for path, what in faults(manifests, paths):
        raise ManifestError(f"{path}: {what}")
    said = {manifest.facts for manifest in manifests.values()} or {RowFacts()}
    if len(said) > 1:
        raise ManifestError(
            f"these rows do not go together, tokenise them alike: {sorted(map(str, said))}"
        )
    return said.pop()


def report(conservation: Sequence[Account]) -> str:
    """The accounts of one kind as a table with a line of totals; columns that are 0 everywhere are left out."""
    columns = []
    for name in conservation[0].model_dump():
        values = [getattr(account, name) for account in conservation]
        cells, side = [name, *values, "total"], "<"
        if name != "subset":
            cells, side = (
                [name.replace("_", " "), *(f"{value:,}" for value in [*values, sum(values)])],
                ">",
            )
        width = max(map(len, cells))
        if any(values):
            columns.append([f"{cell:{side}{width}}" for cell in cells])
    return "\n".join(map("  ".join, zip(*columns, strict=True)))
