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
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nanoset_ref.documents import attention_mask, cu_seqlens, loss_mask, position_ids, starts_after_eos
from nanoset_ref.megatron.config import NanosetConfig
from nanoset_ref.nanoset import SampleBlock


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

    Raises:
        ValueError: no samples, or samples of another length.
    """

    config: NanosetConfig

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        config = self.config
        text = self._text(examples)
        whole = np.zeros(text.shape, dtype=np.bool_)
        whole[:, 0] = True  # every row one document
        starts = whole if config.eod_id is None else starts_after_eos(text, config.eod_id)

        kept = text[:, 1:] != config.pad_id
        if config.eod_mask_loss:
            kept &= loss_mask(starts)
        np.putmask(text, text == config.pad_id, 0)
        tokens = torch.from_numpy(text)
        batch: dict[str, Any] = {
            "tokens": tokens[:, :-1],
            "labels": tokens[:, 1:],
            "loss_mask": torch.from_numpy(kept.astype(np.float32)),
            "position_ids": torch.from_numpy(
                position_ids(starts[:, :-1] if config.reset_position_ids else whole[:, :-1])
            ),
        }
        if config.create_attention_mask:
            mask = attention_mask(starts[:, :-1] if config.reset_attention_mask else whole[:, :-1])
            batch["attention_mask"] = torch.from_numpy(mask)
        if config.create_cu_seqlens:
            edges, batch["max_seqlen"] = cu_seqlens(starts[:, :-1])
            batch["cu_seqlens"] = torch.from_numpy(edges)
        return batch

    def _text(self, examples: Sequence[dict[str, Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The samples as a fresh int64 [B, S + 1]; without the extra token a pad stands for the last label."""
        config = self.config
        if len(examples) == 0:
            raise ValueError("a batch holds at least one sample, got none")
        rows = (
            examples.rows
            if isinstance(examples, SampleBlock)
            else np.stack([example["input_ids"] for example in examples])
        )
        expected = config.sequence_length + int(config.add_extra_token_to_sequence)
        if rows.shape[1] != expected:
            raise ValueError(
                f"samples must have {expected} tokens, got {rows.shape[1]}; dataset and collator need the same config"
            )
        text = np.empty((len(rows), config.sequence_length + 1), dtype=np.int64)
        text[:, :expected] = rows
        text[:, expected:] = config.pad_id
        return text
