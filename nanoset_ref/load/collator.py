"""From rows to what one pipeline rank needs of a batch.

A row of sequence_length + 1 ids gives inputs (all but the last) and labels (all but the first). Each of them is a view
of its own copy of the rows, and each mask has its own memory: a batch belongs to its receiver, who may write into any
field without changing another field or another batch. Many batches that arrive as one block are copied together and cut
by `split`.

`Collator` is the engine: it takes samples or blocks, checks them, and cuts them. A subclass is a dialect, which names
the fields of a batch: `DataCollatorForCLM` here (Nanotron's), `MegatronCollator` in `nanoset_ref.megatron`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from nanoset_ref.load.documents import DocumentOptions, Starts
from nanoset_ref.load.rows import SampleBlock


@dataclasses.dataclass(frozen=True)
class TensorPointer:
    """Stands for a tensor that another pipeline rank has.

    Args:
        group_rank: that rank, within the pipeline group.
    """

    group_rank: int


Batch = dict[str, Any]
Copy = Callable[[torch.Tensor], torch.Tensor]


class Collator(ABC):
    """Turns samples, or whole blocks of rows, into batches.

    Called with B samples {"input_ids": [row_length] integers} or a `SampleBlock`, it returns one batch, a dict.

    Attributes:
        row_length: tokens that a row must have.
        needs_starts: whether `split` has to be told where documents begin.

    Raises:
        ValueError: no samples, another key than input_ids, another length than row_length.
    """

    row_length: int
    needs_starts = False

    @abstractmethod
    def split(
        self,
        rows: torch.Tensor,
        batch_size: int,
        starts: Starts | None = None,
        copy: Copy = torch.clone,
    ) -> Iterator[Batch]:
        """Cut a block of rows into batches of `batch_size`, the last one maybe shorter.

        Args:
            rows: integers [n, row_length]. They are read, and are not handed out.
            batch_size: rows per batch.
            starts: bool [n, row_length], where documents begin, for a dialect that `needs_starts`.
            copy: makes what is handed out: a tensor of equal values that may be written to.
        """

    def __call__(self, examples: Sequence[dict[str, Any]]) -> Batch:
        if not (isinstance(examples, SampleBlock) and examples.intact):
            if len(examples) == 0:
                raise ValueError("a batch holds at least one sample, got none")
            for keys in map(list, examples):
                if keys != ["input_ids"]:
                    raise ValueError(
                        f"each sample must be a dict with the one key 'input_ids', got the keys {keys}"
                    )
            self.check(*{len(example["input_ids"]) for example in examples})
            examples = SampleBlock(np.stack([example["input_ids"] for example in examples]))
        self.check(examples.rows.shape[1])
        starts = examples.starts if self.needs_starts else None
        return next(self.split(torch.from_numpy(examples.rows), len(examples), starts))

    def check(self, *row_lengths: int) -> None:
        """Refuse rows of another length; `split` does not look at them."""
        if row_lengths != (self.row_length,):
            way = "dataset and collator need the same sequence_length"
            raise ValueError(
                f"samples must have {self.row_length} tokens, got {sorted(row_lengths)}; {way}"
            )


@dataclasses.dataclass
class DataCollatorForCLM(Collator):
    """Collate samples for causal language modelling under pipeline parallelism.

    Args:
        sequence_length: S, in tokens.
        input_pp_rank: the pipeline rank that feeds input_ids to the model.
        output_pp_rank: the pipeline rank that computes the loss from the labels.
        current_pp_rank: this rank.
        documents: fields about documents to add (see DocumentOptions); None: the model need not know of them.

    Called with samples as `Collator` says; on a rank that is neither input nor output, with a list of empty dicts.
    Returns a dict of

        input_ids   int32 [B, S]    on the input rank
        input_mask  bool [B, S]     on the input rank, all True
        label_ids   int32 [B, S]    on the output rank, input_ids shifted by one
        label_mask  bool [B, S]     on the output rank, all True unless documents.eod_mask_loss

    with position_ids on the input rank, attention_mask, cu_seqlens and max_seqlen on both, where `documents` asks for
    them, and a TensorPointer to the rank that has it for everything else. Every field may be written to.

    Raises:
        ValueError: as `Collator`; sequence_length below 1; data on a rank that takes none.
    """

    sequence_length: int
    input_pp_rank: int
    output_pp_rank: int
    current_pp_rank: int
    documents: DocumentOptions | None = None

    def __post_init__(self) -> None:
        if self.sequence_length < 1:
            raise ValueError(
                f"sequence_length must be at least 1 token, got {self.sequence_length}"
            )
        self.row_length = self.sequence_length + 1
        self.needs_starts = self.documents is not None and self.documents.needs_starts
        inputs, labels = TensorPointer(self.input_pp_rank), TensorPointer(self.output_pp_rank)
        asked = self.documents.names if self.documents is not None else []
        always = {
            "input_ids": inputs,
            "input_mask": inputs,
            "label_ids": labels,
            "label_mask": labels,
        }
        self._pointers: Batch = always | dict.fromkeys(asked, inputs) | always

    def __call__(self, examples: Sequence[dict[str, Any]]) -> Batch:
        if self.current_pp_rank in (self.input_pp_rank, self.output_pp_rank):
            return super().__call__(examples)
        if any(examples):
            where = f"inputs go to {self.input_pp_rank}, labels to {self.output_pp_rank}"
            raise ValueError(
                f"pipeline rank {self.current_pp_rank} takes no data ({where}): give it empty samples "
                f"(EmptyInfiniteDataset), got {sorted(next(filter(None, examples)))}"
            )
        return dict(self._pointers)

    def split(
        self,
        rows: torch.Tensor,
        batch_size: int,
        starts: Starts | None = None,
        copy: Copy = torch.clone,
    ) -> Iterator[Batch]:
        """As `Collator.split`, for ranks that take data.

        A pad of -1, which Megatron's rows may end in, is no id that a model could look up: it becomes 0.
        """
        if starts is not None and rows.amin() < 0:
            rows = rows.clamp(min=0)
        ids = (
            rows.numpy()
        )  # before `copy`: a view of rows that have lazy copies would be a real copy
        with outside_inference_mode():
            columns = self._columns(rows, batch_size, copy)
        for number, (input_ids, input_mask, label_ids, label_mask) in enumerate(zip(*columns)):  # noqa: B905
            batch: Batch = {
                "input_ids": input_ids,
                "input_mask": input_mask,
                "label_ids": label_ids,
                "label_mask": label_mask,
            }
            if self.documents is not None:
                mine = slice(number * batch_size, (number + 1) * batch_size)
                fields = self.documents.fields(ids[mine], None if starts is None else starts[mine])
                batch = self._pointers | batch | self._on_this_rank(fields)
            yield batch

    def _columns(self, rows: torch.Tensor, batch_size: int, copy: Copy) -> list[Iterable[Any]]:
        """input_ids, input_mask, label_ids and label_mask, each of all batches; pointers without end if not here."""
        mask = all_true(len(rows), self.sequence_length)
        columns: list[Iterable[Any]] = []
        sides = (self.input_pp_rank, slice(None, -1)), (self.output_pp_rank, slice(1, None))
        for pp_rank, tokens in sides:
            if pp_rank == self.current_pp_rank:
                # "unsafe" as autograd could not follow writes into the views: token ids have no gradients
                columns.append(copy(rows)[:, tokens].unsafe_split(batch_size))
                columns.append(copy(mask).unsafe_split(batch_size))
            else:
                columns += [itertools.repeat(TensorPointer(pp_rank))] * 2
        return columns

    def _on_this_rank(self, fields: dict[str, Any]) -> Batch:
        """Fields about documents as tensors: position_ids for who has inputs, label_mask for who has labels."""
        ranks = {"position_ids": self.input_pp_rank, "label_mask": self.output_pp_rank}
        here = {
            name for name in fields if ranks.get(name, self.current_pp_rank) == self.current_pp_rank
        }
        return as_tensors({name: fields[name] for name in here})


class DataCollatorWithLabels(Collator):
    """Collate samples for models that shift the labels themselves, as those of transformers do.

    Args:
        sequence_length: S, in tokens.

    Returns a dict of `input_ids` and `labels`, equal int64 [B, S + 1]: of S + 1 tokens, the model predicts S.
    """

    def __init__(self, sequence_length: int) -> None:
        self.row_length = sequence_length + 1

    def split(
        self,
        rows: torch.Tensor,
        batch_size: int,
        starts: Starts | None = None,
        copy: Copy = torch.clone,
    ) -> Iterator[Batch]:
        """As `Collator.split`."""
        ids = rows.long()
        inputs = copy(ids).unsafe_split(batch_size)
        labels = copy(ids).unsafe_split(batch_size)
        for input_ids, label_ids in zip(inputs, labels, strict=True):
            yield {"input_ids": input_ids, "labels": label_ids}


def as_tensors(fields: dict[str, Any]) -> Batch:
    """The same fields with arrays as tensors that share their memory."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }


