"""How evenly a run reads its files: over its steps, and over their samples."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.load.schedule import Schedule

Int64Array = NDArray[np.int64]

PARTS = 64  # of the steps
SECTIONS = 16  # of a file
POSITIONS = 1 << 20  # that are looked up
NAMED = 10  # samples, and files
HEIGHTS = np.array([*" ▁▂▃▄▅▆▇█"])  # from nothing to twice an even share
WORDS = (
    "spread of 0: dealt in turn; 1: as after a fair shuffle; k: after a shuffle of pieces of k rows"
)


@dataclasses.dataclass(frozen=True)
class Spread:
    """How evenly one file is read over the steps.

    Attributes:
        file: its number.
        among_files: the variance of its reads in equal parts of the steps, divided by that of a fair
            shuffle of all reads. None: it is the only file.
        within: the same for the sections of the file among its reads, on average.
        picture: its share in each part of the steps, a character each.
    """

    file: int
    among_files: float | None
    within: float | None
    picture: str

    def line(self, path: str) -> str:
        figures = [self.among_files, self.within]
        texts = ["   only" if it is None else f"{it:7.2f}" for it in figures]
        return f"{path} {texts[0]} {texts[1]}  |{self.picture}|"


def spread_over_steps(
    order: Any, lengths: Sequence[int], schedule: Schedule, steps: range
) -> list[Spread]:
    """How evenly each file that is read is spread over the steps.

    1. the steps are cut into PARTS parts; at most POSITIONS positions of evenly spaced steps count
    2. c reads of a file among the n of a part are compared with n w, where w is its share of all:
       the sum of (c - n w)**2 / (n w (1 - w)) over the parts, divided by their number less one,
       has the mean 1 if the reads were shuffled, and k if pieces of k neighbors were
    3. so are the reads of each section of a file with all reads of the file

    Args:
        order: with `lookup`, vectorized.
        lengths: samples in each of its files.
        schedule: the layout of the steps.
    """
    # 1.
    size = schedule.global_batch_size
    count = min(len(steps), max(PARTS, POSITIONS // size))
    parts = min(PARTS, count)
    chosen = steps.start - schedule.first_step + np.arange(count) * len(steps) // count
    firsts = schedule.consumed_train_samples + chosen * size
    files, samples = order.lookup(np.add.outer(firsts, np.arange(size)).ravel())
    sections = samples * SECTIONS // np.array(lengths)[files]
    part = np.repeat(np.arange(count) * parts // count, size)
    reads = np.zeros((parts, len(lengths), SECTIONS), dtype=np.int64)
    np.add.at(reads, (part, files, sections), 1)
    # 2.
    of_files = reads.sum(axis=2)
    among = _dispersion(of_files)
    found = []
    for file in np.flatnonzero(of_files.any(axis=0)).tolist():
        # 3.
        within = _dispersion(reads[:, file])
        picture = _picture(of_files[:, file], of_files.sum(axis=1))
        found.append(Spread(file, _mean(among[[file]]), _mean(within), picture))
    return found


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _dispersion(reads: Int64Array) -> NDArray[np.float64]:
    """Step 2 of `spread_over_steps`: int64 [parts, kinds] -> [kinds]; NaN for the only kind, and for none."""
    rows = reads[reads.any(axis=1)]
    sizes = rows.sum(axis=1, keepdims=True)
    shares = rows.sum(axis=0) / max(rows.sum(), 1)
    variances = sizes * shares * (1 - shares)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = np.square(rows - sizes * shares) / variances
        return found.sum(axis=0) / (len(rows) - 1)


def _picture(reads: Int64Array, sizes: Int64Array) -> str:
    even = sizes * reads.sum() / sizes.sum()
    heights = np.rint(4 * reads / even).clip(0, 8).astype(int)
    return "".join(HEIGHTS[heights])


def spread_lines(spreads: Sequence[Spread], paths: Sequence[str]) -> list[str]:
    """A table of the files that are spread least evenly, worst first."""
    worst = sorted(spreads, key=lambda it: -max(it.among_files or 0, it.within or 0))[:NAMED]
    width = max(len(paths[it.file]) for it in worst)
    head = (
        f"{'spread of':<{width}}   among  within   share of each part of the steps (▄: an even one)"
    )
    lines = [head, *(it.line(f"{paths[it.file]:<{width}}") for it in worst)]
    if len(spreads) > NAMED:
        lines.append(f"and {len(spreads) - NAMED:,} files that are spread more evenly")
    lines.append(WORDS)
    return ["  " + line for line in lines]


@dataclasses.dataclass(frozen=True)
class Uneven:
    """Samples that are read less, or more, often than whole passes through their files explain.

    Attributes:
        how: "less often" or "more often".
        count: of these samples.
        first: (file, sample, reads) of the first ones.
    """

    how: str
    count: int
    first: list[tuple[int, int, int]]

    def line(self, paths: Sequence[str]) -> str:
        named = [f"{paths[file]} sample {sample} ({reads}x)" for file, sample, reads in self.first]
        more = ", ..." if self.count > len(self.first) else ""
        text = f"read {self.how} than in whole passes through its file: {self.count:,} samples"
        return f"  {text}: {', '.join(named)}{more}"


def uneven_samples(
    reads: Sequence[NDArray[np.uint32]], passes: int, *, in_turn: bool = False
) -> list[Uneven]:
    """The samples that keep the reads of a run from being whole passes through its files.

    Args:
        reads: of each file [samples], how often each is read.
        passes: that are known to be complete, through all files.
        in_turn: files are read from front to back, so what stands before the last sample read is due, too.
    """
    chosen: dict[str, list[tuple[int, Int64Array]]] = {"less often": [], "more often": []}
    for file, counts in enumerate(reads):
        total = int(counts.sum())
        least = max(passes, total // max(len(counts), 1))
        most = max(passes, -(-total // max(len(counts), 1)))
        due = np.full(len(counts), least)
        if in_turn:
            reached = np.flatnonzero(counts)[-1:].sum()  # 0 where nothing is read
            due[:reached] = max(least, 1)
        chosen["less often"].append((file, np.flatnonzero(counts < due)))
        chosen["more often"].append((file, np.flatnonzero(counts > most)))
    found = []
    for how, files in chosen.items():
        count = sum(len(samples) for _, samples in files)
        pairs = [(file, int(it)) for file, samples in files for it in samples[:NAMED]][:NAMED]
        if count:
            first = [(file, it, int(reads[file][it])) for file, it in pairs]
            found.append(Uneven(how, count, first))
    return found
