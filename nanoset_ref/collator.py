"""From samples to what one pipeline rank needs of a batch.

A sample of sequence_length + 1 ids gives inputs (all but the last) and labels (all but the first). They are views of
one buffer: a batch that arrives as a `SampleBlock` is not copied at all. The rejected alternative, to cut inputs and
labels in the dataset, would make the dataset differ by pipeline rank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

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

    Called with a list of {"input_ids": [S + 1] integers} (or a `SampleBlock`), of length B; on a rank that is neither
    input nor output, with a list of empty dicts. Returns a dict of

        input_ids   int32 [B, S]    on the input rank
        input_mask  bool [B, S]     on the input rank, all True
        label_ids   int32 [B, S]    on the output rank, input_ids shifted by one
        label_mask  bool [B, S]     on the output rank, all True

    and a TensorPointer to the rank that has it for everything else. input_ids and label_ids share memory.

    Raises:
        ValueError: another key than input_ids, another length than S + 1, an empty list, data on a rank that takes
            none.
    """

    sequence_length: int
    input_pp_rank: int
    output_pp_rank: int
    current_pp_rank: int

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor | TensorPointer]:
        batch: dict[str, torch.Tensor | TensorPointer] = {
            "input_ids": TensorPointer(self.input_pp_rank),
            "input_mask": TensorPointer(self.input_pp_rank),
            "label_ids": TensorPointer(self.output_pp_rank),
            "label_mask": TensorPointer(self.output_pp_rank),
        }
        if self.current_pp_rank not in (self.input_pp_rank, self.output_pp_rank):
            if any(examples):
                raise ValueError(
                    f"pipeline rank {self.current_pp_rank} takes no data (inputs go to {self.input_pp_rank}, "
                    f"labels to {self.output_pp_rank}): give it empty samples "
                    f"(EmptyInfiniteDataset), got {sorted(next(filter(None, examples)))}"
                )
            return batch
        rows = torch.from_numpy(self._rows(examples))
        mask_shape = (len(rows), self.sequence_length)
        if self.current_pp_rank == self.input_pp_rank:
            batch["input_ids"] = rows[:, :-1]
            batch["input_mask"] = torch.ones(mask_shape, dtype=torch.bool)
        if self.current_pp_rank == self.output_pp_rank:
            batch["label_ids"] = rows[:, 1:]
            batch["label_mask"] = torch.ones(mask_shape, dtype=torch.bool)
        return batch

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
