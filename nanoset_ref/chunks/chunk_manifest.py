"""The manifest of a prepared folder, and its accounts, in which no token is missing.

`manifest.json` records the `settings` of the run that fills a folder and, once `complete`, its
content: lines and checksum of every file, and an account of the tokens of every subset. It is
written before the first file and again after the last. A run that finds it incomplete resumes; a
run with other settings refuses to mix two corpora in one folder. The files themselves are complete
or absent, so there is no other state.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import atomic_write
from nanoset_ref.io.paths import PathLike, checksum
from nanoset_ref.io.pydantic_errors import problems_of

with extra("text", "preparing a corpus"):
    from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

NAME = "manifest.json"
ROWS = "train.jsonl"  # the rows of a subset
OUR_NAMES = re.compile(  # names of the files that commands write into a folder
    r"train\.jsonl|train\d*_input_ids\.(npy|json|documents\.npy|sources\.npz)"  # a subset
    r"|train/train_\d+\.jsonl|(valid|leftover)/.+\.jsonl"  # a mix
    r"|train/token_files/train_\d+_input_ids\.(npy|json|documents\.npy|sources\.npz|made_of|lock)"
    r"|(.+/)?\.[^/]+\.\d+-[0-9a-f]{8}\.tmp"  # the temporary of a killed writer
)
OURS = (b"nanoset_ref.chunks/", b'"conservation"')  # each of our manifests contains one of them


class ManifestError(ValueError):
    """A prepared folder is unfinished, has other settings, or differs from its manifest."""


class _Entry(BaseModel):
    """Checked fields; a wrong one is a ValidationError, which is a ValueError."""

    model_config = ConfigDict(frozen=True, strict=True)


class FileEntry(_Entry):
    """One file.

    Attributes:
        lines: their number; the number of documents of a token file.
        checksum: "xxh3_128:<hex>".
    """

    lines: int
    checksum: str

    @classmethod
    def of(cls, path: Path, lines: int) -> Self:
        return cls(lines=lines, checksum=checksum(path))


class Account(_Entry, extra="allow"):
    """The account of the tokens, or of the samples, of one subset. All fields but its name are counts.

    From documents to rows, `tokenize`:
        documents: encoded.
        skipped_documents: left out.
        special_documents: that hold special tokens as text.
        special_tokens: in these documents, which keep them.
        document_tokens: of the documents themselves.
        separator_tokens: the BOS and EOS put around documents.
        carried_in_tokens: the tail of the previous subset.
        padding_tokens: in rows.
        samples: rows written.
        written_tokens: in these rows.
        cut_tokens: cut off without wrap.
        tail_tokens: dropped at the end.
        carried_out_tokens: passed to the next subset.

    From rows to chunks, `mix`: samples = valid + train + leftover.
    """

    subset: str
    __pydantic_extra__: dict[str, NonNegativeInt]


class RowFacts(_Entry, extra="ignore"):
    """Length and tokenizer of the rows of a folder, from its settings; None if unknown."""

    concat_tokens: PositiveInt | None = None
    tokenizer: str | None = None
    vocab_size: PositiveInt | None = None
    eos_token_id: NonNegativeInt | None = None


class ChunkManifest(_Entry):
    """The content of manifest.json; `files` and the fields after it are filled in when the folder is complete.

    Args:
        settings: JSON values that determine the content of the folder.
        complete: whether the folder is.
        facts: about its rows.
        files: {path in the folder: entry}.
        conservation: an account per subset.
        carried_tail: ids of the tail that is passed to the next subset.
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
        """The manifest of `folder`; None if there is none, or that of another program.

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
            fault = problems_of(error)[0]
            way_out = "delete this folder and run the command again"
            raise ManifestError(f"{path} is no valid manifest: {fault}; {way_out}") from error

    def write(self, folder: Path) -> Self:
        with atomic_write(folder / NAME, "w") as file:
            file.write(self.model_dump_json(indent=1))
        return self

    def finish(self, folder: Path, **content: Any) -> Self:
        """Add the `content` fields and write it: the folder is complete."""
        return self.model_copy(update={"complete": True, **content}).write(folder)


def finished_manifest(
    folder: Path, settings: dict[str, Any], outputs: Sequence[str], overwrite: bool
) -> ChunkManifest | None:
    """The manifest of a folder that is complete with these settings; None: the run has to fill it.

    Args:
        settings: of the run, in JSON values.
        outputs: patterns of the files or folders that the run writes into the folder.
        overwrite: whether the run may replace the outputs of another.

    Raises:
        ManifestError: the folder holds outputs of other settings, or without a manifest, and
            `overwrite` is False.
    """
    found = ChunkManifest.read(folder)
    if overwrite or (found and not found.complete):
        return None
    if found and found.settings == settings:
        return found
    existing = _existing(folder, [*outputs, NAME])
    if existing:
        known = found.settings if found else {}
        differing = [key for key, value in settings.items() if known.get(key) != value]
        way_out = "choose another output folder, or --overwrite (overwrite=True)"
        problem = f"was not made with these settings, {', '.join(differing)} differ"
        raise ManifestError(f"{existing[0]} {problem}: {way_out}")
    return None


def start_manifest(
    folder: Path, settings: dict[str, Any], outputs: Sequence[str], facts: RowFacts
) -> ChunkManifest:
    """Prepare `folder` for a run that `finished_manifest` allows, and return its manifest.

    Files of an unfinished run with the same settings are complete and stay; those of other settings
    are removed first.

    Raises:
        ManifestError: no command wrote one of these files; nothing is removed then.
    """
    found = ChunkManifest.read(folder)
    if found and found.settings == settings and not found.complete:
        return found
    old = []
    for top in _existing(folder, outputs):
        for path in (top, *top.rglob("*")):
            is_ours = OUR_NAMES.fullmatch(path.relative_to(folder).as_posix())
            if path.is_symlink() or not (is_ours or path.is_dir()):
                raise ManifestError(
                    f"{path} is not known to be written by this command, and stays: move it away"
                )
            if not path.is_dir():
                old.append(path)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = ChunkManifest(format="nanoset_ref.chunks/2", settings={}, facts=facts)
    manifest.write(folder)  # if this run is killed from here on, the next one starts over
    for path in old:
        path.unlink()
    return manifest.model_copy(update={"settings": settings}).write(folder)


def _existing(folder: Path, outputs: Sequence[str]) -> list[Path]:
    return [path for pattern in outputs for path in folder.glob(pattern)]


def manifests_above(paths: Iterable[Path]) -> dict[Path, ChunkManifest]:
    """{folder: manifest} of the prepared folders above `paths`; those above the first path come first."""
    folders = dict.fromkeys(folder for path in paths for folder in path.resolve().parents)
    found = {}
    for folder in folders:
        manifest = ChunkManifest.read(folder)
        if manifest:
            found[folder] = manifest
    return found


def find_problems(
    manifests: dict[Path, ChunkManifest], paths: Iterable[PathLike]
) -> Iterator[tuple[Path, str]]:
    """Yield (path, problem) for unfinished folders, and for files in or below `paths` that differ from
    their manifest.
    """
    given = [Path(path).resolve() for path in paths]
    for folder, manifest in manifests.items():
        if not manifest.complete:
            yield folder, "not finished: run the command that makes it again"
        for name, entry in manifest.files.items():
            path = folder / name
            if not any(map(path.is_relative_to, given)):
                continue
            if not path.exists():
                yield path, "missing, though the manifest lists it"
            elif entry.checksum != checksum(path):
                yield path, "changed: its checksum differs from the manifest's"


def common_facts(manifests: dict[Path, ChunkManifest], paths: Iterable[PathLike]) -> RowFacts:
    """The facts about rows that all manifests share.

    Raises:
        ManifestError: `find_problems` finds one, or the facts differ.
    """
    for path, problem in find_problems(manifests, paths):
        raise ManifestError(f"{path}: {problem}")
    facts = {manifest.facts for manifest in manifests.values()} or {RowFacts()}
    if len(facts) > 1:
        differing = sorted(map(str, facts))
        raise ManifestError(f"these rows do not go together, tokenize them alike: {differing}")
    return facts.pop()


def report(conservation: Sequence[Account]) -> str:
    """A table of accounts of one kind, with a line of totals and without columns of zeros."""
    names = ["subset", *(account.subset for account in conservation), "total"]
    columns = [[f"{name:<{max(map(len, names))}}" for name in names]]
    for field in conservation[0].__pydantic_extra__:
        values = [getattr(account, field) for account in conservation]
        if any(values):
            cells = [field.replace("_", " "), *(f"{value:,}" for value in [*values, sum(values)])]
            width = max(map(len, cells))
            columns.append([cell.rjust(width) for cell in cells])
    return "\n".join(map("  ".join, zip(*columns, strict=True)))
