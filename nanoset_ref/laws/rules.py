"""The laws of loading, one function each; a `Trial` runs the loader.

A law that a loader does not claim is not checked. `docs/laws_of_loading.md` explains each law, with
a famous bug.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nanoset_ref.laws.corpora import Corpus
from nanoset_ref.laws.findings import (
    Batches,
    Finding,
    Kind,
    Verdict,
    all_rows,
    by_step,
    difference,
    reads,
)
from nanoset_ref.laws.runner import LoaderProcesses
from nanoset_ref.laws.trial import Case, CaseRefused, LoaderFailed, Trial

MIN_DISTINCT = 20  # with this many rows, two shuffles do not agree by chance: 1 / 20!
SIGMAS = 6  # larger deviations are not chance
ROUNDING = 2  # rows by which a source may miss its share, besides chance
MAX_NEIGHBORS = 12  # pairs that stay together; a shuffle leaves about 1 by chance
EPOCHS = 2  # of sources with weights
SEEDS = 16  # tried where a few shuffled files may have the same order by chance
SMALL_CORPUS = 2**10  # rows of the two corpora of `law_growth`
LARGE_CORPUS = 2**16
MAX_GROWTH = 8  # times, from one to the other
NOISE = {"s": 0.05, "bytes": 2**20}  # of measurements, by unit


def law_once(trial: Trial) -> Verdict:
    """Every row is read exactly once per epoch, by all ranks together."""
    return trial.find_miscount(trial.run().batches)


def law_ranks(trial: Trial) -> Verdict:
    """Ranks read different rows, and equally many batches of equal size, so no rank deadlocks."""
    batches = trial.run().batches
    counts = [len(steps) for steps in batches]
    if len(set(counts)) > 1:
        message = f"the ranks have {counts} batches: the other ranks hang at step {min(counts)}"
        return Finding("hang", message, batches)
    for rank, step, _ in reads(batches):
        size = len(batches[rank][step])
        if step < trial.full_steps and size != trial.case.batch_size:
            message = (
                f"the batch of rank {rank} at step {step} has {size} rows "
                f"and should have {trial.case.batch_size}"
            )
            return Finding("lost", message, batches)
    for rank, steps in enumerate(batches):
        if steps in batches[:rank] and _num_distinct([steps]) >= MIN_DISTINCT:
            message = f"rank {rank} read what rank {batches.index(steps)} read"
            return Finding("doubled", message, batches)
    owners = {(row, rank) for rank, _, row in reads(batches)}
    is_shared = len(owners) > _num_distinct(batches)
    if is_shared and "once" in trial.claims:
        return trial.find_miscount(batches)
    return None


def law_order(trial: Trial) -> Verdict:
    """All ranks together read the same rows at the same step, however many ranks there are."""
    sizes = _other_sizes(trial)
    expected = by_step(trial.run().batches, trial.full_steps)
    actual = trial.run(**sizes).batches
    change = f"with {sizes['world_size']} ranks instead of {trial.case.world_size}"
    return difference(expected, by_step(actual, trial.full_steps), change)


def law_workers(trial: Trial) -> Verdict:
    """Every rank reads the same batches, for any number of workers and any prefetching."""
    if trial.adapter.max_workers == 0:
        raise CaseRefused("max_workers is 0")
    number = 1 + trial.case.other % trial.adapter.max_workers
    return trial.compare(f"with {number} workers instead of none", workers=number)


def law_repeat(trial: Trial) -> Verdict:
    """The same call in another process gives the same batches."""
    return trial.compare("in another process with the same arguments")


def law_seed(trial: Trial) -> Verdict:
    """Another seed gives a different order of the same rows."""
    return _check_reordered(trial, "seed", trial.case.other)


def law_epochs(trial: Trial) -> Verdict:
    """A new epoch reads all rows again, in a new order (or in the same one, if declared)."""
    if not trial.adapter.same_epochs:
        return _check_reordered(trial, "epoch", 1)
    return trial.compare("in the next epoch", epoch=trial.case.epoch + 1)


def law_resume(trial: Trial) -> Verdict:
    """A run that stops and resumes, once or more, reads the same rows as an uninterrupted one."""
    return _stop_and_resume(trial, kill=False)


def law_killed(trial: Trial) -> Verdict:
    """A run killed with SIGKILL resumes exactly."""
    return _stop_and_resume(trial, kill=True)


def law_elastic(trial: Trial) -> Verdict:
    """A stopped run resumes with another number of ranks, and no row is lost or read twice."""
    case = trial.case
    stop = case.stops[0] % (trial.full_steps + 1)
    sizes = _other_sizes(trial)
    before = trial.run(steps=stop, take_states=True)
    shorter_batch_follows = (
        trial.adapter.tail == "keep" and stop * case.global_batch_size < case.rows
    )
    if stop == trial.full_steps and not shorter_batch_follows:
        return None  # the next epoch follows
    after = trial.run(resume_from=before.states, **sizes)
    read = _join(by_step(before.batches), by_step(after.batches))
    miscount = None
    if "order" not in trial.claims or "once" in trial.claims:
        miscount = trial.find_miscount(read)
    if miscount is not None or "order" not in trial.claims:
        return miscount
    expected = by_step(trial.run().batches, trial.full_steps)
    change = f"stopped after {stop} steps and resumed with {sizes['world_size']} ranks"
    return difference(expected, by_step(read, trial.full_steps), change)


def law_weights(trial: Trial) -> Verdict:
    """Every source has its share in every prefix of the order."""
    data = _weighted_sources(trial)
    shares = np.array(data.weights)
    batches = trial.run(data=data, steps=2 * sum(data.rows)).batches
    bounds = np.cumsum(data.rows)
    drawn = np.searchsorted(bounds, _whole_rows(batches), side="right")
    is_drawn = drawn[:, None] == np.arange(len(shares))
    taken = np.cumsum(is_drawn, axis=0)
    counts = np.arange(1, len(drawn) + 1)
    due = np.outer(counts, shares)
    deviation = np.sqrt(due * (1 - shares))
    excess = abs(taken - due) - SIGMAS * deviation - ROUNDING
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    if excess[worst] <= 0:
        return None
    row, source = worst
    message = (
        f"{taken[worst]} of the first {row + 1} rows came from source {source}, "
        f"and {due[worst]:.1f} should have"
    )
    kind: Kind = "doubled"
    if taken[worst] < due[worst]:
        kind = "lost"
    return Finding(kind, message, batches)


def law_complete(trial: Trial) -> Verdict:
    """No row of a source comes again before all rows of the source have come."""
    data = _weighted_sources(trial)
    steps = EPOCHS * sum(data.rows)
    batches: Batches = [[]]
    for epoch in range(EPOCHS):
        part = trial.run(data=data, steps=steps, epoch=epoch).batches
        batches = _join(batches, part)
        if trial.adapter.same_epochs or len(part[0]) == steps:
            break  # the next epoch is the same, or there is none
    read = _whole_rows(batches)
    first = 0
    for source, size in enumerate(data.rows):
        rows = range(first, first + size)
        first += size
        due = set(rows)
        for row in read:
            if row not in rows:
                continue
            if row not in due:
                message = (
                    f"row {row} of source {source} came again before row {min(due)} of it "
                    "came"
                )
                return Finding("doubled", message, batches, rows=(row,))
            due.remove(row)
            if not due:
                due = set(rows)
    return None


def law_spread(trial: Trial) -> Verdict:
    """File neighbors are separated, and reading order is uncorrelated with file order."""
    batches = trial.run().batches
    read = np.array(_whole_rows(batches), dtype=float)
    if len(read) < 10 * MIN_DISTINCT:
        raise CaseRefused("too few rows to measure how they are mixed")
    neighbors = np.count_nonzero(np.diff(read) == 1)
    if neighbors > MAX_NEIGHBORS:
        message = f"{neighbors} times a row was followed by its neighbor in the file"
        return Finding("out of order", message, batches)
    positions = np.arange(len(read))
    correlation = np.corrcoef(read, positions)[0, 1]
    drift = abs(correlation) * np.sqrt(len(read) - 1)
    if drift > SIGMAS:
        message = f"reading order follows file order ({drift:.0f} standard deviations)"
        return Finding("out of order", message, batches)
    return None


def law_owned(trial: Trial) -> Verdict:
    """A batch belongs to its receiver: it never changes, and writing to it changes no other."""
    fault = _find_fault(trial, "owned")
    if fault is not None:
        return fault
    change = "when every batch is overwritten by its receiver"
    return trial.compare(change, overwrite_batches=True)


def law_data(trial: Trial) -> Verdict:
    """The loader delivers whole rows of the files, and nothing else."""
    trace = trial.run()
    for rank, step, row in reads(trace.batches):
        if not isinstance(row, int) or not 0 <= row < trial.case.rows:
            message = f"rank {rank} read {row!r} at step {step}, which is not a row of the data"
            if isinstance(row, str):
                message += "; a loader of random crops claims neither data nor once"
            return Finding("other data", message, trace.batches, rows=(row,))
    return None


def law_refuses(trial: Trial) -> Verdict:
    """A state is refused if the data have changed since."""
    before = trial.run(steps=1, take_states=True)
    rows = trial.case.rows
    grown = trial.data(rows + 1)
    try:
        after = trial.run(data=grown, resume_from=before.states)
        batches = after.batches
    except LoaderFailed as failure:
        if failure.finding.kind == "hang":
            return failure.finding
        batches = failure.finding.actual
        if not any(batches):
            return None
    message = f"a state of {rows} rows was accepted for {rows + 1} rows"
    return Finding("other data", message, batches)


def law_length(trial: Trial) -> Verdict:
    """len(loader) is the number of batches yielded; after a resume it may be that of the epoch."""
    epoch = trial.run(take_length=True)
    traces = {"": epoch}
    if "resume" in trial.claims:
        num_steps = max(map(len, epoch.batches))
        _, states, stops = _run_to_stops(trial, num_steps)
        when = f"resumed {_after(stops)}, "
        traces[when] = trial.run(resume_from=states, take_length=True)
    for when, trace in traces.items():
        for rank, declared in enumerate(trace.lengths):
            yielded = len(trace.batches[rank])
            if declared not in (yielded, len(epoch.batches[rank])):
                message = f"{when}rank {rank} declared {declared} batches and yielded {yielded}"
                return Finding("lost", message, trace.batches)
    return None


def law_masks(trial: Trial) -> Verdict:
    """A mask is true at every token and false at padding."""
    return _find_fault(trial, "masks")


def law_growth(trial: Trial) -> Verdict:
    """Startup time and memory stay nearly flat: at most 8x for 64x the rows."""
    small = _measure(trial, SMALL_CORPUS)
    large = _measure(trial, LARGE_CORPUS)
    for unit, noise in NOISE.items():
        before = small[unit]
        after = large[unit]
        if after > MAX_GROWTH * before + noise:
            message = (
                f"the first batch of {LARGE_CORPUS:,} rows takes {after:,.3g} {unit}, "
                f"that of {SMALL_CORPUS:,} rows {before:,.3g}"
            )
            return Finding("slow growth", message)
    return None


def _weighted_sources(trial: Trial) -> Corpus:
    """Three sources of different sizes and weights."""
    rows = trial.case.rows
    parts = np.array([trial.case.other, 2, 1])
    shares = parts / parts.sum()
    return trial.corpus([rows, 1 + rows // 2, 1 + rows // 3], shares.tolist())


def _whole_rows(batches: Batches) -> list[int]:
    """The numbers of the rows that were read."""
    rows = all_rows(batches)
    if not rows:
        raise CaseRefused("no batch was delivered")
    if any(isinstance(row, str) for row in rows):
        raise CaseRefused(
            "rows that are not whole (crops) have no place in the file to compare"
        )
    return rows


def _find_fault(trial: Trial, law: str) -> Verdict:
    """A fault that was seen while the batches were delivered."""
    trace = trial.run()
    if law not in trace.faults:
        return None
    return Finding("other data", trace.faults[law], trace.batches)


def _measure(trial: Trial, rows: int) -> dict[str, float]:
    """The smallest time and memory of five runs until the first batch, by unit."""
    data = trial.data(rows)
    traces = [trial.run(data=data, steps=1, measure=True) for _ in range(5)]
    return {
        "s": min(trace.seconds for trace in traces),
        "bytes": min(trace.memory for trace in traces),
    }


def _num_distinct(batches: Batches) -> int:
    """The number of different rows."""
    return len(set(all_rows(batches)))


def _other_sizes(trial: Trial) -> dict[str, Any]:
    """Another number of ranks that the adapter allows, with the same global batch."""
    case = trial.case
    whole = case.global_batch_size
    sizes = [
        size
        for size in range(1, min(whole, trial.adapter.max_ranks) + 1)
        if whole % size == 0
        and whole // size <= trial.adapter.max_batch_size
        and size != case.world_size
    ]
    if not sizes:
        raise CaseRefused("no other number of ranks has the same global batch")
    world_size = sizes[case.other % len(sizes)]
    return {"world_size": world_size, "batch_size": whole // world_size}


def _check_reordered(trial: Trial, name: str, step: int) -> Verdict:
    """Compare the order with that of another seed or epoch, a `step` further."""
    case = trial.case
    seeds = 1
    if trial.adapter.files > 1:
        seeds = SEEDS
    for seed in range(case.seed, case.seed + seeds):
        settings: dict[str, Any] = {"seed": seed, "epoch": case.epoch}
        here = trial.run(**settings).batches
        settings[name] += step
        there = trial.run(**settings).batches
        is_short = _num_distinct(here) < MIN_DISTINCT
        if is_short or all_rows(here) != all_rows(there):
            return trial.find_miscount(there) if "once" in trial.claims else None
    old = getattr(case, name)
    message = f"{name}s {old} and {old + step} have the same order"
    return Finding("out of order", message, there)


def _stop_and_resume(trial: Trial, *, kill: bool) -> Verdict:
    """Stop and resume at each of the stops, and compare with the uninterrupted run."""
    expected = trial.run().batches
    num_steps = max(map(len, expected))
    read, states, stops = _run_to_stops(trial, num_steps, kill=kill)
    last = trial.run(resume_from=states)
    endless = len(expected[0]) == trial.steps
    if sum(stops) == num_steps and not endless:
        # the run is finished, or continues with the next epoch
        if read == expected and all_rows(last.batches):
            epoch = trial.case.epoch + 1
            following = trial.run(epoch=epoch).batches
            change = f"in epoch {epoch}, after a resume at the end of the one before"
            return difference(following, last.batches, change)
        return difference(expected, read, "stopped at the end of an epoch")
    how = "killed" if kill else "stopped"
    change = f"{how} {_after(stops)} and resumed"
    read = _join(read, last.batches)
    if endless:
        read = [steps[: trial.steps] for steps in read]
    return difference(expected, read, change)


def _run_to_stops(
    trial: Trial,
    num_steps: int,
    *,
    kill: bool = False,
) -> tuple[Batches, tuple[bytes, ...], list[int]]:
    """Stop and resume at each of the stops in an epoch of `num_steps` steps.

    Returns:
        the rows read, the states at the last stop, and the steps before each stop.
    """
    read: Batches = [[] for _ in range(trial.case.world_size)]
    states: tuple[bytes, ...] = ()
    stops: list[int] = []
    for drawn in trial.case.stops:
        left = num_steps - sum(stops)
        stop = drawn % (left + 1)
        stops.append(stop)
        part = trial.run(
            steps=stop,
            take_states=True,
            resume_from=states,
            kill=kill,
        )
        read = _join(read, part.batches)
        states = part.states
    return read, states, stops


def _after(stops: list[int]) -> str:
    """The stops in words.

    >>> _after([2, 1])
    'after 2 and 1 steps'
    """
    counts = " and ".join(map(str, stops))
    return f"after {counts} step{'s' * (stops != [1])}"


def _join(before: Batches, after: Batches) -> Batches:
    """The batches of two parts of an epoch, one after another on each rank."""
    return [old + new for old, new in zip(before, after, strict=True)]


DRAWN_FIELDS = "rows world_size batch_size seed"
# {law: (its function, the fields of a case that are drawn for it)}
LAWS: dict[str, tuple[Callable[[Trial], Verdict], str]] = {
    "once": (law_once, f"{DRAWN_FIELDS} workers epoch"),
    "ranks": (law_ranks, f"{DRAWN_FIELDS} epoch"),
    "order": (law_order, f"{DRAWN_FIELDS} other"),
    "workers": (law_workers, f"{DRAWN_FIELDS} other"),
    "repeat": (law_repeat, f"{DRAWN_FIELDS} workers"),
    "seed": (law_seed, f"{DRAWN_FIELDS} other"),
    "epochs": (law_epochs, f"{DRAWN_FIELDS} epoch"),
    "resume": (law_resume, f"{DRAWN_FIELDS} workers epoch stops"),
    "killed": (law_killed, f"{DRAWN_FIELDS} workers stops"),
    "elastic": (law_elastic, f"{DRAWN_FIELDS} other stops"),
    "weights": (law_weights, "rows batch_size seed other"),
    "complete": (law_complete, "rows seed other"),
    "spread": (law_spread, "rows batch_size seed epoch"),
    "owned": (law_owned, f"{DRAWN_FIELDS} workers"),
    "data": (law_data, f"{DRAWN_FIELDS} workers"),
    "refuses": (law_refuses, DRAWN_FIELDS),
    "length": (law_length, f"{DRAWN_FIELDS} workers stops"),
    "masks": (law_masks, f"{DRAWN_FIELDS} workers"),
    "growth": (law_growth, "batch_size"),
}


def check_case(processes: LoaderProcesses, law: str, case: Case) -> Verdict:
    """Check one law in one case.

    Raises:
        CaseRefused: the loader refuses this case.
    """
    check_law, _ = LAWS[law]
    try:
        return check_law(Trial(processes, case))
    except LoaderFailed as failure:
        return failure.finding
