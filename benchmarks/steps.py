"""What the steps of a batch cost: the part of `benchmarks.reading` that looks inside."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.peers import Restated, RestatedCollator, Tokens, endless
from benchmarks.pulls import BATCH, RUN, from_iterator, visit
from nanoset_ref.load.blocks import allocate_buffers, batches_per_block
from nanoset_ref.load.collator import RowBlock, writable_copy
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset

BATCHES = 300
Steps = dict[str, float]  # step -> microseconds per batch


def steps(tokens: Tokens, sequence_length: int) -> dict[str, Steps]:
    """Medians over 300 batches; Nanotron's restated, ours a block's share."""
    return {
        "nanotron": nanotron_steps(tokens, sequence_length),
        "nanoset_ref": our_steps(tokens, sequence_length),
    }


def nanotron_steps(tokens: Tokens, sequence_length: int) -> Steps:
    num_samples = (tokens.num_tokens - 1) // sequence_length
    order = np.random.default_rng(1).permutation(num_samples)
    collate = RestatedCollator()
    times: dict[str, list[float]] = {}
    for batch in order[: BATCHES * BATCH].reshape(-1, BATCH).tolist():
        clock = Clock(times)
        examples = []
        for sample in batch:
            mapping = np.memmap(tokens.path, mode="r", order="C", dtype=np.uint16)
            clock("open and map the file")
            view = np.frombuffer(
                memoryview(mapping),
                np.uint16,
                sequence_length + 1,
                offset=sample * sequence_length * 2,
            )
            clock("find the sample")
            examples.append({"input_ids": view.astype(np.int32)})
            clock("fault the pages in, copy")
            del mapping, view
            clock("unmap the file")
        collate(examples)
        clock("stack the batch, masks")
    dataset = Restated(tokens.path, sequence_length, order)
    loader = from_iterator(
        endless(
            DataLoader(dataset, batch_size=BATCH, collate_fn=collate, drop_last=True)
        )
    )
    return medians(times, 1, (loader(1)["process"] for _ in range(2 * BATCHES)))


def our_steps(tokens: Tokens, sequence_length: int) -> Steps:
    nanoset = Nanoset(tokens.path, None, sequence_length, RUN)
    visit(nanoset)
    batches = batches_per_block(BATCH * 4 * nanoset.row_length, 3)
    collator = build_nanoset_dataloader(nanoset, micro_batch_size=BATCH).collate_fn
    buffers = allocate_buffers(
        2, (batches * BATCH, nanoset.row_length), np.dtype(np.int32)
    )
    times: dict[str, list[float]] = {}
    for block in range(BATCHES):
        positions = np.arange(block * batches * BATCH, (block + 1) * batches * BATCH)
        clock = Clock(times)
        files, samples = nanoset.order[positions]
        starts = samples * nanoset.strides[files]
        clock("look the order up")
        nanoset._gather(files, starts, buffers[block % 2].numpy())
        clock("copy the tokens")
        for _ in collator.split(
            RowBlock(buffers[block % 2], BATCH, None, writable_copy)
        ):
            pass
        clock("cut the block")
    loader = from_iterator(
        endless(build_nanoset_dataloader(nanoset, micro_batch_size=BATCH))
    )
    return medians(times, batches, (loader(batches)["process"] for _ in range(BATCHES)))


def medians(
    times: dict[str, list[float]], batches: int, whole: Iterable[float]
) -> Steps:
    """Microseconds per batch of every step, and "DataLoader" for the rest of what a loader takes.

    Args:
        times: microseconds of every step, in each of many blocks of `batches` batches.
        whole: seconds that the loader takes for as many batches.
    """
    found = {
        step: round(statistics.median(values) / batches, 2)
        for step, values in times.items()
    }
    loader = statistics.median(seconds / batches for seconds in whole) * 1e6
    found["DataLoader"] = round(max(0.0, loader - sum(found.values())), 2)
    return found


class Clock:
    """Adds the microseconds since the last call to a step of the current batch."""

    def __init__(self, steps: dict[str, list[float]]) -> None:
        self.steps, self.begun, self.last = steps, set[str](), time.process_time()

    def __call__(self, step: str) -> None:
        now = time.process_time()
        times = self.steps.setdefault(step, [])
        if step not in self.begun:
            self.begun.add(step)
            times.append(0.0)
        times[-1] += (now - self.last) * 1e6
        self.last = time.process_time()
