"""From samples to what one pipeline rank needs of a batch.

A sample of sequence_length + 1 ids gives inputs (all but the last) and labels (all but the first). They are views of
one buffer: a batch that arrives as a `SampleBlock` is not copied at all, many batches that arrive as one block are cut
by `split`, and `to_device` moves the buffer below both views once. The rejected alternative, to cut inputs and labels
in the dataset, would make the dataset differ by pipeline rank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from nanoset_ref.documents import DocumentOptions, Starts
from nanoset_ref.nanoset import SampleBlock


@dataclasses.dataclass(frozen=True)
class TensorPointer:
    """Stands for a tensor that another pipeline rank has.

    Args:
        group_rank: that rank, within the pipeline group.
    """

    group_rank: int


@dataclasses.dataclass
class DataCollatorForCLM:
    """Collate samples for causal language modelling under pipeline parallelism.

    Args:
        sequence_length: S, in tokens.
        input_pp_rank: the pipeline rank that feeds input_ids to the model.
        output_pp_rank: the pipeline rank that computes the loss from the labels.
        current_pp_rank: this rank.
        documents: fields about documents to add (see DocumentOptions); None: the model need not know of them.

    Called with a list of {"input_ids": [S + 1] integers} (or a `SampleBlock`), of length B; on a rank that is neither
    input nor output, with a list of empty dicts. Returns a dict of

        input_ids   int32 [B, S]    on the input rank
        input_mask  bool [B, S]     on the input rank, all True
        label_ids   int32 [B, S]    on the output rank, input_ids shifted by one
        label_mask  bool [B, S]     on the output rank, all True unless documents.eod_mask_loss

    with position_ids on the input rank, attention_mask, cu_seqlens and max_seqlen on both, where `documents` asks for
    them, and a TensorPointer to the rank that has it for everything else. input_ids and label_ids share memory; the
    masks are one constant that batches of a shape share, so clone a mask before writing into it (see `all_true`).

    Raises:
        ValueError: another key than input_ids, another length than S + 1, an empty list, data on a rank that takes
            none.
    """

    sequence_length: int
    input_pp_rank: int
    output_pp_rank: int
    current_pp_rank: int
    documents: DocumentOptions | None = None

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor | TensorPointer]:
        if self.current_pp_rank not in (self.input_pp_rank, self.output_pp_rank):
            if any(examples):
                raise ValueError(
                    f"pipeline rank {self.current_pp_rank} takes no data (inputs go to {self.input_pp_rank}, "
                    f"labels to {self.output_pp_rank}): give it empty samples "
                    f"(EmptyInfiniteDataset), got {sorted(next(filter(None, examples)))}"
                )
            return self._pointers()
        rows = torch.from_numpy(self._rows(examples))
        return next(self.split(rows, len(rows), getattr(examples, "starts", None)))

    def split(
        self, rows: torch.Tensor, batch_size: int, starts: Starts | None = None
    ) -> Iterator[dict[str, torch.Tensor | TensorPointer]]:
        """Cut a block of rows, integers [n, S + 1], into batches of `batch_size` rows, the last one maybe shorter.

        `starts`, bool [n, S + 1], says where documents begin, if that is known. All batches are views. For ranks that
        take data; the loader calls it where a block of many batches is delivered.
        """
        if rows.shape[1] != self.sequence_length + 1:
            raise self._wrong_length([rows.shape[1]])
        pointers, feeds = self._pointers(), self.current_pp_rank == self.input_pp_rank
        judges = self.current_pp_rank == self.output_pp_rank
        # "unsafe" as autograd could not follow writes into the views: token ids have no gradients
        inputs, labels = rows[:, :-1].unsafe_split(batch_size), rows[:, 1:].unsafe_split(batch_size)
        mask = None
        for k, (input_ids, label_ids) in enumerate(zip(inputs, labels, strict=True)):
            batch = dict(pointers)
            if mask is None or mask._version > 0 or k == len(inputs) - 1:
                mask = all_true(input_ids.shape, rows.device)
            if feeds:
                batch["input_ids"] = input_ids
                batch["input_mask"] = mask
            if judges:
                batch["label_ids"] = label_ids
                batch["label_mask"] = mask
            if self.documents is not None:
                mine = slice(k * batch_size, k * batch_size + len(input_ids))
                fields = self.documents.fields(rows[mine].numpy(), None if starts is None else starts[mine])
                batch.update(self._on_this_rank(fields))
            yield batch

    def _on_this_rank(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields about documents as tensors: position_ids for who has inputs, label_mask for who has labels."""
        ranks = {"position_ids": self.input_pp_rank, "label_mask": self.output_pp_rank}
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in fields.items()
            if ranks.get(name, self.current_pp_rank) == self.current_pp_rank
        }

    def _pointers(self) -> dict[str, torch.Tensor | TensorPointer]:
        pointers: dict[str, torch.Tensor | TensorPointer] = {
            "input_ids": TensorPointer(self.input_pp_rank),
            "input_mask": TensorPointer(self.input_pp_rank),
            "label_ids": TensorPointer(self.output_pp_rank),
            "label_mask": TensorPointer(self.output_pp_rank),
        }
        for name in self.documents.names if self.documents is not None else ():
            pointers.setdefault(name, TensorPointer(self.input_pp_rank))
        return pointers

    def _rows(self, examples: Sequence[dict[str, Any]]) -> np.ndarray[Any, Any]:
        """The samples as one array [B, S + 1]; a SampleBlock is one already."""
        if isinstance(examples, SampleBlock):
            rows = examples.rows
        else:
            if len(examples) == 0:
                raise ValueError("a batch holds at least one sample, got none")
            for example in examples:
                if list(example) != ["input_ids"]:
                    raise ValueError(
                        f"each sample must be a dict with the one key 'input_ids', got the keys {list(example)}"
                    )
            lengths = {len(example["input_ids"]) for example in examples}
            if lengths != {self.sequence_length + 1}:
                raise self._wrong_length(sorted(lengths))
            rows = np.stack([example["input_ids"] for example in examples])
        if rows.shape[1] != self.sequence_length + 1:
            raise self._wrong_length([rows.shape[1]])
        return rows

    def _wrong_length(self, lengths: list[int]) -> ValueError:
        return ValueError(
            f"samples must have sequence_length + 1 = {self.sequence_length + 1} tokens, got {lengths}; "
            "dataset and collator need the same sequence_length"
        )


