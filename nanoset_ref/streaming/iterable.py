"""A dataset that reads and preprocesses while training, dealt out over ranks and workers, exactly resumable.

With world_size W and N workers per rank, element i goes to rank i mod W and there to worker (i // W) mod N:

    W = 2, N = 4    rank 0   worker 0: 0, 8, 16, ...  worker 1: 2, 10, 18, ...  worker 2: 4, 12, ...  worker 3: 6, ...
                    rank 1   worker 0: 1, 9, 17, ...  worker 1: 3, 11, 19, ...  worker 2: 5, 13, ...  worker 3: 7, ...

1. The last n mod W elements are dropped, so that every rank has the same number; else a rank that waits for the others
   in a collective operation waits forever.
2. The DataLoader takes batches from its workers in turn: batch t comes from worker t mod N and holds its elements
   (t // N) B, ..., (t // N) B + B - 1.
3. So after T batches worker w has delivered ceil((T - w) / N) of them, and the next one is due from worker T mod N.
   A fresh DataLoader asks its worker 0 first: hence worker v of a resumed run takes over the part of worker
   (v + T) mod N. Skipping the first T B W elements for everybody and dealing anew from worker 0, as it is usually done,
   repeats some rows and loses others as soon as N > 1.

What is skipped is neither parsed nor preprocessed; with an adapter that can index it is not even read, and a worker
reads its own elements only. Other adapters are read from their beginning, by every worker. The order depends on W, N
and B: `start_from_step` continues a run that had the same ones.
"""

from __future__ import annotations

import inspect
import logging
import operator
from collections.abc import Iterator
from itertools import islice
from types import GeneratorType
from typing import Any

import torch.utils.data

from nanoset_ref.streaming.adapters import Adapter, can_index
from nanoset_ref.streaming.layout import EpochCounter, rank_and_world_size, required, worker_and_workers