@functools.lru_cache(maxsize=32)
def all_true(rows: int, columns: int) -> torch.Tensor:
    """bool [rows, columns], True everywhere: the original of masks. Hand out copies of it."""
    with outside_inference_mode():
        return torch.ones((rows, columns), dtype=torch.bool)


def outside_inference_mode() -> contextlib.AbstractContextManager[None]:
    """What is made in here may be written to and trained on, even if a batch is asked for in inference mode."""
    # torch's own context takes 10 microseconds
    return (
        torch.inference_mode(False)
        if torch.is_inference_mode_enabled()
        else contextlib.nullcontext()
    )


def to_device(batch: Batch, device: torch.device | str, *, non_blocking: bool = True) -> Batch:
    """The batch on a device, with input_ids and label_ids moved as the blocks [B, S + 1] that they were read as.

    They are views of S columns, which are not contiguous: moving them as they are would cost a copy on the host first.
    Anything else in the batch is moved by itself.

    Args:
        batch: of DataCollatorForCLM, with or without either side.
        device: where to.
        non_blocking: as in `Tensor.to`; works for pinned batches (pin_memory=True).
    """
    moved: Batch = {}
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor):
            moved[name] = value
            continue
        first = int(name == "label_ids")
        block = _block_below(value, first)
        if block is None:
            moved[name] = value.to(device, non_blocking=non_blocking)
        else:
            columns = slice(first, first + value.shape[1])
            moved[name] = block.to(device, non_blocking=non_blocking)[:, columns]
    return moved


def _block_below(view: torch.Tensor, shift: int) -> torch.Tensor | None:
    """The contiguous [B, S + 1] of which `view` is columns shift .. shift + S; None if it is not such a view."""
    if view.dim() != 2 or view.stride() != (view.shape[1] + 1, 1):
        return None
    start, size = view.storage_offset() - shift, view.shape[0] * (view.shape[1] + 1)
    if start < 0 or (start + size) * view.element_size() > view.untyped_storage().nbytes():
        return None
    return view.as_strided((view.shape[0], view.shape[1] + 1), (view.shape[1] + 1, 1), start)
