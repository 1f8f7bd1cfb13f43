"""The manifest of a prepared folder, and the conservation report: no token disappears unnamed.

`manifest.json` says what a folder was made with (`settings`) and, once `complete`, what it holds: lines, bytes and
checksum of every file, and where the tokens of every subset went. It is written before the first file and after the
last. Who finds it incomplete knows what to go on with; who finds other settings refuses to mix two corpora in one
folder. The files themselves are complete or absent, so this is all the state there is. The rejected alternative, a
journal of progress inside a file, can disagree with the file after a crash.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nanoset_ref.files import atomic_write, checksum

NAME = "manifest.json"
FORMAT = "nanoset_ref.chunks/1"


class ManifestError(ValueError):
    """A prepared folder is unfinished, was made with other settings, or does not hold what its manifest says."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file: its lines (samples), its bytes, and "xxh3_128:<hex>"."""

    lines: int
    bytes: int
    checksum: str

    @classmethod
    def of(cls, path: Path, lines: int) -> FileEntry:
        return cls(lines=lines, bytes=path.stat().st_size, checksum=checksum(path))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenConservation:
    """Where the tokens of one subset went, from documents to rows. Everything but `subset`, `documents` and `samples`
    counts tokens.

    Args:
        subset, documents: its name, and how many documents it has.
        document_tokens, separator_tokens: what the tokenizer made of the documents; the BOS and EOS put around them.
        carried_in_tokens, padding_tokens: the tail of the subset before; what filled the last row.
        samples, written_tokens: rows written, and the tokens in them.
        cut_tokens, tail_tokens, carried_out_tokens: cut away without wrap; dropped at the end; given to the next
            subset.

    Raises:
        ManifestError: the two sides differ.
    """

    subset: str
    documents: int
    skipped_documents: int = 0
    document_tokens: int
    separator_tokens: int
    carried_in_tokens: int = 0
    padding_tokens: int = 0
    samples: int
    written_tokens: int
    cut_tokens: int = 0
    tail_tokens: int = 0
    carried_out_tokens: int = 0

    def __post_init__(self) -> None:
        tokens_in = self.document_tokens + self.separator_tokens + self.carried_in_tokens + self.padding_tokens
        tokens_out = self.written_tokens + self.cut_tokens + self.tail_tokens + self.carried_out_tokens
        if tokens_in != tokens_out:
            raise ManifestError(f"{self.subset}: {tokens_in} tokens came in, {tokens_out} are accounted for: {self}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleConservation:
    """Where the samples of one subset went, from its train.jsonl to the chunks: samples = valid + train + leftover.

    Raises:
        ManifestError: the two sides differ.
    """

    subset: str
    samples: int
    valid: int
    train: int
    leftover: int

    def __post_init__(self) -> None:
        if self.samples != self.valid + self.train + self.leftover:
            raise ManifestError(
                f"{self.subset}: {self.samples} samples, {self.valid + self.train + self.leftover} are accounted for"
            )


Conservation = TokenConservation | SampleConservation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What stands in manifest.json; `files` and `conservation` are filled in when the folder is complete."""

    settings: dict[str, Any] | None
    complete: bool = False
    files: dict[str, FileEntry] = dataclasses.field(default_factory=dict)
    conservation: list[Conservation] = dataclasses.field(default_factory=list)
    carried_tail: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of `folder`, None if it has none.

        Raises:
            ManifestError: the file is not one of this package's manifests.
        """
        path = folder / NAME
        if not path.is_file():
            return None
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
            files = {name: FileEntry(**entry) for name, entry in fields.pop("files").items()}
            conservation = [
                (TokenConservation if "documents" in entry else SampleConservation)(**entry)
                for entry in fields.pop("conservation")
            ]
            return cls(files=files, conservation=conservation, **fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ManifestError(f"{path} is not a manifest of a prepared folder: {error}") from error

    def write(self, folder: Path) -> None:
        with atomic_write(folder / NAME, "w") as file:
            file.write(json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n")


def begin(
    folder: Path, settings: dict[str, Any], outputs: Iterable[str], *, overwrite: bool = False
) -> Manifest | None:
    """Make `folder` ready for a run with `settings` (JSON-serialisable) that will write `outputs`, files or folders in
    it.

    1. Complete with these settings: the manifest is returned, there is nothing to do.
    2. Unfinished with these settings: None; the files that are there are complete and stay.
    3. Anything else: outputs of other settings are removed first, those of an unfinished run at once, others with
       `overwrite` only. None.

    Raises:
        ManifestError: (3) the folder is complete with other settings, and `overwrite` is False.
        FileExistsError: (3) outputs exist that no manifest speaks of, and `overwrite` is False.
    """
    settings = json.loads(json.dumps(settings))  # as it will be read back
    found = Manifest.read(folder)
    if found is not None and found.settings == settings and not (overwrite and found.complete):
        return found if found.complete else None
    existing = [folder / name for name in outputs if (folder / name).exists()]
    if not overwrite and found is not None and found.complete:
        differing = sorted(key for key in settings if (found.settings or {}).get(key) != settings[key])
        raise ManifestError(
            f"{folder} was made with other settings; {', '.join(differing)} differ: "
            "choose another output folder, or overwrite"
        )
    if not overwrite and found is None and existing:
        raise FileExistsError(
            f"{existing[0]} exists, and no manifest says what it is: choose another output folder, or overwrite"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if existing:
        Manifest(settings=None).write(folder)  # killed from here on, the next run arrives at 3 again
        for path in existing:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    Manifest(settings=settings).write(folder)
    return None


def require_complete(folder: Path) -> Manifest | None:
    """The manifest of a folder that is to be read; None for a folder made elsewhere.

    Raises:
        ManifestError: the folder is not finished.
    """
    found = Manifest.read(folder)
    if found is not None and not found.complete:
        raise ManifestError(f"{folder} is not finished: run the command that makes it once more")
    return found


def report(conservation: Sequence[Conservation]) -> str:
    """The entries of one kind as a table with a line of totals; columns that are 0 everywhere are left out."""
    table = [dataclasses.asdict(entry) for entry in conservation]
    columns = [name for name in table[0] if name == "subset" or any(entry[name] for entry in table)]
    total = {name: sum(entry[name] for entry in table) for name in columns[1:]} | {"subset": "total"}
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [
        [str(entry[name]) if name == "subset" else f"{entry[name]:,}" for name in columns] for entry in [*table, total]
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(f"  {cell.rjust(width)}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in cells
    )
