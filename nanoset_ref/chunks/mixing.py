"""Mix tokenised subsets and split them into chunks: a validation split per subset, the rest dealt round robin.

1. Per subset of n samples: num_chunks x ((n - valid) // num_chunks) of them are for training, the first valid +
   training lines are used, the lines after them are left over.
2. `random.Random(seed).sample` draws the validation lines among the used ones, subset by subset in the order given.
3. The i-th training sample goes to chunk i mod num_chunks. A chunk holds the subsets one after the other, in the order
   given; all chunks are of one size.
4. With `shuffle`, each chunk is put in an order of its own, drawn from (seed, chunk).

Lines are copied, not parsed. A chunk is a pure function of the inputs, the seed and its number, so chunks are written
one at a time through an index of where the lines begin (8 bytes per line, on disk): memory does not grow with the
corpus, any number of chunks needs one open file, a shuffle costs no second pass, and an interrupted run goes on with
the first chunk that is missing. The price is reading in strides; the rejected alternative, one pass with every chunk
open, is limited by RLIMIT_NOFILE, has nothing complete before it ends, and cannot shuffle.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nanoset_ref.chunks.manifest import FileEntry, Manifest, ManifestError, SampleConservation, begin, require_complete
from nanoset_ref.chunks.records import line_blocks
from nanoset_ref.files import atomic_write, checksum

logger = logging.getLogger(__name__)

VALID, TRAIN = "valid", "train"  # the two folders of a mix
_AGREEING = ("concat_tokens", "tokenizer", "vocab_size", "eos_token_id")  # settings that subsets of one mix must share


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Subset:
    name: str
    path: Path
    line_starts: NDArray[np.int64]  # [lines + 1], mapped from an unnamed file
    valid_lines: NDArray[np.int64]  # sorted, counted from 0
    per_chunk: int
    num_chunks: int

    def train_lines(self, chunk: int) -> NDArray[np.int64]:
        """int64 [per_chunk], counted from 0. Lines 0..10 less [2, 5] go to 3 chunks: 0 4 8 | 1 6 9 | 3 7 10."""
        dealt = np.arange(self.per_chunk) * self.num_chunks + chunk  # counted among the training lines
        return dealt + np.searchsorted(self.valid_lines - np.arange(len(self.valid_lines)), dealt, side="right")

    @property
    def conservation(self) -> SampleConservation:
        samples, valid, train = len(self.line_starts) - 1, len(self.valid_lines), self.per_chunk * self.num_chunks
        return SampleConservation(
            subset=self.name, samples=samples, valid=valid, train=train, leftover=samples - valid - train
        )


def mix(
    input_root: str | os.PathLike[str],
    out_root: str | os.PathLike[str],
    subfolders: str | Sequence[str],
    num_chunks: int,
    num_valid_samples_per_subfolder: int,
    *,
    random_seed: int = 0,
    shuffle: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Manifest:
    """Merge input_root/<subset>/train.jsonl into out_root/train/train_<chunk>.jsonl and out_root/valid/<subset>.jsonl.

    Args:
        input_root: what `tokenize` wrote, or any folder of that form.
        out_root: made if needed. Interrupted, the same call goes on; complete, it returns at once.
        subfolders: the subsets, comma separated or a sequence; slashes and a leading `input_root` are fine. Their order
            is that in the chunks.
        num_chunks: number of chunks. num_valid_samples_per_subfolder: samples held out of each subset.
        random_seed: in [0, 2**32), of the held-out samples and of the shuffle. shuffle: whether each chunk is shuffled.
        overwrite: whether what another call made in out_root may be replaced.
        progress: whether to draw a bar on stderr.

    Returns:
        The manifest, with a `SampleConservation` per subset.

    Raises:
        FileNotFoundError: a subset without train.jsonl. ValueError: a count out of range, a name twice, too few samples
            (before anything is written).
        ManifestError: a subset that is unfinished, changed, or unlike the others; out_root holds something else.

    Source: mix_and_split.py of https://github.com/LLM360/amber-data-prep, with Python's generator seeded.
    """
    if num_chunks < 1 or num_valid_samples_per_subfolder < 0:
        raise ValueError(
            "num_chunks must be at least 1 and num_valid_samples_per_subfolder at least 0, "
            f"got {num_chunks} and {num_valid_samples_per_subfolder}"
        )
    if not 0 <= random_seed < 2**32:
        raise ValueError(f"random_seed must be in [0, 2**32), got {random_seed}")
    input_root, out_root = Path(input_root), Path(out_root)
    names = [
        _subset_name(name, input_root)
        for name in (subfolders.split(",") if isinstance(subfolders, str) else subfolders)
    ]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"subfolders must name every subset once, got {names}")
    manifests = {name: require_complete(input_root / name) for name in names}
    rng = random.Random(random_seed)
    subsets = [
        _plan(
            name, input_root / name / "train.jsonl", num_chunks, num_valid_samples_per_subfolder, rng, manifests[name]
        )
        for name in tqdm(names, "subsets", disable=not progress)
    ]
    if not any(subset.per_chunk for subset in subsets):
        raise ValueError(
            f"no subset has a training sample for each of {num_chunks} chunks: take fewer chunks or validation samples"
        )
    settings: dict[str, Any] = {
        "command": "mix",
        "subsets": [
            [s.name, len(s.line_starts) - 1, s.path.stat().st_size, m and m.files["train.jsonl"].checksum]
            for s, m in zip(subsets, manifests.values(), strict=True)
        ],
        "num_chunks": num_chunks,
        "num_valid_samples_per_subfolder": num_valid_samples_per_subfolder,
        "random_seed": random_seed,
        "shuffle": shuffle,
        **_agreed(manifests),
    }
    if (done := begin(out_root, settings, [TRAIN, VALID], overwrite=overwrite)) is not None:
        return done
    files = {}
    for i, subset in enumerate(subsets):
        name = f"{VALID}/{subset.name}.jsonl"
        files[name] = _write(out_root / name, subsets, [(i, subset.valid_lines)], None)
    for chunk in tqdm(range(num_chunks), "chunks", disable=not progress):
        order = np.random.RandomState([random_seed, chunk]) if shuffle else None
        name = f"{TRAIN}/train_{chunk}.jsonl"
        files[name] = _write(
            out_root / name, subsets, [(i, subset.train_lines(chunk)) for i, subset in enumerate(subsets)], order
        )
    manifest = Manifest(
        settings=json.loads(json.dumps(settings)),
        complete=True,
        files=files,
        conservation=[subset.conservation for subset in subsets],
    )
    manifest.write(out_root)
    return manifest


def _subset_name(name: str, input_root: Path) -> str:
    """The subset's path relative to input_root, whether or not it was given with it."""
    name = os.path.normpath(name.strip())
    if not (input_root / name).is_dir() and Path(name).is_relative_to(input_root):
        name = str(Path(name).relative_to(input_root))
    if name.startswith(("..", "/")) or not (input_root / name / "train.jsonl").is_file():
        raise FileNotFoundError(
            f"no subset {name!r}: there is no {input_root / name / 'train.jsonl'}; `tokenize` makes it"
        )
    return name


