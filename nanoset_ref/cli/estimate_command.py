"""nanoset-ref estimate: hours, memory, disk and epochs of a run before it begins.

Arithmetic only: files are opened for their sizes, and no index is built. Where a shuffle decides,
the estimate is the expected value: over whole epochs a source is off by at most one sample per
epoch; within an epoch the true number varies with the seed. Only orders of other loaders, or in a
file, are counted position by position.

1. Each stage becomes a `SourceBlend`: its sources, their shares, and how its order reads them.
2. Positions [start, stop) of the blend become samples read from each source, and samples that no
   step reads.
3. With a speed, tokens become hours.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

# each loads its modules when used
from nanoset_ref import tokens, train
from nanoset_ref.cli.arguments import NotNegative, Positive, UsageError
from nanoset_ref.cli.estimate_sources import (
    Source,
    SourceBlend,
    megatron_blend,
    token_blend,
)
from nanoset_ref.cli.run_options import RunOptions
from nanoset_ref.io.error_text import pluralize, redact, shorten_paths
from nanoset_ref.io.types import Json
from nanoset_ref.load.blocks import batches_per_block, count_buffers
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders import ORDERS, find_order  # type: ignore[attr-defined]

ID_BYTES = 4  # rows are read as int32
PREFETCH_FACTOR = 2  # torch's default


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceEstimate:
    """The reads of one source by one stage.

    Attributes:
        path: the name of the source.
        samples: samples in the source.
        share: its share of the blend.
        read: samples that the stage reads.
        epochs: `read` / `samples`.
        never_read: samples that are still unread at the end of the stage. If the stage continues
            earlier ones, their reads count.
        tail_tokens: tokens in no sample.
    """

    path: str
    samples: int
    share: float
    read: int
    epochs: float
    never_read: int
    tail_tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageEstimate:
    """The estimate of a stage.

    Attributes:
        name: the stage.
        order: the order; see `SourceBlend`.
        steps: optimizer steps.
        samples: samples that all ranks read together.
        tokens: tokens that all ranks read together.
        samples_per_epoch: samples in an epoch of its blend.
        micro_batches_per_epoch: micro-batches that one rank reads in an epoch.
        data_bytes: size of its files on the disk.
        index_bytes: memory of the index in each process.
        buffer_bytes: memory of the loader's buffers in each process.
        padded: whether rows may end in padding.
        sources: the estimates of its sources.
    """

    name: str
    order: str
    steps: int
    samples: int
    tokens: int
    samples_per_epoch: int
    micro_batches_per_epoch: int
    data_bytes: int
    index_bytes: int
    buffer_bytes: int
    padded: bool
    sources: Sequence[SourceEstimate]

    def __str__(self) -> str:
        size = self.samples // max(self.steps, 1)
        lines = [
            f"{self.name}: {self.steps:,} steps of {size:,} samples = {self.samples:,} samples, "
            f"{self.tokens:,} tokens",
            f"  each process: index {format_bytes(self.index_bytes)} ({self.order}), buffers up "
            f"to {format_bytes(self.buffer_bytes)}; files on the disk: "
            f"{format_bytes(self.data_bytes)}",
        ]
        if not self.sources:
            lines.append("  the number of tokens is known only after tokenizing")
            return "\n".join(lines)
        epochs = self.samples / max(self.samples_per_epoch, 1)
        lines.append(
            f"  an epoch: {self.samples_per_epoch:,} samples, {self.micro_batches_per_epoch:,} "
            f"micro-batches of each rank; the stage is {epochs:.3f} epochs"
        )
        lines += self._table()
        if self.padded:
            lines.append(
                "  rows end in padding, which is excluded from the loss; `nanoset-ref inspect` "
                "prints the lengths of the documents"
            )
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """A header and a line for each source."""
        paths = shorten_paths([source.path for source in self.sources])
        width = max(map(len, ["source", *paths]))
        lines = [
            f"  {'source':<{width}} {'samples':>13} {'share':>7} {'read':>13} {'epochs':>8}"
            f" {'never read':>13} {'tail tokens':>11}"
        ]
        for path, source in zip(paths, self.sources, strict=True):
            lines.append(
                f"  {path:<{width}} {source.samples:>13,} {source.share:>7.4f} {source.read:>13,}"
                f" {source.epochs:>8.3f} {source.never_read:>13,} {source.tail_tokens:>11,}"
            )
        return lines


def estimate(
    *,
    tokens_per_second: float | None = None,
    step_time: float | None = None,
    gpus: Positive | None = None,
    num_loading_workers: NotNegative | None = None,
    options: RunOptions,
) -> None:
    """Hours, memory, disk and epochs of a run before it begins.

    No index is built, and no token is read. An order in a file, or of another loader, has its reads
    counted.

    Args:
        tokens_per_second: throughput of the whole run; adds hours to the report.
        step_time: seconds per optimizer step, instead of --tokens-per-second.
        gpus: the number of GPUs; default: the config's dp x pp x tp, or --dp-size.
        num_loading_workers: DataLoader workers per rank, of a run named by --data (default: 0).
    """
    _check_times(tokens_per_second, step_time)
    if options.run:
        raise UsageError("estimate takes --config or --data, not --run")
    workers = options.workers(num_loading_workers)
    if options.config:
        config = options.read_config()
        stages = list(estimate_stages(config, train.recorded_data(options.config)))
        sizes = config.parallelism
        gpus = gpus or sizes.dp * sizes.pp * sizes.tp
    else:
        schedule = options.schedule or Schedule()
        stages = [_stage_of_options(options, schedule, workers)]
        gpus = gpus or schedule.dp_size
    steps = sum(stage.steps for stage in stages)
    num_tokens = sum(stage.tokens for stage in stages)
    total: Json = {"steps": steps, "tokens": num_tokens, "gpus": gpus}
    line = f"total: {steps:,} steps, {num_tokens:,} tokens on {pluralize(gpus, 'GPU')}"
    seconds = None
    if tokens_per_second:
        seconds = num_tokens / tokens_per_second
    elif step_time:
        seconds = steps * step_time
    if seconds is not None:
        hours = seconds / 3600
        total |= {"hours": hours, "gpu_hours": hours * gpus}
        line += f": {hours:,.2f} hours, {hours * gpus:,.2f} GPU-hours"
    else:
        line += "; give --tokens-per-second or --step-time to see hours"
    options.print_result(total | {"stages": stages}, *map(str, stages), line)


def _check_times(tokens_per_second: float | None, step_time: float | None) -> None:
    """Raise UsageError unless at most one of the two options is given, and is positive."""
    times = {"tokens-per-second": tokens_per_second, "step-time": step_time}
    for option, value in times.items():
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{option} must be a positive number, got {value}")
    if tokens_per_second and step_time:
        raise UsageError("give either --tokens-per-second or --step-time")


def estimate_stages(
    config: train.Config, state: Json | None = None
) -> Iterator[StageEstimate]:
    """Estimate every stage of a run, or each part of it: see `train.planned_stages`."""
    # needs the extra `train`
    from nanoset_ref.train.stage_rows import parts_of_stage, recorded_stages

    schedules = [config.batch_schedule()]
    if state:
        _, schedules, _ = recorded_stages(state)
    # by the number of a stage: the position after its last one, and samples read from each source
    ends: dict[int, tuple[int, dict[str, float]]] = {}
    for stage in train.stages_of(config):
        start = 0
        read: dict[str, float] = {}
        if stage.predecessor:
            start, read = ends[stage.predecessor.number]
        parts = list(parts_of_stage(stage, start, schedules))
        stop = parts[-1][1].positions(stage.steps[-1]).stop
        blend = _blend_of(stage, stop - start)
        paths = [source.path for source in blend.sources]
        num_buffers = count_buffers(
            stage.data.num_loading_workers, PREFETCH_FACTOR, stage.data.read_ahead
        )
        for part, schedule in parts:
            name = f"{part.name} (text)" if blend.order_name == "text" else part.name
            begin = schedule.consumed_train_samples
            positions = range(begin, schedule.positions(part.steps[-1]).stop)
            before = [read.get(path, 0.0) for path in paths]
            estimate, reads = _estimate_stage(
                name,
                blend,
                positions,
                schedule,
                stage.sequence_length,
                num_buffers,
                before,
            )
            yield estimate
            read = read | dict(zip(paths, reads, strict=True))
        ends[stage.number] = stop, read


def _blend_of(stage: Any, samples: int) -> SourceBlend:
    """The sources of a stage of a config that reads `samples` samples."""
    from nanoset_ref.train import data_config as sections  # needs the extra `train`

    dataset = stage.data.dataset
    length = stage.sequence_length
    if dataset.streams_text:
        return SourceBlend(sources=(), weights=(), order_name="text")
    if isinstance(dataset, sections.ChunksConfig):
        _, rows, _ = next(dataset.each_chunk())
        path = dataset.paths[0]
        source = Source(path=str(path), disk_bytes=path.stat().st_size, samples=rows)
        return SourceBlend(sources=[source], weights=[None], order_name="identity")
    if isinstance(dataset, sections.MegatronConfig):
        config = dataset.nanoset_config(length, samples, stage.data.seed)
        return megatron_blend(config)
    paths = dataset.dataset_path
    files: Any
    if dataset.names_folders:
        weights = list(paths.values())
        files = [
            (path, tokens.datatrove_files(path, recursive=False)) for path in paths
        ]
    else:
        weights = [paths.get(path, 0.0) for path in stage.files]
        files = [
            (path, [tokens.open_tokens(path, dtype)])
            for path, dtype in stage.files.items()
        ]
    return token_blend(files, weights, length, dataset.order)


def _stage_of_options(
    options: RunOptions, schedule: Schedule, workers: int
) -> StageEstimate:
    """The one stage of a run that its options describe."""
    paths, weights, are_pairs = options.parse_data()
    order = options.order or "nanotron"
    length = options.resolved_sequence_length
    if are_pairs:
        blend = megatron_blend(options.megatron_config(paths, weights))
    else:
        files = [(path, [options.open(path)]) for path in paths]
        shares: Sequence[float | None] = weights or [None] * len(paths)
        blend = token_blend(files, shares, length, order, bool(options.row_length))
        # an order that is not in ORDERS refuses weights itself
        kind = find_order(order)
        if order not in ORDERS:
            blend = dataclasses.replace(
                blend, counted_order=options.nanoset(paths, weights).order
            )
        elif weights is not None and kind and not kind.keeps_shares:
            raise ValueError(
                f"the order {order!r} takes no weights; leave the weights out"
            )
    samples = options.resolved_num_samples
    if samples is None:
        samples = blend.samples_per_epoch
    # an order that is counted has no positions after its end
    start = min(schedule.consumed_train_samples, samples)
    steps = (samples - start) // schedule.global_batch_size
    positions = range(start, start + steps * schedule.global_batch_size)
    before = [blend.expected_reads(n, start) for n in range(len(blend.sources))]
    num_buffers = count_buffers(workers, PREFETCH_FACTOR, 0)
    estimate, _ = _estimate_stage(
        "run", blend, positions, schedule, length, num_buffers, before
    )
    return estimate


def _estimate_stage(
    name: str,
    blend: SourceBlend,
    positions: range,
    schedule: Schedule,
    length: int,
    num_buffers: int,
    reads_before: Sequence[float],
) -> tuple[StageEstimate, list[float]]:
    """Estimate a stage.

    Args:
        name: the stage.
        blend: its sources.
        positions: the positions that it reads.
        schedule: which rank reads which position, and its steps.
        length: tokens per sample.
        num_buffers: blocks that a loader keeps in memory.
        reads_before: samples read from each source before the stage.

    Returns:
        The estimate, and the samples read from each source by the end of the stage.
    """
    sources, reads = _estimate_sources(blend, positions, reads_before)
    micro_batches = blend.samples_per_epoch // schedule.samples_per_micro_step
    # of the loader's block buffers (see `nanoset_ref.load.blocks`)
    batch_bytes = schedule.micro_batch_size * (length + 1) * ID_BYTES
    batches = batches_per_block(batch_bytes, num_buffers, blend.block_factor)
    estimate = StageEstimate(
        name=name,
        order=blend.order_name,
        steps=len(positions) // schedule.global_batch_size,
        samples=len(positions),
        tokens=len(positions) * length,
        samples_per_epoch=blend.samples_per_epoch,
        micro_batches_per_epoch=micro_batches,
        data_bytes=sum(source.disk_bytes for source in blend.sources),
        index_bytes=blend.index_bytes,
        buffer_bytes=num_buffers * batches * batch_bytes,
        padded=blend.padded,
        sources=sources,
    )
    return estimate, reads


def _estimate_sources(
    blend: SourceBlend, positions: range, reads_before: Sequence[float]
) -> tuple[list[SourceEstimate], list[float]]:
    """The estimate of each source, and the samples read from it by the end of the stage."""
    sources = []
    reads = []
    for number, source in enumerate(blend.sources):
        read = blend.expected_reads(number, positions.stop)
        read -= blend.expected_reads(number, positions.start)
        reads.append(reads_before[number] + read)
        distinct = blend.distinct(number, reads[number], positions.stop)
        sources.append(
            SourceEstimate(
                path=redact(source.path),
                samples=source.samples,
                share=blend.shares[number],
                read=round(read),
                epochs=read / max(source.samples, 1),
                never_read=source.samples - round(distinct),
                tail_tokens=source.tail_tokens,
            )
        )
    return sources, reads


def format_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
