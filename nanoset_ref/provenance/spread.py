"""How evenly a run reads its files: over its steps, and over their samples."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from nanoset_ref.io.error_text import pluralize
from nanoset_ref.io.types import Float64Array, Int64Array, IntegerArray
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders.base import Order

MAX_PARTS = 64  # of the steps
SECTIONS = 16  # of a file
MAX_POSITIONS = 1 << 20  # looked up
MAX_LISTED = 10  # samples, and files, in a report
BARS = np.array(list(" ▁▂▃▄▅▆▇█"))  # from nothing to twice an even share
LEGEND = (
    "spread of 0: round robin; 1: as after a fair shuffle; "
    "m: as after a shuffle of pieces of m rows"
)


@dataclasses.dataclass(frozen=True)
class Spread:
    """How evenly one file is read over the steps.

    Attributes:
        file: its number.
        among_files: the variance of its reads in equal parts of the steps, divided by the variance
            under a fair shuffle of all reads. None: it is the only file.
        within: the same for the sections of the file among its reads, averaged.
        picture: its share of each part of the steps, one character each.
    """

    file: int
    among_files: float | None
    within: float | None
    picture: str

    def line(self, path: str) -> str:
        """The line of a table that starts with `path`."""
        figures = ""
        for figure in (self.among_files, self.within):
            figures += "    only" if figure is None else f" {figure:7.2f}"
        return f"{path}{figures}  |{self.picture}|"


def spread_over_steps(
    order: Order,
    schedule: Schedule,
    steps: range,
) -> list[Spread]:
    """Measure how evenly each file that is read is spread over the steps.

    1. Cut the steps into at most MAX_PARTS parts, and look up evenly spaced steps, at most
       MAX_POSITIONS positions in all.
    2. Compare c reads of a file among the n of a part with n w, where w is the file's share of all
       reads. The sum of (c - n w)**2 / (n w (1 - w)) over the parts, divided by their number less
       one, has the mean 1 if the reads were shuffled, and m if pieces of m neighbors were.
    3. Do the same for the reads of each section of a file among all reads of the file.

    Args:
        order: the order of the files.
        schedule: the positions of each step.
        steps: the steps to measure.
    """
    # 1.
    reads = _count_reads(order, schedule, steps)
    # 2.
    reads_of_files = reads.sum(axis=2)
    among_files = _dispersion(reads_of_files)
    spreads = []
    sizes = reads_of_files.sum(axis=1)
    read_files = np.flatnonzero(reads_of_files.any(axis=0))
    for file in read_files.tolist():
        # 3.
        within = _dispersion(reads[:, file])
        reads_of_file = reads_of_files[:, file]
        even = sizes * reads_of_file.sum() / sizes.sum()
        heights = np.rint(4 * reads_of_file / even).clip(0, 8)
        picture = "".join(BARS[heights.astype(int)])
        among = _mean(among_files[[file]])
        spreads.append(Spread(file, among, _mean(within), picture))
    return spreads


def _count_reads(
    order: Order,
    schedule: Schedule,
    steps: range,
) -> Int64Array:
    """Step 1 of `spread_over_steps`: reads, int64 [parts, files, SECTIONS]."""
    size = schedule.global_batch_size
    max_steps = max(MAX_PARTS, MAX_POSITIONS // size)
    count = min(len(steps), max_steps)
    parts = min(MAX_PARTS, count)
    numbers = np.arange(count)
    looked_up = steps.start + numbers * len(steps) // count
    starts = schedule.first_position(looked_up)
    positions = np.add.outer(starts, np.arange(size)).ravel()
    files, samples = order.lookup(positions)
    lengths = order.dataset_lengths
    sections = samples * SECTIONS // lengths[files]
    part_of_step = numbers * parts // count
    part = np.repeat(part_of_step, size)
    reads = np.zeros((parts, len(lengths), SECTIONS), dtype=np.int64)
    np.add.at(reads, (part, files, sections), 1)
    return reads


def _mean(values: Float64Array) -> float | None:
    """The mean of the finite values; None if there is none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _dispersion(reads: Int64Array) -> Float64Array:
    """Step 2 of `spread_over_steps`: int64 [parts, kinds] -> float64 [kinds].

    NaN for a kind without reads, and for one that has all of them.
    """
    rows = reads[reads.any(axis=1)]
    sizes = rows.sum(axis=1, keepdims=True)
    shares = rows.sum(axis=0) / max(rows.sum(), 1)
    expected = sizes * shares
    variances = expected * (1 - shares)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares: Float64Array = np.square(rows - expected)
        ratios = squares / variances
        return ratios.sum(axis=0) / (len(rows) - 1)


