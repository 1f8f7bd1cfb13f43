"""nanoset-ref estimate: the hours, memory and disk of a run before it begins, and how often it reads each source.

Arithmetic only: files are opened for their sizes, no order and no index is built. Where a shuffle decides, the estimate
is the expected value: a source may be off by one sample an epoch, and by chance in an incomplete epoch.

    1. each stage becomes a `SourceBlend`: its sources, their shares, and how its order goes through them
    2. positions [start, stop) of the blend become samples read of each source, and samples that no step reads
    3. with a speed, tokens become hours
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from nanoset_ref import megatron, tokens, train  # each loads its modules when used
from nanoset_ref.cli.blends import Source, SourceBlend, megatron_blend, token_blend
from nanoset_ref.cli.command import UsageError, at_least
from nanoset_ref.cli.run_options import RunOptions
from nanoset_ref.load.schedule import Schedule

ID_BYTES = 4  # of a row that is read, int32


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceEstimate:
    """The reads of one source by one stage, in samples.

    `never_read` holds at the end of the stage, and counts earlier stages if it continues them.
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
        samples: read by all ranks together.
        tokens: read by all ranks together.
        samples_per_epoch: of its blend.
        micro_batches_per_epoch: of one rank.
        data_bytes: of its files on the disk.
        index_bytes: memory of each process.
        buffer_bytes: memory of each process.
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
            f"{self.name}: {self.steps:,} steps of {size:,} samples = {self.samples:,} samples, {self.tokens:,} tokens",
            f"  each process: index {in_bytes(self.index_bytes)} ({self.order}), buffers up to "
            f"{in_bytes(self.buffer_bytes)}; files on the disk: {in_bytes(self.data_bytes)}",
        ]
        if not self.sources:
            return "\n".join([*lines, "  how much text this is, tokenizing will show"])
        epochs = self.samples / max(self.samples_per_epoch, 1)
        lines.append(
            f"  an epoch: {self.samples_per_epoch:,} samples, {self.micro_batches_per_epoch:,} micro-batches of each "
            f"rank; the stage is {epochs:.3f} epochs"
        )
        from nanoset_ref.provenance.auditing import shortened

        paths = shortened([it.path for it in self.sources])
        width = max(map(len, ["source", *paths]))
        head = f"{'samples':>13} {'share':>7} {'read':>13} {'epochs':>8} {'never read':>13} {'tail tokens':>11}"
        lines.append(f"  {'source':<{width}} {head}")
        for path, it in zip(paths, self.sources, strict=True):
            figures = f"{it.samples:>13,} {it.share:>7.4f} {it.read:>13,} {it.epochs:>8.3f} {it.never_read:>13,}"
            lines.append(f"  {path:<{width}} {figures} {it.tail_tokens:>11,}")
        if self.padded:
            lines.append(
                "  rows end in padding, which no loss counts; inspect says how long the documents are"
            )
        return "\n".join(lines)


def estimate_run(
    *,
    tokens_per_second: float | None = None,
    step_time: float | None = None,
    gpus: Annotated[int, at_least(1)] | None = None,
    num_loading_workers: Annotated[int, at_least(0)] = 0,
    run: RunOptions,
    schedule: Schedule,
) -> None:
    """Hours, memory, disk and epochs of a run before it begins; nothing is built, and no token is read.

    Args:
        tokens_per_second: of the whole run, to say its hours.
        step_time: seconds that an optimizer step takes, instead of --tokens-per-second.
        gpus: that compute; default: of the config dp x pp x tp, or --dp-size.
        num_loading_workers: DataLoader workers per rank, without --config.
    """
    for name, value in (("tokens-per-second", tokens_per_second), ("step-time", step_time)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name} must be a positive number, got {value}")
    if tokens_per_second and step_time:
        raise UsageError("give either --tokens-per-second or --step-time")
    run.check_named_once()
    if run.run:
        raise UsageError("estimate takes --config or --data, not --run")
    if run.config:
        config = train.load_config(run.config)
        stages = list(estimated_stages(config))
        ranks = config.parallelism
        gpus = gpus or ranks.dp * ranks.pp * ranks.tp
    else:
        stages = [_stage_by_hand(run, schedule, num_loading_workers)]
        gpus = gpus or schedule.dp_size
    steps = sum(stage.steps for stage in stages)
    num_tokens = sum(stage.tokens for stage in stages)
    total: dict[str, Any] = {"steps": steps, "tokens": num_tokens, "gpus": gpus}
    line = f"in all {steps:,} steps, {num_tokens:,} tokens on {gpus:,} GPUs"
    if tokens_per_second or step_time:
        seconds = num_tokens / tokens_per_second if tokens_per_second else steps * (step_time or 0)
        hours = seconds / 3600
        total |= {"hours": hours, "gpu_hours": hours * gpus}
        line += f": {hours:,.2f} hours, {hours * gpus:,.2f} GPU-hours"
    else:
        line += "; --tokens-per-second or --step-time says the hours"
    total["stages"] = [dataclasses.asdict(stage) for stage in stages]
    run.show(total, "\n".join([*map(str, stages), line]))


