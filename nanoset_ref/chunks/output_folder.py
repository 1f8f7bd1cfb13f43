"""The folder that a command fills: locked for one run, and cleared of an earlier one's files.

Only files that a command wrote are removed. Without a manifest of a command, none are: the folder
may belong to the user or to another program. A complete manifest lists its files. An unfinished
folder had no files of these names when it was claimed, so their names and their form identify them.
Any other file is an error, and then nothing is removed.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from nanoset_ref.chunks.chunk_manifest import (
    MANIFEST_NAME,
    ChunkManifest,
    ManifestError,
    RowFacts,
)
from nanoset_ref.chunks.row_format import OPENING
from nanoset_ref.io.files import make_folder
from nanoset_ref.io.locks import lock
from nanoset_ref.io.types import Json
from nanoset_ref.tokens.manifest import DOCUMENTS_SUFFIX, MANIFEST_SUFFIX, Manifest
from nanoset_ref.tokens.npy_writer import holds_document_offsets

LOCK = ".manifest.lock"
OWN_FILES = re.compile(  # names of the files that commands write into a folder
    r"train\.jsonl|train\d*_input_ids\.(npy|json|documents\.npy|sources\.npz)"  # a subset
    r"|train/train_\d+\.jsonl|(valid|leftover)/(?s:.+)\.jsonl"  # a mix
    r"|train/token_files/train_\d+_input_ids\.(npy|json|documents\.npy|sources\.npz|made_of|lock)"
    r"|(.+/)?\.[^/]+\.\d+-[0-9a-f]{8}\.tmp"  # the temporary of a killed writer
)


def finished_manifest(
    folder: Path, settings: Json, outputs: Sequence[str], overwrite: bool
) -> ChunkManifest | None:
    """Read the manifest of a folder that is complete with these settings.

    Args:
        folder: the folder.
        settings: the run's settings, JSON values.
        outputs: patterns of the files or folders that the run writes into the folder.
        overwrite: whether the run may replace another run's outputs.

    Returns:
        None if the run has to fill the folder.

    Raises:
        ManifestError: the folder contains outputs without a manifest; or complete outputs of other
            settings, and `overwrite` is False.
    """
    manifest = ChunkManifest.read(folder)
    existing = _existing(folder, [*outputs, MANIFEST_NAME])
    if manifest is None and existing:
        raise ManifestError(
            f"{existing[0]} exists, and no manifest says that this command made it: choose another "
            "output folder, or move it first; --overwrite (overwrite=True) does not replace it"
        )
    if manifest is None or overwrite or not manifest.complete:
        return None
    known = manifest.settings
    # an older manifest lacks settings of today, which cannot be compared
    differing = [
        key for key, value in settings.items() if known.get(key, value) != value
    ]
    if not differing:
        return manifest
    raise ManifestError(
        f"{existing[0]} was made with other settings ({', '.join(differing)} differ): choose "
        "another output folder, or --overwrite (overwrite=True), which replaces only what this "
        "command made"
    )


def _lock_run(file: IO[Any]) -> bool:
    """Take the lock of a folder's run; False if another run holds it."""
    try:
        return lock(file)
    except OSError:  # the filesystem has no locks
        return True


@contextlib.contextmanager
def claim_folder(
    folder: Path,
    settings: Json,
    outputs: Sequence[str],
    facts: RowFacts,
    overwrite: bool,
) -> Iterator[ChunkManifest]:
    """Lock `folder` for a run that `finished_manifest` allows, prepare it, and yield its manifest.

    1. Files of an unfinished run with the same settings are complete and stay.
    2. Files of other settings are removed first.

    Raises:
        ManifestError: another run fills the folder, or has filled it since `finished_manifest` was
            called. Or a file was not written by a command; then nothing is removed.
    """
    make_folder(folder)
    with open(folder / LOCK, "a") as file:
        # the other run may have ended since `finished_manifest` was called
        if not _lock_run(file) or finished_manifest(
            folder, settings, outputs, overwrite
        ):
            raise ManifestError(
                f"another run is filling {folder}, or has just filled it: run this again when it "
                "has ended, or choose another output folder"
            )
        # 1.
        manifest = ChunkManifest.read(folder)
        if manifest and manifest.settings == settings and not manifest.complete:
            yield manifest
            return
        # 2.
        old = []
        for top in _existing(folder, outputs):  # none without a manifest
            for path in (top, *top.rglob("*")):
                is_ours = _is_ours(path, folder, manifest)
                if path.is_symlink() or not (is_ours or path.is_dir()):
                    raise ManifestError(
                        f"{path} was not written by this command and will not be deleted; move it "
                        "first"
                    )
                if not path.is_dir():
                    old.append(path)
        new = ChunkManifest(format="nanoset_ref.chunks/2", settings={}, facts=facts)
        new.write(folder)  # from now on, a run after a kill starts over
        # manifests last: without one, the next run could not tell a token file from a foreign file
        for path in sorted(old, key=lambda path: path.suffix == ".json"):
            path.unlink()
        yield new.model_copy(update={"settings": settings}).write(folder)


def _is_ours(path: Path, folder: Path, manifest: ChunkManifest | None) -> bool:
    """Whether the run of this manifest, which fills or filled the folder, wrote the file."""
    name = path.relative_to(folder).as_posix()
    if manifest is None or not OWN_FILES.fullmatch(name):
        return False
    if path.is_file() and not _has_our_format(path):
        return False
    if not manifest.complete or name.endswith(".tmp") or name in manifest.files:
        return True
    token_file, found, suffix = path.name.partition("_input_ids.")
    if path.parent.name == "token_files":  # a chunk that was converted when it was read
        record = path.with_name(f"{token_file}_input_ids.made_of")
        return record.exists() or suffix == "lock"
    return bool(found) and f"{token_file}_input_ids.npy" in manifest.files


def _has_our_format(path: Path) -> bool:
    """Whether a file has the format of those that commands write under its name, or is empty."""
    if path.stat().st_size == 0:
        return True
    try:
        if path.suffix == ".jsonl":
            with open(path, "rb") as file:
                return OPENING.search(file.read(1 << 16)) is not None
        if path.name.endswith(DOCUMENTS_SUFFIX):
            return holds_document_offsets(path)
        if path.suffix in (".npy", ".json"):
            Manifest.read(path.with_suffix(MANIFEST_SUFFIX))
    except Exception:  # a file of another format raises errors of many types
        return False
    return True


def _existing(folder: Path, outputs: Sequence[str]) -> list[Path]:
    """The files and folders that match one of the patterns `outputs`."""
    return [path for pattern in outputs for path in folder.glob(pattern)]
