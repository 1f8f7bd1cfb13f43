"""Collators: from rows to the fields of a batch that one pipeline rank needs.

A row of sequence_length + 1 ids gives inputs (all but the last) and labels (all but the first).
Each of them is a view of its own copy of the rows, and each mask has its own memory: a batch
belongs to its receiver, who may write to any field without changing another field or another batch
(law 7 of docs/laws.md). The rows of many batches arrive as one `RowBlock`, which is copied once for
each field and then cut.

A `Collator` checks samples, puts them into a block and cuts it. Subclasses name a batch's fields:
`DataCollatorForCLM` (Nanotron's fields) and `MegatronCollator` in `nanoset_ref.megatron`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Array, BoolArray
from nanoset_ref.load.rows import SampleBlock

if TYPE_CHECKING:
    from nanoset_ref.load.document_masks import DocumentOptions

# names of threads that never write into a batch: this package's own, which read, and those that
# feed Python's worker processes
READING_THREADS = "nanoset_ref-", "QueueFeederThread"


@dataclasses.dataclass(frozen=True)
class TensorPointer:
    """Stands for a tensor that another pipeline rank holds.

    Args:
        group_rank: the number of that rank in the pipeline group.
    """

    group_rank: int


Batch = dict[str, Any]


class RowBlock(NamedTuple):
    """The rows of many batches, back to back, for `Collator.split`.

    Attributes:
        rows: integers [n, row_length]; read by the collator and never handed out.
        batch_size: rows per batch; the last batch of a block may have fewer.
        starts: bool [n, row_length], True where a document begins, if the collator `needs_starts`.
        copy_tensor: copies a tensor; the receiver of the copy may write to it.
    """

    rows: torch.Tensor
    batch_size: int
    starts: BoolArray | None = None
    copy_tensor: Callable[[torch.Tensor], torch.Tensor] = torch.clone


class Collator(ABC):
    """Turns samples, or a whole `RowBlock`, into batches.

    Called with B samples {"input_ids": [row_length] integers}, or with a `SampleBlock`, it returns
    one batch, a dict.

    Attributes:
        row_length: the number of tokens that a row must have.
        needs_starts: whether `split` needs `RowBlock.starts`.
        masks_padding: whether its batches exclude the padding of `Rows.padded` from the loss.
        pad_id: the id by which it recognizes padding; without this attribute, `starts` marks it.

    Raises:
        ValueError: there are no samples, or one has another key than input_ids or another length
            than row_length.
    """

    row_length: int
    needs_starts = False
    masks_padding = True

    @abstractmethod
    def split(self, block: RowBlock) -> Iterable[Batch]:
        """Cut a block into batches. Its row length has been checked."""

    def __call__(self, examples: Sequence[dict[str, Any]]) -> Batch:
        if not examples:
            raise ValueError("a batch holds at least one sample, got none")
        if not (isinstance(examples, SampleBlock) and examples.is_unmodified):
            examples = self._stack(examples)
        ids = examples.rows
        self.check_row_lengths({ids.shape[1]})
        if ids.dtype.kind not in "iu":
            raise ValueError(f"token ids must be integers, got {ids.dtype}")
        dtype = np.int64 if ids.itemsize > 4 else np.int32
        rows = torch.from_numpy(ids.astype(dtype, copy=False))
        starts = examples.starts if self.needs_starts else None
        [batch] = self.split(RowBlock(rows, len(examples), starts))
        return batch

    def _stack(self, examples: Sequence[dict[str, Any]]) -> SampleBlock:
        """Put samples into one array, and check their keys and lengths."""
        for keys in map(list, examples):
            if keys != ["input_ids"]:
                raise ValueError(
                    f"each sample must be a dict with the one key 'input_ids', got the keys {keys}"
                )
        rows = [example["input_ids"] for example in examples]
        self.check_row_lengths(set(map(len, rows)))
        return SampleBlock(np.stack(rows))

    def check_row_lengths(self, lengths: set[int]) -> None:
        """Refuse rows of another length than `row_length`."""
        if lengths != {self.row_length}:
            raise ValueError(
                f"samples must have {self.row_length} tokens, got {sorted(lengths)}; "
                "dataset and collator need the same sequence_length, and a Megatron dataset "
                "without the extra token needs MegatronCollator"
            )


@dataclasses.dataclass
class DataCollatorForCLM(Collator):
    """Collate samples for causal language modeling under pipeline parallelism.

    Args:
        sequence_length: S, in tokens.
        input_pp_rank: the pipeline rank that feeds input_ids to the model.
        output_pp_rank: the pipeline rank that computes the loss from the labels.
        current_pp_rank: this rank.
        documents: which fields about documents to add (see DocumentOptions); by default, none.

    Called with samples (see `Collator`), or with a list of empty dicts on a rank that is neither
    input nor output. Returns a dict of

        input_ids   int32 [B, S]    on the input rank
        input_mask  bool [B, S]     on the input rank, all True
        label_ids   int32 [B, S]    on the output rank, input_ids shifted by one
        label_mask  bool [B, S]     on the output rank, all True unless documents.eod_mask_loss

    Ids from Megatron's corpora of 64-bit ids are int64.
    `documents` adds position_ids on the input rank, and attention_mask, cu_seqlens and max_seqlen
    on both. A field that this rank does not hold is a TensorPointer to the rank that does. Every
    field may be written to; several threads may write to batches at once only if there was a second
    thread when these were made (see `writable_copy`).

    Raises:
        TypeError: other options than DocumentOptions.
        ValueError: sequence_length is below 1, or a rank below 0; a rank that takes no data was
            given samples; see `Collator`.
    """

    sequence_length: int
    input_pp_rank: int
    output_pp_rank: int
    current_pp_rank: int
    documents: DocumentOptions | None = None

    def __post_init__(self) -> None:
        whole_number(self.sequence_length, "sequence_length", 1)
        for name in ("input_pp_rank", "output_pp_rank", "current_pp_rank"):
            whole_number(getattr(self, name), name, 0)
        self.row_length = self.sequence_length + 1
        inputs = TensorPointer(self.input_pp_rank)
        labels = TensorPointer(self.output_pp_rank)
        # the batch of a rank without data
        self._pointers: Batch = {
            "input_ids": inputs,
            "input_mask": inputs,
            "label_ids": labels,
            "label_mask": labels,
        }
        self.masks_padding = False
        if self.documents is not None:
            # only options need it
            from nanoset_ref.load.document_masks import require_options

            documents = require_options(self.documents)
            self.needs_starts = documents.needs_starts
            # only `starts` marks padding: its id may be a token of the text
            self.masks_padding = self.needs_starts and documents.eod_mask_loss
            for name in documents.field_names:
                self._pointers.setdefault(name, inputs)

    def __call__(self, examples: Sequence[dict[str, Any]]) -> Batch:
        if self.current_pp_rank in (self.input_pp_rank, self.output_pp_rank):
            return super().__call__(examples)
        if any(examples):
            raise ValueError(
                f"pipeline rank {self.current_pp_rank} takes no data (inputs go to "
                f"{self.input_pp_rank}, labels to {self.output_pp_rank}): give it empty samples "
                f"(EmptyInfiniteDataset), got {sorted(next(filter(None, examples)))}"
            )
        return dict(self._pointers)

    def split(self, block: RowBlock) -> Iterable[Batch]:
        """See `Collator.split`. Only for ranks that take data.

        The padding id -1, in which Megatron's rows may end, becomes 0 where the block has `starts`,
        which mask it: a model cannot look it up.
        """
        rows = block.rows
        if block.starts is not None and rows.amin() < 0:
            rows = rows.clamp(min=0)
        documents = self.documents
        if documents is not None:
            # taken before the lazy copies below: after them, numpy() would really copy
            ids = rows.numpy()
        # rows of each batch; unsafe_split(batch_size) would take 0.1 microseconds longer per tensor
        full, rest = divmod(len(rows), block.batch_size)
        sizes = [block.batch_size] * full
        if rest:
            sizes.append(rest)
        inputs: Any = [TensorPointer(self.input_pp_rank)] * len(sizes)
        labels: Any = [TensorPointer(self.output_pp_rank)] * len(sizes)
        # where the ids are pointers, the masks are the same pointers
        input_masks = inputs
        label_masks = labels
        # 1. copy the rows and a mask for each field of this rank, and cut each copy into batches
        #    ("unsafe": autograd cannot follow writes into the views; ids have no gradients)
        with outside_inference_mode():
            mask = all_true(len(rows), self.sequence_length)
            if self.current_pp_rank == self.input_pp_rank:
                all_inputs = block.copy_tensor(rows)[:, :-1]
                inputs = all_inputs.unsafe_split_with_sizes(sizes)
                input_masks = block.copy_tensor(mask).unsafe_split_with_sizes(sizes)
            if self.current_pp_rank == self.output_pp_rank:
                all_labels = block.copy_tensor(rows)[:, 1:]
                labels = all_labels.unsafe_split_with_sizes(sizes)
                label_masks = block.copy_tensor(mask).unsafe_split_with_sizes(sizes)
        # 2. one dict for each batch
        first = 0
        fields = zip(inputs, input_masks, labels, label_masks, strict=True)
        for input_ids, input_mask, label_ids, label_mask in fields:
            batch = {
                "input_ids": input_ids,
                "input_mask": input_mask,
                "label_ids": label_ids,
                "label_mask": label_mask,
            }
            if documents is not None:
                # the rows of this batch, also of a last one that is shorter
                part = slice(first, first + block.batch_size)
                starts = None if block.starts is None else block.starts[part]
                batch |= self._document_fields(documents, ids[part], starts)
                first = part.stop
            yield batch

    def _document_fields(
        self,
        documents: DocumentOptions,
        ids: Array,
        starts: BoolArray | None,
    ) -> Batch:
        """Fields about documents; one that only another rank holds is a TensorPointer to it."""
        fields = as_tensors(documents.fields(ids, starts))
        for name, rank in (
            ("position_ids", self.input_pp_rank),
            ("label_mask", self.output_pp_rank),
        ):
            if name in fields and rank != self.current_pp_rank:
                fields[name] = TensorPointer(rank)
        return fields


def writable_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that may be written to.

    It is one of torch's lazy copies, which take up memory only when they or the original are
    written to. Two threads must not write to those at once: in a process with a second thread that
    may write, the copy is a real one. The batches of a block are views of one copy. So if they were
    made while there was one thread, two threads that start later must not write into them at once:
    torch (2.13) crashes.
    """
    writers = 0
    for thread in threading.enumerate():
        writers += not thread.name.startswith(READING_THREADS)
    if writers > 1:
        return tensor.clone()
    try:
        return tensor._lazy_clone()
    except (AttributeError, RuntimeError):
        # this torch has no lazy copies, or torch does not own the memory
        return tensor.clone()


def as_tensors(fields: dict[str, Any]) -> Batch:
    """The same fields with arrays as tensors that share their memory and may be written to."""
    with outside_inference_mode():
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in fields.items()
        }


@functools.lru_cache(maxsize=32)
def all_true(rows: int, columns: int) -> torch.Tensor:
    """bool [rows, columns], True everywhere. Masks are copies of it; it never reaches a caller."""
    return torch.ones((rows, columns), dtype=torch.bool, device="cpu")


def outside_inference_mode() -> contextlib.AbstractContextManager[None]:
    """A context whose tensors may be written to, even in a caller's inference mode."""
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return contextlib.nullcontext()  # torch's own context takes 10 microseconds