def estimated_stages(config: train.Config) -> Iterator[StageEstimate]:
    """Every stage of a run that begins at step 1."""
    schedule = config.schedule()
    size = schedule.global_batch_size
    ends: dict[
        int, tuple[int, dict[str, float]]
    ] = {}  # {stage: its last position, samples read by then}
    for stage in train.stages_of(config):
        start, read = ends[stage.before.number] if stage.before else (0, dict[str, float]())
        positions = range(start, start + len(stage.steps) * size)
        blend = _blend_of(stage, len(positions))
        name = f"{stage.name} (text)" if blend.order == "text" else stage.name
        length = stage.sequence_length
        buffers = _slots(stage.data.num_loading_workers, stage.data.read_ahead)
        read = dict(read)
        yield _estimated(name, blend, positions, schedule, length, buffers, read)
        ends[stage.number] = positions.stop, read


def _blend_of(stage: Any, samples: int) -> SourceBlend:
    """The sources of a stage of a config."""
    from nanoset_ref.train import data_section as sections  # needs the extra `train`

    dataset, length = stage.data.dataset, stage.sequence_length
    if isinstance(dataset, sections.TextSection):
        return SourceBlend(sources=(), order="text")
    if isinstance(dataset, sections.ChunksSection):
        _, rows, _ = next(dataset.each())
        path = dataset.paths[0]
        source = Source(path=str(path), disk_bytes=path.stat().st_size, samples=rows)
        return SourceBlend(sources=[source], order="identity")
    if isinstance(dataset, sections.MegatronSection):
        fields = dataset.model_dump(exclude={"num_samples"})
        fields["split_num_samples"] = (dataset.num_samples or samples, 0, 0)
        config = megatron.NanosetConfig(
            random_seed=stage.data.seed, sequence_length=length, **fields
        )
        return megatron_blend(config)
    if dataset.names_folders:
        files: dict[str, Any] = {
            path: tokens.datatrove_files(path, recursive=False) for path in dataset.dataset_path
        }
        weights = [*dataset.dataset_path.values()]
    else:
        files = {path: [tokens.open_tokens(path, dtype)] for path, dtype in stage.files.items()}
        weights = [dataset.dataset_path.get(path, 0.0) for path in stage.files]
    return token_blend(files, weights, length, dataset.order)


def _stage_by_hand(run: RunOptions, schedule: Schedule, workers: int) -> StageEstimate:
    """The one stage of a run that its options describe."""
    paths, weights, is_pairs = run.paths()
    length = run.sequence_length
    order = run.order or "nanotron"
    if is_pairs:
        blend = megatron_blend(run.megatron_config(paths, weights))
    else:
        length = run.row_length - 1 if run.row_length else length
        files = {path: [run.open(path)] for path in paths}
        blend = token_blend(
            files, weights or [None] * len(paths), length, order, bool(run.row_length)
        )
    samples = run.num_samples
    if samples is None:
        samples = Path(order).stat().st_size // 4 if order.endswith(".npy") else blend.epoch
    size = schedule.global_batch_size
    start = schedule.consumed_train_samples
    steps = max(0, samples - start) // size
    positions = range(start, start + steps * size)
    read = {it.path: blend.read(number, start) for number, it in enumerate(blend.sources)}
    return _estimated("run", blend, positions, schedule, length, _slots(workers, 0), read)


def _estimated(
    name: str,
    blend: SourceBlend,
    positions: range,
    schedule: Schedule,
    length: int,
    buffers: int,
    total: dict[str, float],
) -> StageEstimate:
    """A stage that reads `positions`; `total`, the samples read of each source before, is counted on."""
    sources = []
    for number, source in enumerate(blend.sources):
        read = blend.read(number, positions.stop) - blend.read(number, positions.start)
        total[source.path] = total.get(source.path, 0.0) + read
        distinct = blend.distinct(number, total[source.path], positions.stop)
        estimate = SourceEstimate(
            path=source.path,
            samples=source.samples,
            share=source.share,
            read=round(read),
            epochs=read / max(source.samples, 1),
            never_read=source.samples - round(distinct),
            tail_tokens=source.tail_tokens,
        )
        sources.append(estimate)
    return StageEstimate(
        name=name,
        order=blend.order,
        steps=len(positions) // schedule.global_batch_size,
        samples=len(positions),
        tokens=len(positions) * length,
        samples_per_epoch=blend.epoch,
        micro_batches_per_epoch=blend.epoch // schedule.samples_per_micro_batch,
        data_bytes=sum(source.disk_bytes for source in blend.sources),
        index_bytes=blend.index_bytes,
        buffer_bytes=_buffer_bytes(schedule.micro_batch_size, length + 1, buffers),
        padded=blend.padded,
        sources=sources,
    )


def _slots(workers: int, read_ahead: int) -> int:
    """The number of a loader's block buffers."""
    return workers * 2 + read_ahead + 3


def _buffer_bytes(micro_batch_size: int, row_length: int, buffers: int) -> int:
    """The memory of a loader for the blocks that it reads and delivers (see `nanoset_ref.load.blocks`)."""
    from nanoset_ref.load.blocks import batches_per_block

    batch = micro_batch_size * row_length * ID_BYTES
    return buffers * batches_per_block(batch, buffers) * batch


def in_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
