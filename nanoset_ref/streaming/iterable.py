"""A dataset that reads and preprocesses during training, shared by ranks and workers, and resumes exactly.

With dp_size W and N workers per rank, element i goes to rank i mod W and there to worker (i // W) mod N:

    W = 2, N = 4    rank 0   worker 0: 0, 8, 16, ...  worker 1: 2, 10, 18, ...  worker 2: 4, 12, ...  worker 3: 6, ...
                    rank 1   worker 0: 1, 9, 17, ...  worker 1: 3, 11, 19, ...  worker 2: 5, 13, ...  worker 3: 7, ...

1. The last n mod W elements are dropped, so that every rank has the same number. Otherwise a rank that waits for the
   others in a collective operation waits forever.
2. The DataLoader takes batches from its workers in turn: batch t comes from worker t mod N and holds its elements
   (t // N) B, ..., (t // N) B + B - 1.
3. So after T batches worker w has delivered ceil((T - w) / N) of them, and the next one is due from worker T mod N.
   A new DataLoader asks its worker 0 first: worker v of a resumed run therefore takes over the part of worker
   (v + T) mod N. Skipping the first T B W elements everywhere and starting again from worker 0, as is usually done,
   repeats some rows and loses others as soon as N > 1.

Skipped elements are neither parsed nor preprocessed. An adapter that can index does not even read them, and each worker
reads only its own elements; other adapters are read from their beginning, by every worker. The order depends on W, N
and B: `start_from_step` resumes a run that had the same ones.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from nanoset_ref.orders.base import whole_number
from nanoset_ref.streaming.adapters import Adapter, can_index
from nanoset_ref.streaming.resumable import Resumable, State, required, worker_and_workers

logger = logging.getLogger(__name__)


class IterableDataset(Resumable):
    """The elements of an adapter for this rank and this worker, preprocessed on the way.

    Args:
        hparams: with `batch_size` (of one rank) and, for start_from_step, `accumulate_grad_batches`.
        adapter: read anew in every epoch. If it has `set_epoch`, that is called first.
        trainer: its global_rank and world_size are used when `dp_rank` and `dp_size` are not given.
        start_from_step: number of optimizer steps already done in the first epoch. Skips
            step x batch_size x accumulate_grad_batches x dp_size elements, in the first epoch only.
        start_from_epoch: number of the first epoch, for a run that has finished some.
        dp_rank, dp_size: of this process among the data-parallel ones; default: the trainer's, else
            torch.distributed's, else 0 and 1 (torch calls them rank and world_size).

    Each `for` over it (or over a DataLoader of it) is one epoch. A `preprocess_line` that is a generator function makes
    several elements of one line. To skip such elements they have to be made, and once the first of several workers runs
    out of lines, `start_from_step` is no longer exact (it warns). `state_dict` and `load_state_dict` are exact there
    too, in a plain loop and through torchdata's StatefulDataLoader; the state is the same on every rank.

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
        dp_rank: int | None = None,
        dp_size: int | None = None,
    ) -> None:
        super().__init__(required(hparams, "batch_size"), dp_rank, dp_size, trainer)
        self.hparams = hparams
        self.adapter = adapter
        self.start_from_epoch = whole_number(start_from_epoch, "start_from_epoch", 0)
        # batches that this rank has had in the first epoch: T above
        self._batches_done = whole_number(start_from_step or 0, "start_from_step", 0)
        if start_from_step:
            self._batches_done *= required(hparams, "accumulate_grad_batches")
        self._expands = inspect.isgeneratorfunction(adapter.preprocess_line)
        self._dropped = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.restart(start_from_epoch)

    @property
    def dropped(self) -> int:
        """How many elements at the end of an epoch no rank gets; known once a worker has reached the end."""
        return int(self._dropped)

    def first_place(self, epoch: int, worker: int, workers: int) -> State:
        """{"part", "line", "within"}: the next line of a part, and how many elements from that line on are done."""
        done = self._batches_done if epoch == self.start_from_epoch else 0
        part = (worker + done) % workers
        batches = (done - part + workers - 1) // workers  # ceil((T - w) / N)
        elements = batches * self.micro_batch_size
        if self._expands:
            return {"part": part, "line": 0, "within": elements}
        return {"part": part, "line": elements, "within": 0}  # a line is an element

    def read(self, place: State) -> Iterator[Any]:
        if hasattr(self.adapter, "set_epoch"):
            self.adapter.set_epoch(place["epoch"])
        for line in self._lines(place):
            made = self.adapter.preprocess_line(line)
            number = 0
            for number, element in enumerate(made if self._expands else [made], 1):
                if number > place["within"]:
                    place["within"] = number
                    yield element
            place["line"] += 1
            place["within"] -= number
        if (
            place["within"] >= self.micro_batch_size
        ):  # the last of the skipped batches never existed
            logger.warning(
                "start_from_step is beyond the end of part %d: rows may come again or be left out; resume by "
                "state_dict, or pass start_from_epoch and the steps done within that epoch",
                place["part"],
            )

    def _lines(self, place: State) -> Iterator[Any]:
        """Yield the raw elements of a part from a place on; only of complete groups, one element for each rank.

        A round has one element for each worker of each rank, as a micro-batch of that many rows would. At the end,
        skipped lines that do not exist are added to the elements that are done.
        """
        _, workers = worker_and_workers()
        rounds = dataclasses.replace(self.schedule, micro_batch_size=workers)
        size = rounds.micro_step_size
        own = rounds.position_at(0, self.dp_rank, place["part"])
        last = rounds.position_at(0, self.dp_size - 1, place["part"])
        adapter: Any = self.adapter
        first = place["line"]
        if can_index(adapter):
            length = len(adapter)
            for begin in range(first * size, length - last, size):
                yield adapter[begin + own]
        else:
            elements = iter(adapter)
            length = sum(1 for _ in islice(elements, first * size))
            while group := list(islice(elements, size)):
                length += len(group)
                if last < len(group):
                    yield group[own]
        self._dropped[0] = length % self.dp_size
        place["within"] += max(0, first - len(range(last, length, size)))
