"""Mix tokenised subsets and split them into chunks: a validation split per subset, the rest dealt round robin.

1. Per subset of n samples: num_chunks x ((n - valid) // num_chunks) of them are for training, the first valid +
   training lines are used, the lines after them are left over.
2. `random.Random(seed).sample` draws the validation lines among the used ones, subset by subset in the order given.
3. The i-th training sample goes to chunk i mod num_chunks. A chunk holds the subsets one after the other, in the order
   given; all chunks are of one size.
4. With `shuffle`, each chunk is put in its own order, drawn from (seed, chunk).

Lines are copied, not parsed. A chunk is a pure function of the inputs, the seed and its number, so chunks are written
one at a time through an index of where the lines begin (8 bytes per line: 5 GB for Amber's 1.2 trillion tokens): any
number of chunks needs one open file, a shuffle costs no second pass, and an interrupted run goes on with the first
chunk that is missing. The price is reading in strides.
"""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nanoset_ref.chunks import chunk_manifest as manifests
from nanoset_ref.chunks.chunk_manifest import Account, ChunkManifest, FileEntry
from nanoset_ref.files import PathLike, atomic_write

ROWS, VALID, TRAIN = "train.jsonl", "valid", "train"  # the file of a subset; the two folders of a mix


class Subset:
    """The samples of one subset, and where they go: steps 1 and 2.

    Args:
        name: its folder, relative to the input root. path: its train.jsonl.
        num_chunks, num_valid: as in `mix`. rng: draws the held-out samples.

    Attributes:
        line_starts: int64 [lines + 1], the bytes where the lines begin, and the end.
        valid_lines: int64 [num_valid], the held-out lines, sorted, counted from 0.
        per_chunk: samples in each chunk. account: of all samples.

    Raises:
        ValueError: a blank line, no sample, or fewer than `num_valid`.
    """

    def __init__(self, name: str, path: Path, num_chunks: int, num_valid: int, rng: random.Random) -> None:
        with open(path, "rb") as file:
            self.line_starts = np.fromiter(accumulate(map(len, file), initial=0), dtype=np.int64)
            samples = len(self.line_starts) - 1
            if samples < max(num_valid, 1):
                raise ValueError(
                    f"{name} has {samples} samples, fewer than the {num_valid} for validation: "
                    "ask for fewer, or leave the subset out"
                )
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        blank = np.flatnonzero(np.diff(self.line_starts) == 1)
        if len(blank):
            raise ValueError(f"{path}:{blank[0] + 1}: a blank line is not a sample; `validate` names all of them")
        self.num_chunks = num_chunks
        self.per_chunk, leftover = divmod(samples - num_valid, num_chunks)
        self.valid_lines = np.array(sorted(rng.sample(range(samples - leftover), num_valid)), dtype=np.int64)
        train = samples - num_valid - leftover
        self.account = Account.model_validate(
            {"subset": name, "samples": samples, "valid": num_valid, "train": train, "leftover": leftover}
        )

    def train_lines(self, chunk: int) -> NDArray[np.int64]:
        """int64 [per_chunk], counted from 0. Lines 0..10 less [2, 5] go to 3 chunks: 0 4 8 | 1 6 9 | 3 7 10."""
        dealt = np.arange(self.per_chunk) * self.num_chunks + chunk  # counted among the training lines
        return dealt + np.searchsorted(self.valid_lines - np.arange(len(self.valid_lines)), dealt, side="right")

    def line(self, number: int) -> bytes:
        start, end = self.line_starts[number : number + 2].tolist()
        return self._content[start:end].removesuffix(b"\n") + b"\n"  # the last line of a file may lack its end