_MASKS: dict[tuple[torch.Size, torch.device], torch.Tensor] = {}


def all_true(shape: torch.Size, device: torch.device) -> torch.Tensor:
    """One bool tensor per shape and device, all True, for whoever only reads it.

    New ones for every batch would be a third of all bytes that reading a batch writes. Should somebody have written
    into it (torch counts that), it stays with those who have it, and the next caller gets a new one.
    """
    key = shape, device
    mask = _MASKS.get(key)
    if mask is None or mask._version > 0:
        with torch.inference_mode(False):  # a tensor born in inference mode could not be used for training later
            mask = _MASKS[key] = torch.ones(shape, dtype=torch.bool, device=device)
    return mask


def to_device(
    batch: dict[str, torch.Tensor | TensorPointer], device: torch.device | str, *, non_blocking: bool = True
) -> dict[str, torch.Tensor | TensorPointer]:
    """The batch on a device, moved as what it was read as: one block [B, S + 1].

    1. input_ids and label_ids of a DataCollatorForCLM are views of a block; it is found below them and moved once
    2. both are cut again there, as views
    3. masks that are still the shared constant are not moved: the device has its own

    Moving the views costs two copies on the host first, because they are not contiguous, and then twice the transfer.
    Anything else in the batch is moved by itself.

    Args:
        batch: of DataCollatorForCLM, with or without either side.
        device: where to.
        non_blocking: as in `Tensor.to`; works for pinned batches (pin_memory=True).
    """
    device = torch.device(device)
    moved: dict[str, torch.Tensor | TensorPointer] = {}
    blocks: dict[int, torch.Tensor] = {}
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor):
            moved[name] = value
        elif value is _MASKS.get((value.shape, value.device)) and value._version == 0:
            moved[name] = all_true(value.shape, device)
        elif (block := _block_below(value, shift := int(name == "label_ids"))) is not None:
            if block.data_ptr() not in blocks:
                blocks[block.data_ptr()] = block.to(device, non_blocking=non_blocking)
            moved[name] = blocks[block.data_ptr()][:, 1:] if shift else blocks[block.data_ptr()][:, :-1]
        else:
            moved[name] = value.to(device, non_blocking=non_blocking)
    return moved


def _block_below(view: torch.Tensor, shift: int) -> torch.Tensor | None:
    """The contiguous [B, S + 1] of which `view` is columns shift .. shift + S; None if it is not such a view."""
    if view.dim() != 2 or view.stride() != (view.shape[1] + 1, 1):
        return None
    start, size = view.storage_offset() - shift, view.shape[0] * (view.shape[1] + 1)
    if start < 0 or (start + size) * view.element_size() > view.untyped_storage().nbytes():
        return None
    return view.as_strided((view.shape[0], view.shape[1] + 1), (view.shape[1] + 1, 1), start)
