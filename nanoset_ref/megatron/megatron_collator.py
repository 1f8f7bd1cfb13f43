"""Collate samples into the batches of Megatron-LM's training loop.

A batch has tokens, labels, loss mask and position ids, and on request masks by document. Upstream
computes these fields in the dataset, sample by sample, and stacks them. Here
`nanoset_ref.load.document_masks` computes them for a whole batch, so one dataset serves models with
any of the flags.

As in Megatron-LM, padding and the EOD are found by their ids. A real token with the pad_id gets no
loss and becomes 0, so choose an id that does not occur in documents; rows of a PackedNanoset whose
documents begin or end with it are refused. One defect of Megatron-LM is not reproduced: if no flag
about documents is set, all samples of a process get the loss mask of the first sample that the
process reads, padding included.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from nanoset_ref.load.collator import Batch, Collator, RowBlock, as_tensors
from nanoset_ref.load.document_masks import attention_mask
from nanoset_ref.megatron.nanoset_config import NanosetConfig


@dataclasses.dataclass
class MegatronCollator(Collator):
    """Collate samples like torch's default collation of Megatron-Core's GPTDataset items.

    Args:
        config: the fields sequence_length, eos_token_id, pad_id, reset_position_ids,
            reset_attention_mask, eod_mask_loss, create_attention_mask and create_cu_seqlens are
            used. Rows that end in padding need the pad_id that they have.

    Called with B samples {"input_ids": [row_length]} (or a SampleBlock), it returns a dict of

        tokens, labels   int64 [B, S]; the labels are the next tokens
        loss_mask        float32 [B, S], 0: the label is padding, or (eod_mask_loss) the token EOD
        position_ids     int64 [B, S]
        attention_mask   bool [B, 1, S, S], True = masked, with create_attention_mask
        cu_seqlens       int32 [documents + 1] over the B*S tokens, with create_cu_seqlens
        max_seqlen       an int, with create_cu_seqlens

    The receiver may write to every field.

    Raises:
        ValueError: see `Collator`.
    """

    config: NanosetConfig

    def __post_init__(self) -> None:
        config = self.config
        self.row_length = config.row_length
        self.pad_id = config.pad_id
        masks_documents = config.create_attention_mask and config.reset_attention_mask
        self._positions = np.arange(config.sequence_length)
        self.documents = dataclasses.replace(
            config, reset_attention_mask=masks_documents
        )

    def split(self, block: RowBlock) -> Iterable[Batch]:
        """See `Collator.split`; documents end with their EOD. Every batch has new arrays."""
        config = self.config
        ids = block.rows.numpy()
        for first in range(0, len(ids), block.batch_size):
            part = ids[first : first + block.batch_size]
            # 1. int64 [B, S + 1]; without the extra token the last label is padding
            tokens = np.empty((len(part), config.sequence_length + 1), dtype=np.int64)
            tokens[:, -1] = config.pad_id
            tokens[:, : config.row_length] = part
            # 2. documents, padding, and the labels with a loss
            fields = self.documents.fields(tokens) if self.documents.field_names else {}
            padded = tokens == config.pad_id
            counted = ~padded[:, 1:]
            if config.eod_mask_loss:
                counted &= fields.pop("label_mask")
            if padded.any():
                np.putmask(tokens, padded, 0)
            # 3. the fields of every Megatron batch
            batch = {
                "tokens": tokens[:, :-1].copy(),
                "labels": tokens[:, 1:],
                "loss_mask": counted.astype(np.float32),
                "position_ids": np.tile(self._positions, (len(part), 1)),
            }
            if config.create_attention_mask and not config.reset_attention_mask:
                batch["attention_mask"] = attention_mask(np.zeros_like(counted))
            yield as_tensors(batch | fields)
