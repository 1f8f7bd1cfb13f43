"""A DataLoader for TokenStream whose state is a count, and the collate function for position ids.

Every batch brings along where its worker stands, so a resume with any number of ranks, workers and any micro-batch size
goes on at once. torchdata's StatefulDataLoader works with a TokenStream as well; it keeps a state per worker instead
and needs as many ranks and workers as before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, default_collate

from nanoset_ref.collator import Batch, DataCollatorForCLM
from nanoset_ref.documents import DocumentOptions
from nanoset_ref.rows import SampleBlock
from nanoset_ref.streaming.packed import Row
from nanoset_ref.streaming.resumable import State, check_state
from nanoset_ref.streaming.stream import Cursors, TokenStream

Collate = Callable[[list[Row]], Any]


class TokenStreamDataLoader(DataLoader[Any]):
    """The batches of a TokenStream, whole ones only.

    Args:
        stream: its micro_batch_size is the batch size.
        collate_fn: rows to a batch, in the worker; a DataCollatorForCLM, for example.
        **options: of torch's DataLoader (num_workers, pin_memory, prefetch_factor, ...), without persistent_workers.

    Each `for` is the rest of the current epoch, the next one a whole epoch (with repeat=True there is one without end).
    """

    def __init__(self, stream: TokenStream, collate_fn: Collate = default_collate, **options: Any) -> None:
        if options.get("persistent_workers"):
            raise ValueError("persistent workers would keep their place when the epoch begins anew; leave them out")
        collate = partial(_with_cursors, stream, collate_fn)
        super().__init__(stream, stream.micro_batch_size, collate_fn=collate, drop_last=True, **options)
        self.stream, self._start = stream, dict(stream.start)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        start = self._start
        self.stream.seek(**start)
        for batch, cursors in super().__iter__():
            start["consumed_train_samples"] += self.stream.micro_batch_size * self.stream.world_size
            start["cursors"] = {**start["cursors"], **cursors}
            yield batch
        self._start = {"epoch": start["epoch"] + 1, "consumed_train_samples": 0, "cursors": {}}

    def state_dict(self) -> State:
        """{"epoch", "consumed_train_samples", "cursors", "plan"}: JSON-serialisable, good on every rank."""
        return {**self._start, "plan": self.stream.plan}

    def load_state_dict(self, state: State) -> None:
        """Continue after what `state` counts, with any number of ranks and workers.

        Raises:
            PlanMismatch: the state of another text, tokenizer or order.
            ValueError: not a state of such a loader.
        """
        check_state(state, self.state_dict())
        self._start = {name: state[name] for name in self._start}


def _with_cursors(stream: TokenStream, collate_fn: Collate, rows: list[Row]) -> tuple[Any, Cursors]:
    """A batch, and where the stream of this process stands after it.

    A worker gets the loader's dataset and its collate function together, so `stream` is the copy that it reads.
    """
    return collate_fn(rows), stream.cursors


class PositionIdsCollator:
    """A DataCollatorForCLM for rows with position ids, which tell it where documents begin.

    Args:
        collator: what it says about documents is added to the batch; without `documents` "position_ids", int64 [B, S],
            go where the input ids go.
    """

    def __init__(self, collator: DataCollatorForCLM) -> None:
        documents = collator.documents or DocumentOptions(reset_position_ids=True)
        self.collator = dataclasses.replace(collator, documents=documents)

    def __call__(self, rows: list[Row]) -> Batch:
        ids, positions = (np.stack([row[name] for row in rows]) for name in ("input_ids", "position_ids"))
        return self.collator(SampleBlock(ids, lambda: positions == 0))