logger = logging.getLogger(__name__)


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """The elements of an adapter for this rank and this worker, preprocessed on the way.

    Args:
        hparams: with `batch_size` (of one rank) and, for start_from_step, `accumulate_grad_batches`.
        adapter: read anew in every epoch. If it has `set_epoch`, that is called first.
        trainer: its global_rank and world_size are used when `rank` and `world_size` are not given.
        start_from_step: how many optimizer steps of the first epoch are done. Skips
            step x batch_size x accumulate_grad_batches x world_size elements, in the first epoch only.
        start_from_epoch: the number of the first epoch, for a run that has finished some.
        do_preprocessing: False yields raw elements.
        rank, world_size: of this process among the data-parallel ones; default: the trainer's, else
            torch.distributed's, else 0 and 1.

    Each `for` over it (or over a DataLoader of it) is one epoch. A `preprocess_line` that is a generator function makes
    several elements of one line; to skip such elements they have to be made, and from the step on at which the first of
    several workers has no more, `start_from_step` is not exact (it warns). `state_dict` and `load_state_dict` are, in a
    plain loop and through torchdata's StatefulDataLoader; the state is the same on every rank.

    Raises:
        ValueError: hparams without a name or with a value below 1, a negative step or epoch, a state of another layout.
    """

    def __init__(
        self,
        hparams: Any,
        adapter: Adapter,
        trainer: Any = None,
        start_from_step: int | None = None,
        *,
        start_from_epoch: int = 0,
        do_preprocessing: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.hparams, self.adapter, self.do_preprocessing = hparams, adapter, do_preprocessing
        self.batch_size = required(hparams, "batch_size")
        self.rank, self.world_size = rank_and_world_size(rank, world_size, trainer)
        self.start_from_step = operator.index(start_from_step or 0)
        self.start_from_epoch = operator.index(start_from_epoch)
        if self.start_from_step < 0 or self.start_from_epoch < 0:
            start = f"start_from_step={start_from_step}, start_from_epoch={start_from_epoch}"
            raise ValueError(f"a run starts at step 0 of epoch 0 or later, got {start}")
        # batches that this rank has had in the first epoch: T above
        self._batches_done = 0
        if self.start_from_step:
            self._batches_done = self.start_from_step * required(hparams, "accumulate_grad_batches")
        self._expands = do_preprocessing and inspect.isgeneratorfunction(adapter.preprocess_line)
        self._epochs = EpochCounter(self.start_from_epoch)
        self._dropped = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._position: dict[str, int] = {}
        self._resume: dict[str, int] | None = None

    @property
    def dropped(self) -> int:
        """How many elements at the end of an epoch no rank gets; known when a worker has come to the end."""
        return int(self._dropped)

    def __repr__(self) -> str:
        place = f"rank {self.rank} of {self.world_size}"
        start = f"from step {self.start_from_step} of epoch {self.start_from_epoch}"
        return f"IterableDataset({type(self.adapter).__name__}, {place}, {start})"

    def state_dict(self) -> dict[str, int]:
        """Where the epoch stands in this process (with workers: in this worker), as integers; {}: it has not begun."""
        return dict(self._resume or self._position)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next `for` continue at a `state_dict` of the same world size, batch size and number of workers.

        Raises:
            ValueError: a state without these keys, or of another layout.
        """
        if not state:
            return
        _, workers = worker_and_workers()
        layout = {"world_size": self.world_size, "batch_size": self.batch_size, "num_workers": workers}
        if set(state) != {"epoch", "part", "line", "within", *layout}:
            raise ValueError(f"not a state of an IterableDataset: {state}")
        if other := {name: state[name] for name in layout if state[name] != layout[name]}:
            now = {name: layout[name] for name in other}
            raise ValueError(f"the state was saved with {other}, now there is {now}; the order depends on it")
        self._resume = dict(state)

    def __iter__(self) -> Iterator[Any]:
        # not a generator itself: an epoch begins here, not at its first element
        worker, workers = worker_and_workers()
        resume, self._resume = self._resume, None
        to_make = 0
        if resume is None:
            epoch = self._epochs.begin(worker)
            done = self._batches_done if epoch == self.start_from_epoch else 0
            part = (worker + done) % workers
            skipped = max(0, -((part - done) // workers)) * self.batch_size  # ceil((T - w) / N) batches
            line, within = skipped, 0
            if self._expands:
                line, to_make = 0, skipped
        else:
            epoch, part, line, within = (resume[name] for name in ("epoch", "part", "line", "within"))
            self._epochs.resume(worker, epoch)
        self._position = {
            "epoch": epoch, "part": part, "line": line, "within": within,
            "world_size": self.world_size, "batch_size": self.batch_size, "num_workers": workers,
        }  # fmt: skip
        if hasattr(self.adapter, "set_epoch"):
            self.adapter.set_epoch(epoch)
        elements = self._elements(self._position, skips=resume is None and line > 0)
        return self._after(elements, to_make) if to_make else elements

    def _after(self, elements: Iterator[Any], skipped: int) -> Iterator[Any]:
        """The elements that come after the first ones, which have to be made to be skipped."""
        made = sum(1 for _ in islice(elements, skipped))
        if self._position["num_workers"] > 1 and -(-made // self.batch_size) < skipped // self.batch_size:
            logger.warning(
                "start_from_step=%d: part %d ended after %d of %d elements to skip, so other parts were read in its "
                "turns: rows come again or are left out; resume with state_dict, or without workers",
                self.start_from_step,
                self._position["part"],
                made,
                skipped,
            )
        yield from elements

    def _elements(self, position: dict[str, int], *, skips: bool) -> Iterator[Any]:
        """The elements of one part from a position on, which moves with them."""
        found = False
        for line in self._lines(position["part"], position["line"], position["num_workers"]):
            found = True
            element = self.adapter.preprocess_line(line) if self.do_preprocessing else line
            if isinstance(element, GeneratorType):
                if skips and not self._expands:
                    raise ValueError(
                        f"{type(self.adapter).__name__}.preprocess_line returned a generator, so a line is not one "
                        "element; write it as a generator function (with yield) to let start_from_step count elements"
                    )
                for piece in islice(element, position["within"], None):
                    position["within"] += 1
                    yield piece
                position["within"] = 0
                position["line"] += 1
            else:
                position["line"] += 1
                yield element
        if skips and not found:
            logger.warning(
                "start_from_step=%d reaches the end: part %d has nothing left in epoch %d; for a run longer than an "
                "epoch pass start_from_epoch and the steps done within that epoch",
                self.start_from_step, position["part"], position["epoch"],
            )  # fmt: skip

    def _lines(self, part: int, line: int, workers: int) -> Iterator[Any]:
        """The raw elements (part + k workers) W + rank, for k = line, line + 1, ...; of complete groups of W only."""
        stride = workers * self.world_size
        first = line * stride  # where the rounds of all ranks and workers begin that are still to be read
        own = part * self.world_size + self.rank  # the place of this part in each round
        if can_index(self.adapter):
            length = len(self.adapter)  # type: ignore[arg-type]
            self._dropped[0] = length % self.world_size
            for place in range(first + own, length - length % self.world_size, stride):
                yield self.adapter[place]  # type: ignore[index]
            return
        lines = islice(iter(self.adapter), first, None)
        while round := list(islice(lines, stride)):
            if (part + 1) * self.world_size <= len(round):
                yield round[own]
            if len(round) < stride:
                self._dropped[0] = len(round) % self.world_size
