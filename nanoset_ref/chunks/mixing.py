"""Mix tokenized subsets and split them into chunks, with a validation split per subset.

1. Count: a subset of n samples, V of them for validation, has num_chunks x ((n - V) // num_chunks)
   training samples. Its first lines are used, as many as training and validation need together; the
   rest are left over (and copied to leftover/<subset>.jsonl with `keep_leftover`).
2. Draw the validation lines from the used ones with `random.Random(seed).sample`, subset by subset
   in the order given.
3. Distribute: the i-th training sample goes to chunk i mod num_chunks. A chunk has the subsets one
   after the other, in the order given. All chunks have the same size.
4. With `shuffle`, permute each chunk by (seed, chunk).

Lines are copied, not parsed. A chunk is a pure function of the inputs, the seed and its number, so
chunks are written one at a time; an index of line starts (8 bytes per line: 5 GB for Amber's 1.2
trillion tokens) finds their lines. Only one output file is open at a time, a shuffle does not need
a second pass, and an interrupted run resumes with the first missing chunk. The price: each chunk
reads its lines from all over the inputs.
"""

import mmap
import os
import random
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nanoset_ref.chunks.chunk_manifest import (
    ROWS_NAME,
    Account,
    ChunkManifest,
    FileEntry,
    ManifestError,
    common_facts,
    manifests_above,
)
from nanoset_ref.chunks.output_folder import claim_folder, finished_manifest
from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.files import atomic_write, make_folder
from nanoset_ref.io.paths import PathLike, checksum
from nanoset_ref.io.types import Int64Array
from nanoset_ref.io.urls import local_path
from nanoset_ref.preprocess.tokenization import progress_bar

# the folders of a mix
VALID = "valid"
TRAIN = "train"
LEFTOVER = "leftover"
FOLDERS = [TRAIN, VALID, LEFTOVER]


class _SplitSubset(NamedTuple):
    """A subset after steps 1 and 2.

    Attributes:
        name: the subset's path.
        content: the subset's rows, as a memory map.
        line_starts: {folder of the mix: the byte offsets in `content` at which its lines start,
            int64 [lines], ascending}.
        account: its counts; samples = valid + train + leftover.
    """

    name: str
    content: mmap.mmap
    line_starts: dict[str, Int64Array]
    account: Account


def mix(
    input_root: PathLike,
    out_root: PathLike,
    subfolders: str | Sequence[str],
    num_chunks: int = 360,
    num_valid_samples_per_subfolder: int = 102400,
    *,
    random_seed: int = 0,
    shuffle: bool = False,
    keep_leftover: bool = False,
    overwrite: bool = False,
) -> ChunkManifest:
    """Merge input_root/<subset>/train.jsonl into out_root/train and out_root/valid.

    The files are train/train_<chunk>.jsonl and valid/<subset>.jsonl.

    Args:
        input_root: the output of `tokenize`, or any folder of that form.
        out_root: created if needed. The same call resumes an interrupted run, and returns at once
            after a complete one.
        subfolders: the subsets, comma separated or a sequence, in their order in the chunks;
            slashes and a leading `input_root` are allowed.
        num_chunks: number of chunks.
        num_valid_samples_per_subfolder: samples held out from each subset.
        random_seed: the seed of the held-out samples and of the shuffle, in [0, 2**32).
        shuffle: shuffle each chunk.
        keep_leftover: whether to write the samples left over to leftover/<subset>.jsonl. They are
            always counted.
        overwrite: whether the output of another call in out_root may be replaced.

    Returns:
        The manifest, with an `Account` per subset.

    Raises:
        FileNotFoundError: a subset has no train.jsonl.
        ValueError: a count is out of range, a name occurs twice, a line is blank, or there are too
            few samples. Then nothing is written.
        ManifestError: a subset is unfinished or changed, or its rows differ from the others'; or
            out_root contains other files.

    Source: mix_and_split.py of https://github.com/LLM360/amber-data-prep; here Python's generator
    is seeded.
    """
    num_valid = num_valid_samples_per_subfolder
    whole_number(num_chunks, "num_chunks", 1)
    whole_number(num_valid, "num_valid_samples_per_subfolder", 0)
    whole_number(random_seed, "random_seed", 0, bits=32)
    out = local_path(out_root, "out_root")
    paths = _subset_files(subfolders, local_path(input_root, "input_root"))
    inputs = manifests_above(paths.values())
    # an earlier call, which this one resumes or repeats, is no input
    inputs.pop(out.resolve(), None)
    facts = common_facts(inputs, paths.values())
    subsets = _split_all(paths, num_chunks, num_valid, random_seed)
    settings = {
        "command": "mix",
        "subsets": [[name, checksum(path)] for name, path in paths.items()],
        "made_of": [manifest.model_dump()["files"] for manifest in inputs.values()],
        "num_chunks": num_chunks,
        "num_valid_samples_per_subfolder": num_valid,
        "random_seed": random_seed,
        "shuffle": shuffle,
        "keep_leftover": keep_leftover,
    }
    existing = finished_manifest(out, settings, FOLDERS, overwrite)
    if existing:
        return existing
    accounts = [subset.account for subset in subsets]
    seed = random_seed if shuffle else None
    with claim_folder(out, settings, FOLDERS, facts, overwrite) as manifest:
        files = _write_all(out, subsets, num_chunks, keep_leftover, seed)
        return manifest.finish(out, files=files, conservation=accounts)