def _plan(
    name: str, path: Path, num_chunks: int, num_valid: int, rng: random.Random, manifest: Manifest | None
) -> _Subset:
    """Steps 1 and 2 of the algorithm."""
    line_starts = _index_lines(path)
    lines = len(line_starts) - 1
    if manifest is not None and (listed := manifest.files["train.jsonl"].lines) != lines:
        raise ManifestError(f"{path} has {lines} lines, its manifest says {listed}: it was changed; tokenise it again")
    if manifest is not None and manifest.files["train.jsonl"].checksum != checksum(path):
        raise ManifestError(f"{path} has not the checksum that its manifest says: it was changed; tokenise it again")
    if lines < num_valid:
        raise ValueError(
            f"{name} has {lines} samples, fewer than the {num_valid} for validation: "
            "ask for fewer, or leave the subset out"
        )
    per_chunk = (lines - num_valid) // num_chunks
    if not per_chunk:
        logger.warning("%s: %d samples for %d chunks, so none of them is used", name, lines - num_valid, num_chunks)
    valid_lines = sorted(rng.sample(range(num_valid + per_chunk * num_chunks), num_valid))
    return _Subset(
        name=name,
        path=path,
        line_starts=line_starts,
        valid_lines=np.array(valid_lines, dtype=np.int64),
        per_chunk=per_chunk,
        num_chunks=num_chunks,
    )


def _index_lines(path: Path) -> NDArray[np.int64]:
    """Where the lines of a file begin, and its end: int64 [lines + 1], mapped from a file without a name."""
    with tempfile.TemporaryFile() as index, open(path, "rb") as file:
        offset = line = 0
        index.write(np.zeros(1, dtype=np.int64).tobytes())
        for block in line_blocks(file):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
            lengths = np.diff(ends, prepend=0)
            if lengths.min() == 1:
                blank = line + int(lengths.argmin()) + 1
                raise ValueError(f"{path}:{blank}: a blank line is not a sample; `validate` names all of them")
            index.write((ends + offset).astype(np.int64).tobytes())
            offset, line = offset + len(block), line + len(ends)
        index.flush()
        return np.memmap(index, dtype=np.int64, mode="r")


def _agreed(manifests: dict[str, Manifest | None]) -> dict[str, Any]:
    """The settings that all subsets with a manifest share; they go into the manifest of the mix."""
    known = {
        name: manifest.settings
        for name, manifest in manifests.items()
        if manifest is not None and manifest.settings is not None
    }
    for key in _AGREEING:
        if len({json.dumps(settings[key]) for settings in known.values()}) > 1:
            found = {name: settings[key] for name, settings in known.items()}
            raise ManifestError(f"the subsets differ in {key}: {found}; tokenise them alike")
    return {key: next(iter(known.values()))[key] for key in _AGREEING} if known else {}


def _write(
    path: Path, subsets: list[_Subset], parts: list[tuple[int, NDArray[np.int64]]], order: np.random.RandomState | None
) -> FileEntry:
    """Write lines of subsets, in the order given or shuffled. A file that exists is complete, and stays."""
    which = np.repeat([i for i, _ in parts], [len(lines) for _, lines in parts])
    if not path.exists():
        starts = np.concatenate([subsets[i].line_starts[lines] for i, lines in parts])
        ends = np.concatenate([subsets[i].line_starts[lines + 1] for i, lines in parts])
        if order is not None:
            permutation = order.permutation(len(which))
            which, starts, ends = which[permutation], starts[permutation], ends[permutation]
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            for line in _lines([subset.path for subset in subsets], which, starts, ends):
                file.write(line)
    return FileEntry.of(path, len(which))


def _lines(
    paths: list[Path], which: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[bytes]:
    """bytes starts[i]:ends[i] of file which[i], each with its line end."""
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        for first in range(0, len(which), 1 << 16):
            block = slice(first, first + (1 << 16))
            for i, start, end in zip(which[block].tolist(), starts[block].tolist(), ends[block].tolist(), strict=True):
                line = os.pread(descriptors[i], end - start, start)
                yield line if line.endswith(b"\n") else line + b"\n"  # the last line of a file may lack it
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