def mix(
    input_root: PathLike,
    out_root: PathLike,
    subfolders: str | Sequence[str],
    num_chunks: int = 360,
    num_valid_samples_per_subfolder: int = 102400,
    *,
    random_seed: int = 0,
    shuffle: bool = False,
    overwrite: bool = False,
) -> ChunkManifest:
    """Merge input_root/<subset>/train.jsonl into out_root/train/train_<chunk>.jsonl and out_root/valid/<subset>.jsonl.

    Args:
        input_root: what `tokenize` wrote, or any folder of that form.
        out_root: made if needed. Interrupted, the same call goes on; complete, it returns at once.
        subfolders: the subsets, comma separated or a sequence; slashes and a leading `input_root` are fine. Their order
            is that in the chunks.
        num_chunks: number of chunks.
        num_valid_samples_per_subfolder: samples held out of each subset.
        random_seed: in [0, 2**32), of the held-out samples and of the shuffle.
        shuffle: whether each chunk is shuffled.
        overwrite: whether what another call made in out_root may be replaced.

    Returns:
        The manifest, with an `Account` per subset.

    Raises:
        FileNotFoundError: a subset without train.jsonl. ValueError: a count out of range, a name twice, too few samples
            (before anything is written).
        ManifestError: a subset that is unfinished, changed, or unlike the others; out_root holds something else.

    Source: mix_and_split.py of https://github.com/LLM360/amber-data-prep, with Python's generator seeded.
    """
    if num_chunks < 1 or num_valid_samples_per_subfolder < 0 or not 0 <= random_seed < 2**32:
        raise ValueError(
            "num_chunks must be at least 1, num_valid_samples_per_subfolder at least 0, random_seed in [0, 2**32), "
            f"got {num_chunks}, {num_valid_samples_per_subfolder} and {random_seed}"
        )
    paths = _subset_files(subfolders, Path(input_root))
    above = manifests.above(paths.values())
    facts = manifests.agreed(above, paths.values())
    subsets = _plan(paths, num_chunks, num_valid_samples_per_subfolder, random_seed)
    settings = {
        "command": "mix",
        "subsets": [[name, path.stat().st_size] for name, path in paths.items()],
        "made_of": [manifest.model_dump()["files"] for manifest in above.values()],
        "num_chunks": num_chunks,
        "num_valid_samples_per_subfolder": num_valid_samples_per_subfolder,
        "random_seed": random_seed,
        "shuffle": shuffle,
        **facts.model_dump(),
    }
    out = Path(out_root)
    manifest = manifests.begin(out, settings, [TRAIN, VALID], overwrite=overwrite)
    if not manifest.complete:
        files = _write_all(out, subsets, num_chunks, random_seed if shuffle else None)
        manifest = manifest.finish(out, files=files, conservation=[subset.account for subset in subsets])
    return manifest


def _plan(paths: dict[str, Path], num_chunks: int, num_valid: int, seed: int) -> list[Subset]:
    """Steps 1 and 2."""
    rng = random.Random(seed)
    subsets = [
        Subset(name, path, num_chunks, num_valid, rng) for name, path in tqdm(paths.items(), "subsets", disable=None)
    ]
    if not any(subset.per_chunk for subset in subsets):
        raise ValueError(f"no subset has a sample for each of {num_chunks} chunks: take fewer, or hold out fewer")
    return subsets


def _write_all(out: Path, subsets: list[Subset], num_chunks: int, seed: int | None) -> dict[str, FileEntry]:
    """Steps 3 and 4."""
    files = {}
    for subset in subsets:
        name = f"{VALID}/{subset.account.subset}.jsonl"
        files[name] = _write(out / name, [subset], [subset.valid_lines], range(len(subset.valid_lines)))
    size = sum(subset.per_chunk for subset in subsets)
    for chunk in tqdm(range(num_chunks), "chunks", disable=None):
        name = f"{TRAIN}/train_{chunk}.jsonl"
        order = range(size) if seed is None else np.random.RandomState([seed, chunk]).permutation(size)
        files[name] = _write(out / name, subsets, [subset.train_lines(chunk) for subset in subsets], order)
    return files


def _subset_files(subfolders: str | Sequence[str], root: Path) -> dict[str, Path]:
    """{path of a subset relative to the root, whether or not it was given with it: its file}."""
    names = subfolders.split(",") if isinstance(subfolders, str) else subfolders
    paths = {}
    for name in map(str.strip, names):
        folder = root / name
        relative = os.path.relpath(folder if folder.is_dir() else name, root)
        path = root / relative / ROWS
        if relative.startswith("..") or not path.is_file():
            raise FileNotFoundError(f"no subset {name!r}: there is no {path}; `tokenize` makes it")
        paths[relative] = path.resolve()
    if len(paths) < len(names):
        raise ValueError(f"subfolders must name every subset once, got {names}")
    return paths


def _write(path: Path, subsets: list[Subset], lines: list[NDArray[np.int64]], order: Iterable[int]) -> FileEntry:
    """Write `lines[i]` of every `subsets[i]`, all of them in `order`. A file that exists is complete, and stays."""
    which = np.repeat(range(len(subsets)), list(map(len, lines)))
    numbers = np.concatenate(lines)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as out:
            for k in order:
                out.write(subsets[which[k]].line(numbers[k]))
    return FileEntry.of(path, len(numbers))
