"""The DataLoader of a TokenStream: batches, and a state for any number of ranks and workers.

Every batch comes with the cursors of the worker that made it, so a resume is as fast with another
number of ranks or workers, or another micro-batch size.
"""

import copy
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import default_collate

from nanoset_ref.load.collator import outside_inference_mode
from nanoset_ref.load.dataloader import OneIterationLoader, refuse_unknown_options
from nanoset_ref.streaming.resumable import State, checked_copy
from nanoset_ref.streaming.row_stream import Cursor
from nanoset_ref.streaming.token_stream import RowSample, TokenStream, next_epoch

Collate = Callable[[list[RowSample]], Any]
# options of torch's DataLoader that a TokenStreamDataLoader cannot have
REFUSED_OPTIONS = {
    "persistent_workers": "leave it out: such workers would not start over in a new epoch",
    "batch_size": "leave it out: the stream's micro_batch_size is the batch size",
    "drop_last": "leave it out: an incomplete batch is dropped",
    "in_order": "leave it out: batches out of order cannot be counted for a resume",
}


class TokenStreamDataLoader(OneIterationLoader):
    """The complete batches of a TokenStream.

    Args:
        stream: its micro_batch_size is the batch size.
        collate_fn: makes a batch from rows, in the worker; for example a DataCollatorForCLM.
        **options: passed to torch's DataLoader (num_workers, pin_memory, prefetch_factor, ...).
            Those in `REFUSED_OPTIONS` are refused.

    The first iteration reads the rest of the current epoch, each further one a whole epoch. With
    repeat=True the epoch is endless. Only one iterator is live: a new one closes the old one and
    resumes after the last delivered batch.
    """

    def __init__(
        self,
        stream: TokenStream,
        collate_fn: Collate = default_collate,
        **options: Any,
    ) -> None:
        refuse_unknown_options(options, TokenStreamDataLoader, REFUSED_OPTIONS)
        # another loader may have been given the same stream
        stream = copy.copy(stream)
        super().__init__(
            stream,
            stream.micro_batch_size,
            collate_fn=partial(_with_cursors, stream, collate_fn),
            drop_last=True,
            **options,
        )
        self.stream = stream
        self._collate = collate_fn
        self._progress = dict(stream.start)

    def __getstate__(self) -> State:
        """See OneIterationLoader; a copy also has a stream and a count of its own."""
        stream = copy.copy(self.stream)
        own = {
            "stream": stream,
            "dataset": stream,
            "collate_fn": partial(_with_cursors, stream, self._collate),
            "_progress": dict(self._progress),
        }
        return super().__getstate__() | own

    def batches(self) -> Generator[Any, None, None]:
        """See `OneIterationLoader.batches`."""
        self.stream.seek(**self._progress)
        size = self.stream.schedule.samples_per_micro_step
        batches = self.torch_iterator()
        while True:
            # workers have no default device, either
            with outside_inference_mode(), torch.device("cpu"):
                item = next(batches, None)
            if item is None:
                break
            batch, cursors = item
            self._progress["consumed_train_samples"] += size
            known = self._progress["cursors"]
            # for the shards of other workers, a worker has the cursors that it started with
            newer = {
                shard: cursor
                for shard, cursor in cursors.items()
                if shard not in known or _row_of(known[shard]) < _row_of(cursor)
            }
            self._progress["cursors"] = known | newer
            yield batch
        self._progress = next_epoch(self._progress)

    @property
    def plan(self) -> State:
        """The plan of the stream."""
        return self.stream.plan

    @property
    def cursors(self) -> State:
        """The cursor of each shard, for `TokenStream.seek`."""
        return dict(self._progress["cursors"])

    def seek(
        self, consumed_train_samples: int, cursors: Mapping[str, dict[str, int]]
    ) -> None:
        """Start the next iteration at a count of the first epoch; see `TokenStream.seek`.

        This ends a live iterator.
        """
        self.end_iteration()
        self.stream.seek(consumed_train_samples=consumed_train_samples, cursors=cursors)
        self._progress = dict(self.stream.start)

    def state_dict(self) -> State:
        """Return the state, JSON, valid on every rank.

        It has "epoch", "epoch_began_at", "consumed_train_samples", "cursors" and "plan". As in a
        NanosetDataLoader, consumed_train_samples counts the rows delivered to all ranks together,
        over all epochs.
        """
        return {**self._progress, "plan": self.plan}

    def load_state_dict(self, state: State) -> None:
        """Resume after the last batch counted in `state`, with any number of ranks and workers.

        This ends a live iterator.

        Raises:
            PlanMismatch: the state belongs to another text, tokenizer or order.
            ValueError: `state` is not the state of a TokenStreamDataLoader.
        """
        start = checked_copy(state, self.state_dict())
        del start["plan"]
        self.end_iteration()
        self._progress = start


def _row_of(cursor: dict[str, int]) -> int:
    """The row of a cursor; a damaged one may lack it, or be a TypeError."""
    return Cursor(**cursor).row


def _with_cursors(
    stream: TokenStream, collate_fn: Collate, rows: Any
) -> tuple[Any, State]:
    """Collate rows; return the batch and the cursors of this process after it.

    A worker receives the loader's dataset and collate function in one message, so `stream` is the
    copy that it reads.
    """
    return collate_fn(rows), stream.progress["cursors"]