def spread_lines(spreads: Sequence[Spread], paths: Sequence[str]) -> list[str]:
    """A table of the files that are spread least evenly, worst first."""
    worst = sorted(
        spreads,
        key=lambda spread: max(spread.among_files or 0, spread.within or 0),
        reverse=True,
    )[:MAX_LISTED]
    width = max(len(paths[spread.file]) for spread in worst)
    header = "among  within   share of each part of the steps (▄: an even one)"
    lines = [f"{'spread of':<{width}}   {header}"]
    for spread in worst:
        path = paths[spread.file].ljust(width)
        lines.append(spread.line(path))
    more = len(spreads) - MAX_LISTED
    if more > 0:
        lines.append(f"and {more:,} files that are spread more evenly")
    lines.append(LEGEND)
    return ["  " + line for line in lines]


@dataclasses.dataclass(frozen=True)
class UnevenSamples:
    """Samples that are read less, or more, often than whole passes through their files explain.

    Attributes:
        how: "less often" or "more often".
        count: the number of these samples.
        first: (file, sample, reads) of the first MAX_LISTED of them.
    """

    how: str
    count: int
    first: list[tuple[int, int, int]]

    def line(self, paths: Sequence[str]) -> str:
        """The finding as a line of text."""
        named = [
            f"{paths[file]} sample {sample} ({reads}x)"
            for file, sample, reads in self.first
        ]
        if self.count > len(self.first):
            named.append("...")
        return (
            f"  read {self.how} than in whole passes through its file: "
            f"{pluralize(self.count, 'sample')}: {', '.join(named)}"
        )


def uneven_samples(
    reads: Sequence[IntegerArray],
    passes: int,
    *,
    in_sequence: bool = False,
) -> list[UnevenSamples]:
    """Find the samples that keep a run from reading its files in whole passes.

    Args:
        reads: integers [samples] for each file, how often each sample is read.
        passes: the number of complete passes through all files, if known; else 0.
        in_sequence: whether files are read from front to back, so that every sample before the last
            one read must have been read.
    """
    less = []
    more = []
    for counts in reads:
        total = int(counts.sum())
        size = max(len(counts), 1)
        most_reads = max(passes, -(-total // size))
        fewest_reads = max(passes, total // size)
        expected = np.full(len(counts), fewest_reads)
        if in_sequence:
            last_read = np.flatnonzero(counts)[-1:].sum()  # 0 where nothing is read
            expected[:last_read] = max(fewest_reads, 1)
        less.append(np.flatnonzero(counts < expected))
        more.append(np.flatnonzero(counts > most_reads))
    both = [
        _uneven("less often", less, reads),
        _uneven("more often", more, reads),
    ]
    return [uneven for uneven in both if uneven.count]


def _uneven(
    how: str,
    samples: Sequence[Int64Array],
    reads: Sequence[IntegerArray],
) -> UnevenSamples:
    """Describe samples: int64 [n] for each file."""
    first: list[tuple[int, int, int]] = []
    for file, uneven in enumerate(samples):
        left = MAX_LISTED - len(first)
        for sample in uneven[:left].tolist():
            times = int(reads[file][sample])
            first.append((file, sample, times))
    count = sum(map(len, samples))
    return UnevenSamples(how, count, first)
