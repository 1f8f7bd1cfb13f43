"""A DataLoader for TokenStream whose state is a count, and the collate function for position ids.

Every batch brings along where its worker stands, so a resume with any number of ranks, workers and any micro-batch size
goes on at once. torchdata's StatefulDataLoader works with a TokenStream as well; it keeps a state per worker instead
and needs as many ranks and workers as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

from nanoset_ref.collator import DataCollatorForCLM, TensorPointer
from nanoset_ref.dataloader import check_plan
from nanoset_ref.streaming.packed import Row
from nanoset_ref.streaming.stream import Cursors, TokenStream


class TokenStreamDataLoader(DataLoader[Any]):
    """The batches of a TokenStream, whole ones only.

    Args:
        stream: its micro_batch_size is the batch size.
        collate_fn: rows to a batch, in the worker; a DataCollatorForCLM, for example.
        **options: of torch's DataLoader (num_workers, pin_memory, prefetch_factor, ...), without persistent_workers.

    Each `for` is the rest of the current epoch, the next one a whole epoch (with shards > 1 there is one without end).

    Attributes:
        epoch: the current one, from 0.
        consumed_train_samples: rows of this epoch in the batches handed out, over all ranks.
    """

    def __init__(
        self, stream: TokenStream, collate_fn: Callable[[list[Row]], Any] = default_collate, **options: Any
    ) -> None:
        if options.get("persistent_workers"):
            raise ValueError("persistent workers would keep their place when the epoch begins anew; leave them out")
        collate = _WithCursors(stream, collate_fn)
        super().__init__(stream, stream.micro_batch_size, collate_fn=collate, drop_last=True, **options)
        self.stream = stream
        self.epoch, self.consumed_train_samples = stream.start_from_epoch, stream.consumed_train_samples
        self._cursors: Cursors = stream.cursors

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.stream.seek(self.epoch, self.consumed_train_samples, self._cursors)
        for batch, cursors in super().__iter__():
            self.consumed_train_samples += self.stream.micro_batch_size * self.stream.world_size
            self._cursors = {**self._cursors, **cursors}
            yield batch
        self.epoch, self.consumed_train_samples, self._cursors = self.epoch + 1, 0, {}

    def state_dict(self) -> dict[str, Any]:
        """{"epoch", "consumed_train_samples", "cursors", "plan"}: JSON-serialisable, good on every rank."""
        return {
            "epoch": self.epoch,
            "consumed_train_samples": self.consumed_train_samples,
            "cursors": self._cursors,
            "plan": self.stream.plan,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after what `state` counts, with any number of ranks and workers.

        Raises:
            PlanMismatch: the state of another text, tokenizer or order.
        """
        check_plan(state["plan"], self.stream.plan)
        self.epoch, self.consumed_train_samples = state["epoch"], state["consumed_train_samples"]
        self._cursors = state["cursors"]


class _WithCursors:
    """Collates, and adds where the stream of this process stands after the batch."""

    def __init__(self, stream: TokenStream, collate_fn: Callable[[list[Row]], Any]) -> None:
        self.stream, self.collate_fn = stream, collate_fn

    def __call__(self, rows: list[Row]) -> tuple[Any, Cursors]:
        info = get_worker_info()
        stream = self.stream if info is None else cast(TokenStream, info.dataset)
        return self.collate_fn(rows), stream.cursors


class PositionIdsCollator:
    """A DataCollatorForCLM that takes position ids along: "position_ids", int64 [B, S], where the input ids go.

    Args:
        collator: for everything else.
    """

    def __init__(self, collator: DataCollatorForCLM) -> None:
        self.collator = collator

    def __call__(self, rows: list[Row]) -> dict[str, torch.Tensor | TensorPointer]:
        batch = self.collator([{"input_ids": row["input_ids"]} for row in rows])
        position_ids = np.stack([row["position_ids"] for row in rows])[:, :-1]
        here = isinstance(batch["input_ids"], torch.Tensor)
        batch["position_ids"] = torch.from_numpy(position_ids) if here else batch["input_ids"]
        return batch
