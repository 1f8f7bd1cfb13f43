"""From samples to the batch that Megatron-LM's training loop takes: tokens, labels, loss mask, position ids, and on
request masks by document.

Whole batches at once, with `nanoset_ref.documents`. What upstream does per sample in the dataset (and then stacks)
happens once per batch here, and a dataset stays the same whatever a model wants to know about documents. Pads and the
EOD are found by their ids, as upstream does it: a real token with the pad's id loses its loss and becomes 0, so take an
id that no document holds. One defect is not reproduced, since it depends on which sample a process happens to read
first: unless a flag about documents is set, upstream makes that sample's loss mask, pads included, everybody's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nanoset_ref.documents import attention_mask, cu_seqlens, loss_mask, position_ids, starts_after_eos
from nanoset_ref.megatron.config import NanosetConfig
from nanoset_ref.rows import SampleBlock


@dataclasses.dataclass(frozen=True)
class MegatronCollator:
    """Collate samples as torch's default collation of Megatron-Core's GPTDataset items gives them.

    Args:
        config: sequence length, eod_id, pad_id and the flags reset_position_ids, reset_attention_mask, eod_mask_loss,
            create_attention_mask, create_cu_seqlens.

    Called with B samples {"input_ids": [row_length]} (or a SampleBlock); returns a dict of

        tokens, labels   int64 [B, S], labels being the next tokens; both are views of one buffer
        loss_mask        float32 [B, S], 0 where the label is a pad or (eod_mask_loss) the token an EOD
        position_ids     int64 [B, S]
        attention_mask   bool [B, 1, S, S], True = masked, with create_attention_mask
        cu_seqlens       int32 [documents + 1] over the B*S tokens, and max_seqlen, an int, with create_cu_seqlens

    Where nothing is masked or reset, loss_mask and position_ids are constants that batches of a shape share: clone them
    before writing into them.

    Raises:
        ValueError: no samples, or samples of another length.
    """

    config: NanosetConfig

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if len(examples) == 0:
            raise ValueError("a batch holds at least one sample, got none")
        if isinstance(examples, SampleBlock):
            return self._batch(examples.rows)
        return self._batch(np.stack([example["input_ids"] for example in examples]))

    def split(self, rows: torch.Tensor, batch_size: int) -> Iterator[dict[str, Any]]:
        """Collate a block of rows, integers [n, row_length], in batches; NanosetDataLoader reads with it."""
        for part in rows.split(batch_size):
            yield self._batch(part.numpy())

    def _batch(self, rows: NDArray[Any]) -> dict[str, Any]:
        config, text = self.config, self._text(rows)
        shape = len(text), config.sequence_length
        whole = np.zeros(text.shape, dtype=np.bool_)
        whole[:, 0] = True  # every row one document
        starts = whole if config.eod_id is None else starts_after_eos(text, config.eod_id)

        kept = None  # which labels count; None: all
        padded = text == config.pad_id
        if padded.any():
            kept = ~padded[:, 1:]
            np.putmask(text, padded, 0)
        if config.eod_mask_loss:
            kept = loss_mask(starts) if kept is None else kept & loss_mask(starts)
        tokens = torch.from_numpy(text)
        batch: dict[str, Any] = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}
        batch["loss_mask"], batch["position_ids"] = _constants(shape)
        if kept is not None:
            batch["loss_mask"] = torch.from_numpy(kept.astype(np.float32))
        if config.reset_position_ids:
            batch["position_ids"] = torch.from_numpy(position_ids(starts[:, :-1]))
        if config.create_attention_mask:
            mask = attention_mask(starts[:, :-1] if config.reset_attention_mask else whole[:, :-1])
            batch["attention_mask"] = torch.from_numpy(mask)
        if config.create_cu_seqlens:
            edges, batch["max_seqlen"] = cu_seqlens(starts[:, :-1])
            batch["cu_seqlens"] = torch.from_numpy(edges)
        return batch

    def _text(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The rows as a fresh int64 [B, S + 1]; without the extra token a pad stands for the last label."""
        expected = self.config.sequence_length + int(self.config.add_extra_token_to_sequence)
        if rows.shape[1] != expected:
            raise ValueError(
                f"samples must have {expected} tokens, got {rows.shape[1]}; dataset and collator need the same config"
            )
        text = np.empty((len(rows), self.config.sequence_length + 1), dtype=np.int64)
        text[:, :expected] = rows
        text[:, expected:] = self.config.pad_id
        return text


_CONSTANTS: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def _constants(shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss mask of ones and position ids that count: one pair per shape, until somebody has written into one of them
    (torch counts that).
    """
    pair = _CONSTANTS.get(shape)
    if pair is None or any(tensor._version > 0 for tensor in pair):
        with torch.inference_mode(False):  # a tensor born in inference mode could not be used for training later
            pair = _CONSTANTS[shape] = torch.ones(shape), torch.arange(shape[1]).repeat(shape[0], 1)
    return pair
