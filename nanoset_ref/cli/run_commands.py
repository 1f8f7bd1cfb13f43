"""Commands on whole runs: replay, skip, audit, loss."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nanoset_ref import provenance, tokens, train  # each loads its modules when used
from nanoset_ref.cli.arguments import NotNegative, Positive
from nanoset_ref.cli.card_commands import show_card_audit, show_skipped_rows
from nanoset_ref.cli.run_options import RunOptions, segment_at, step_given_once
from nanoset_ref.io.files import atomic_write
from nanoset_ref.io.overwriting import refuse_existing, refuse_input
from nanoset_ref.io.paths import read_json
from nanoset_ref.io.types import Array

if TYPE_CHECKING:
    from nanoset_ref.load.nanoset import Nanoset
    from nanoset_ref.provenance import Card, RunSegment


class StepRows(NamedTuple):
    """The rows of consecutive steps.

    Attributes:
        num_rows: of all steps.
        row_length: in tokens.
        dtype: of the ids.
        batches: yields the rows of each step, and of more steps after them.
    """

    num_rows: int
    row_length: int
    dtype: np.dtype[Any]
    batches: Iterator[Array]


def replay(
    step_number: int | None = None,
    /,
    *,
    step: int | None = None,
    steps: Positive = 1,
    output: Path | None = None,
    overwrite: bool = False,
    mirror: str | None = None,
    options: RunOptions,
) -> None:
    """The ids of the rows that steps read, for training on them again.

    Args:
        step_number: the first optimizer step, from 1; here or as --step.
        step: the first optimizer step, from 1.
        steps: the number of steps.
        output: write a .npy file [rows of all these steps, tokens of a row] instead of printing one
            row per line.
        overwrite: replace an existing file.
        mirror: see `show`.
    """
    first = step_given_once(step_number, step)
    numbers = range(first, first + steps)
    named = options.config, options.run, options.order, options.sizes
    inputs: list[Any] = list(filter(None, named))
    if options.is_card_alone:
        step_rows = _published_rows(options.card, numbers, mirror)
    else:
        segments = options.segments()
        step_rows = _rows_of_files(segments, numbers)
        for path in {
            file.path for segment in segments for file in segment.dataset.files
        }:
            inputs += [path, *tokens.companions_of(path)]
    batches = itertools.islice(step_rows.batches, steps)
    if output is None:
        _print_rows(options, numbers, batches)
        return
    refuse_existing(output, overwrite)
    refuse_input(output, inputs)
    shape = step_rows.num_rows, step_rows.row_length
    header = {"descr": step_rows.dtype.str, "fortran_order": False, "shape": shape}
    with atomic_write(output) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for batch in batches:
            file.write(batch.data)
    print(
        f"{output}: {shape[0]:,} rows of {shape[1]:,} ids, steps {first} to {numbers[-1]}"
    )


def _print_rows(options: RunOptions, numbers: range, batches: Iterator[Array]) -> None:
    """Print the rows of steps, one row per line."""
    results = []
    lines = []
    for number, batch in zip(numbers, batches, strict=True):
        rows = batch.tolist()
        results.append({"step": number, "rows": rows})
        lines += [" ".join(map(str, row)) for row in rows]
    options.print_result(results, *lines)


def _published_rows(card: Card, numbers: range, mirror: str | None) -> StepRows:
    """The rows of steps from the published files of a card."""
    card.stage(numbers[-1])  # raises now if there is no such step
    return StepRows(
        sum(card.stage(number)["batch_size"] for number in numbers),
        card.facts["window"]["row_length"],
        np.dtype(card.facts["dtype"]),
        card.replay(numbers[0], mirror=mirror),
    )


def _rows_of_files(segments: Sequence[RunSegment], numbers: range) -> StepRows:
    """The rows of steps from the token files of a run."""
    segment_at(segments, numbers[-1])  # raises now if there is no such step
    read = [segment_at(segments, number) for number in numbers]
    lengths = {segment.dataset.row_length for segment in read}
    if len(lengths) > 1:
        raise ValueError(
            f"these steps have rows of {sorted(lengths)} tokens: replay them one by one"
        )
    # ids of Megatron's corpora may have 64 bits in one stage and 32 in another
    dtype = np.result_type(*(segment.dataset.row_dtype for segment in read))
    steps = provenance.replay(segments, numbers[0])
    return StepRows(
        sum(segment.schedule.global_batch_size for segment in read),
        lengths.pop(),
        dtype,
        (rows.astype(dtype, copy=False) for rows in steps),
    )


def skip(bulk: Path, /, *, source: NotNegative = 0, options: RunOptions) -> None:
    """What a run reads without some documents or bytes, and from which step on it differs.

    Args:
        bulk: a file that names them, one per line, as `when` takes it: [SOURCE:]DOCUMENT,
            [SOURCE:]FIRST_BYTE-END_BYTE, or a passage as JSON.
        source: number of the file, from 0, for lines that name none.
    """
    readers, parser = options.readers(source)
    # a line that is not UTF-8 is reported as a wrong query
    with open(bulk, encoding="utf-8-sig", errors="replace") as lines:
        stages = provenance.rows_to_skip(readers, parser, lines)
    show_skipped_rows(options, stages)


def audit(
    *,
    num_loading_workers: NotNegative | None = None,
    state: Path | None = None,
    options: RunOptions,
) -> int:
    """Simulate all ranks of a run and check that every position is read once.

    Args:
        num_loading_workers: DataLoader workers per rank, of a run named by --data (default: 0).
        state: a saved data state (JSON): report also the samples that this plan would repeat or
            lose.
    """
    workers = options.workers(num_loading_workers)
    if options.is_card_alone and state is None:
        return show_card_audit(options, options.card)
    segments = options.segments(workers)
    report = provenance.audit(segments)
    result = {"ok": report.ok, **dataclasses.asdict(report)}
    lines = [str(report)]
    if state is not None:
        saved = read_json(state)
        try:
            loader_state, stage = provenance.loader_state(saved)
            dataset = _dataset_of_stage(segments, stage)
            continuation = provenance.compare(loader_state, dataset)
        except Exception as error:  # JSON can contain anything instead of a state
            raise ValueError(
                f"{state} cannot be compared with this run ({type(error).__name__}: {error}); "
                "give a checkpoint's state.json, or a NanosetDataLoader's state_dict as JSON"
            ) from error
        result["continuation"] = continuation
        lines.append(str(continuation))
    options.print_result(result, *lines)
    return 0 if report.ok else 1


def _dataset_of_stage(segments: Sequence[RunSegment], stage: str | None) -> Nanoset:
    """The dataset of the stage in which a state was saved; the only one of a run without stages."""
    from nanoset_ref import Nanoset

    datasets = {segment.name: segment.dataset for segment in segments}
    if stage is None or list(datasets) == ["run"]:
        stage = segments[0].name
    if stage not in datasets:
        raise ValueError(
            f"the state was saved in the stage {stage!r}, but this run has {list(datasets)}"
        )
    dataset = datasets[stage]
    if not isinstance(dataset, Nanoset):
        raise ValueError(
            "only plans of token files can be compared; this run reads rows of another kind"
        )
    return dataset


def loss(metrics: Path, /, *, lines: Positive = 20) -> None:
    """The loss of a run as a plot of text: a bar for the mean loss of each range of steps.

    Args:
        metrics: the folder of the run's checkpoints, or its metrics.jsonl.
        lines: the largest number of bars.
    """
    if metrics.is_dir():
        metrics /= "metrics.jsonl"
    rows = train.read_metrics(metrics)
    if not rows:
        raise ValueError(f"{metrics} holds no step yet")
    # a step without a loss (null, or NaN in older files) does not count
    losses = np.array([row.get("loss") for row in rows], dtype=np.float64)
    parts = np.array_split(np.arange(len(rows)), min(lines, len(rows)))
    means = []
    for part in parts:
        finite = losses[part][np.isfinite(losses[part])]
        means.append(finite.mean() if len(finite) else None)
    highest = max((mean for mean in means if mean is not None), default=0.0)
    scale = 60 / highest if highest > 0 else 0.0
    for part, mean in zip(parts, means, strict=True):
        first = rows[part[0]]["step"]
        last = rows[part[-1]]["step"]
        bar = "    none"
        if mean is not None:
            bar = f"{mean:8.4f}  {'#' * round(scale * mean)}"
        print(f"steps {first:6.0f} to {last:6.0f}   {bar}")