def _subset_files(subfolders: str | Sequence[str], root: Path) -> dict[str, Path]:
    """{subset's path relative to the root: its file}; names may begin with the root."""
    names = subfolders.split(",") if isinstance(subfolders, str) else subfolders
    paths = {}
    for name in map(str.strip, names):
        folder = root / name
        relative = os.path.relpath(folder if folder.is_dir() else name, root)
        path = root / relative / ROWS_NAME
        if relative.startswith("..") or not path.is_file():
            raise FileNotFoundError(
                f"no subset {name!r}: {folder / ROWS_NAME} does not exist; `tokenize` makes it"
            )
        paths[relative] = path.resolve()
    if len(paths) < len(names):
        raise ValueError(f"subfolders must name every subset once, got {names}")
    held_out = {f"{name}.jsonl" for name in paths}
    for name in paths:
        for file in held_out.intersection(map(str, Path(name).parents)):
            raise ValueError(
                f"{VALID}/{file} would be the file of one subset and the folder of another, "
                f"{name}: rename one of them"
            )
    return paths


def _split_all(
    paths: dict[str, Path], num_chunks: int, num_valid: int, seed: int
) -> list[_SplitSubset]:
    """Split every subset: steps 1 and 2."""
    rng = random.Random(seed)
    subsets = [
        _split_subset(name, path, num_chunks, num_valid, rng)
        for name, path in progress_bar(paths.items(), "subsets")
    ]
    if not any(len(subset.line_starts[TRAIN]) for subset in subsets):
        raise ValueError(
            f"no subset has a sample for each of {num_chunks} chunks: "
            "make fewer chunks, or hold out fewer samples"
        )
    return subsets


def _split_subset(
    name: str, path: Path, num_chunks: int, num_valid: int, rng: random.Random
) -> _SplitSubset:
    """Split one subset: steps 1 and 2."""
    with open(path, "rb") as file:
        starts = np.fromiter(accumulate(map(len, file), initial=0), dtype=np.int64)
        samples = len(starts) - 1
        if samples == 0:
            raise ValueError(f"{name} has no samples")
        if samples < num_valid:
            raise ValueError(
                f"{name} has {samples} samples, fewer than the {num_valid} for validation"
            )
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for line in np.flatnonzero(np.diff(starts) <= 2):  # with "\r\n", or less
        if not content[starts[line] : starts[line + 1]].strip():
            raise ValueError(
                f"{path}:{line + 1}: a blank line is not a sample; `validate` lists all of them"
            )
    leftover = (samples - num_valid) % num_chunks
    used = samples - leftover
    valid = np.array(sorted(rng.sample(range(used), num_valid)), dtype=np.int64)
    starts_of = {
        VALID: starts[valid],
        TRAIN: np.delete(starts[:used], valid),
        LEFTOVER: starts[used:-1],
    }
    counts = {folder: len(line_starts) for folder, line_starts in starts_of.items()}
    account = Account.model_validate({"subset": name, "samples": samples, **counts})
    return _SplitSubset(name, content, starts_of, account)


def _write_all(
    out: Path,
    subsets: list[_SplitSubset],
    num_chunks: int,
    keep_leftover: bool,
    shuffle_seed: int | None,
) -> dict[str, FileEntry]:
    """Write all files: steps 3 and 4; with a `shuffle_seed` of None, chunks are not shuffled."""
    folders = [VALID]
    if keep_leftover:
        folders.append(LEFTOVER)
    files = {}
    for subset in subsets:
        for folder in folders:
            name = f"{folder}/{subset.name}.jsonl"
            files[name] = _write_lines(
                out / name, [(subset.content, subset.line_starts[folder])], None
            )
    for chunk in progress_bar(range(num_chunks), "chunks"):
        name = f"{TRAIN}/train_{chunk}.jsonl"
        parts = [
            (subset.content, subset.line_starts[TRAIN][chunk::num_chunks])
            for subset in subsets
        ]
        seed = None if shuffle_seed is None else (shuffle_seed, chunk)
        files[name] = _write_lines(out / name, parts, seed)
    return files


def _write_lines(
    path: Path,
    parts: list[tuple[mmap.mmap, Int64Array]],
    seed: tuple[int, int] | None,
) -> FileEntry:
    """Write the lines that start at the given offsets of each content.

    A file that exists is complete, and stays; ManifestError if its lines differ. `seed` is (seed,
    chunk), for RandomState; None keeps the order of the inputs.
    """
    part_of_line = np.repeat(range(len(parts)), [len(starts) for _, starts in parts])
    starts = np.concatenate([starts for _, starts in parts])
    order = np.arange(len(starts))
    if seed is not None:
        order = np.random.RandomState(seed).permutation(len(starts))
    lines = (_line_at(parts[part_of_line[k]][0], starts[k]) for k in order)
    if path.exists():
        with open(path, "rb") as file:
            if any(old != new for old, new in zip_longest(file, lines)):
                raise ManifestError(
                    f"{path} does not have the lines that this command writes; move it, and run "
                    "the command again"
                )
    else:
        make_folder(path.parent)
        with atomic_write(path) as out:
            out.writelines(lines)
    return FileEntry.of(path, len(starts))


def _line_at(content: mmap.mmap, start: int) -> bytes:
    """The line that starts at an offset, with a line end: the last line of a file may lack it."""
    content.seek(start)
    return content.readline().removesuffix(b"\n") + b"\n"
