"""A dataset that reads and preprocesses during training, with exact resume.

With W ranks and N workers per rank, element i goes to rank i mod W and there to worker (i // W) mod
N. For W = 2 and N = 4:

            worker 0       worker 1        worker 2       worker 3
    rank 0  0, 8, 16, ...  2, 10, 18, ...  4, 12, ...     6, 14, ...
    rank 1  1, 9, 17, ...  3, 11, 19, ...  5, 13, ...     7, 15, ...

1. The last n mod W elements are dropped, so every rank has the same number. Otherwise a rank would
   hang in a collective operation, waiting for a rank that has run out of elements.
2. The DataLoader takes batches of B elements from its workers in turn: batch t comes from worker
   t mod N and has elements (t // N) B to (t // N) B + B - 1 of this worker.
3. After T batches worker w has therefore delivered ceil((T - w) / N) of them, and worker T mod N
   delivers the next batch. A new DataLoader asks its worker 0 first, so worker v of a resumed run
   takes the part of worker (v + T) mod N. The usual way, to skip the first T B W elements and start
   again from worker 0, repeats some rows and loses others if N > 1.

Skipped elements are neither parsed nor preprocessed. If the adapter can index, each worker reads
only its own elements; else every worker reads all elements. The order depends on W, N and B, so
`start_from_step` resumes only a run with the same numbers.
"""

import dataclasses
import inspect
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from nanoset_ref.io.checks import whole_number
from nanoset_ref.streaming.resumable import (
    Resumable,
    State,
    position_at,
    required_count,
    worker_and_num_workers,
)
from nanoset_ref.streaming.text_adapters import Adapter, can_index

logger = logging.getLogger(__name__)


class IterableDataset(Resumable):
    """The elements of an adapter for this rank and this worker, preprocessed when they are read.

    Args:
        hparams: an object with `batch_size` (of one rank) and, for start_from_step,
            `accumulate_grad_batches`, which may be the trainer's instead.
        adapter: the source of the elements; it is read in every epoch, after its `set_epoch` if it
            has one.
        trainer: the default of `dp_rank` and `dp_size` is its global_rank and world_size.
        start_from_step: number of optimizer steps already done in the first epoch. Skips
            step x batch_size x accumulate_grad_batches x dp_size elements, in the first epoch only.
        start_from_epoch: number of the first epoch, for a run that has finished some epochs.
        dp_rank: this process's data-parallel rank; default: the trainer's, else
            torch.distributed's rank, else 0.
        dp_size: the number of data-parallel ranks; default: the trainer's, else
            torch.distributed's world_size, else 1.

    Each iteration of it (or of a DataLoader of it) is one epoch. A `preprocess_line` that is a
    generator function makes several elements of one line. Such elements are skipped only by making
    them, and once the first of several workers runs out of lines, `start_from_step` is no longer
    exact (it warns). `state_dict` and `load_state_dict` are exact even then, in a plain loop and in
    torchdata's StatefulDataLoader. The state is then each rank's own, because it counts the lines
    of that rank, and ranks may end at different times; otherwise it is the same on every rank.

    Raises:
        ValueError: hparams lack a name or have a value below 1, the step or epoch is negative, or
            the state belongs to another layout.
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
        super().__init__(
            required_count(hparams, "batch_size"), dp_rank, dp_size, trainer
        )
        if not hasattr(adapter, "preprocess_line"):
            raise TypeError(f"adapter must be an Adapter, got {adapter!r:.200}")
        self.hparams = hparams
        self.adapter = adapter
        self.start_from_epoch = whole_number(start_from_epoch, "start_from_epoch", 0)
        # T above: the batches delivered to this rank in the first epoch
        self._batches_done = whole_number(start_from_step or 0, "start_from_step", 0)
        if start_from_step:
            name = "accumulate_grad_batches"
            settings = hparams
            if hasattr(trainer, name) and not hasattr(hparams, name):
                settings = trainer
            self._batches_done *= required_count(settings, name)
        self._expands = inspect.isgeneratorfunction(adapter.preprocess_line)
        self._dropped = torch.zeros(1, dtype=torch.int64, device="cpu").share_memory_()
        self.restart(start_from_epoch)

    @property
    def dropped(self) -> int:
        """The number of elements dropped at the end of an epoch, known once a worker reaches it."""
        return int(self._dropped)

    @property
    def plan(self) -> State:
        """See `Resumable.plan`; with the rank, if a state is the rank's own."""
        own = {"dp_rank": self.dp_rank} if self._expands else {}
        return super().plan | own

    def first_progress(self, epoch: int) -> State:
        """{"part", "line", "within"}: a part, its next line, the elements done from there on."""
        worker, workers = worker_and_num_workers()
        done = self._batches_done if epoch == self.start_from_epoch else 0
        part = (worker + done) % workers
        batches = (done - part + workers - 1) // workers  # ceil((T - w) / N)
        elements = batches * self.micro_batch_size
        if self._expands:
            return {"part": part, "line": 0, "within": elements}
        return {"part": part, "line": elements, "within": 0}  # a line is an element

    def read(self, progress: State) -> Iterator[Any]:
        """See `Resumable.read`."""
        if hasattr(self.adapter, "set_epoch"):
            self.adapter.set_epoch(progress["epoch"])
        for line in self._lines(progress):
            elements = self.adapter.preprocess_line(line)
            if not self._expands:
                elements = [elements]
            number = 0
            for number, element in enumerate(elements, 1):
                if number > progress["within"]:
                    progress["within"] = number
                    yield element
            progress["line"] += 1
            progress["within"] -= number
        # true if the last of the skipped batches does not exist
        if progress["within"] >= self.micro_batch_size:
            logger.warning(
                "start_from_step is beyond the end of part %d: rows may be repeated or lost; "
                "resume by state_dict, or pass start_from_epoch and the steps done in that epoch",
                progress["part"],
            )

    def _lines(self, progress: State) -> Iterator[Any]:
        """Yield the raw elements of a part after `progress`, while there is one for each rank.

        A round is one element for each worker of each rank; `progress["line"]` counts them. Above,
        round 1 is elements 8 to 15, where part 1 of rank 0 has element 8 + 2. The last rank's
        element in this round is 8 + 3; if it does not exist, no rank gets one.
        """
        _, workers = worker_and_num_workers()
        # a round is the micro-step of a schedule whose micro-batches have one row per worker
        rounds = dataclasses.replace(self.schedule, micro_batch_size=workers)
        size = rounds.samples_per_micro_step
        own = position_at(rounds, 0, self.dp_rank, progress["part"])
        last_rank = position_at(rounds, 0, self.dp_size - 1, progress["part"])
        adapter: Any = self.adapter
        first_round = progress["line"]
        skipped = first_round * size
        if can_index(adapter):
            length = len(adapter)
            for start in range(skipped, length - last_rank, size):
                yield adapter[start + own]
        else:
            elements = iter(adapter)
            length = sum(1 for _ in islice(elements, skipped))
            while elements_of_round := list(islice(elements, size)):
                length += len(elements_of_round)
                if last_rank < len(elements_of_round):
                    yield elements_of_round[own]
        self._dropped[0] = length % self.dp_size
        num_rounds = len(range(last_rank, length, size))
        # skipped lines that do not exist; `read` warns if they make up a batch
        progress["within"] += max(0, first_round - num_rounds)
