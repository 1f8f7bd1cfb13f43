"""Rows with positions within documents, cut for context-parallel ranks: Nanotron's collator.

Source: nanotron.data.collator of https://github.com/huggingface/nanotron (2411b022, April 2026).
"""

import dataclasses
import logging
from collections.abc import Iterable

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.load.collator import Batch, DataCollatorForCLM, RowBlock, TensorPointer
from nanoset_ref.load.document_masks import DocumentOptions, flag_problems

logger = logging.getLogger(__name__)
WITHIN_DOCUMENTS = DocumentOptions(reset_position_ids=True, eod_mask_loss=True)


@dataclasses.dataclass
class DataCollatorForCLMWithPositionIds(DataCollatorForCLM):
    """Collate rows with positions, as Nanotron's collator of that name does.

    Args:
        sequence_length, input_pp_rank, output_pp_rank, current_pp_rank: as in `DataCollatorForCLM`.
        documents: the fields about documents to add; Nanotron's are the default, also for None.
        use_doc_masking: whether positions begin again with each document and labels that begin
            another document are masked. If not, positions count through the row, and no label is
            masked.
        cp_size, cp_rank: number of context-parallel ranks, and this one. A rank gets columns
            cp_rank * (S // cp_size) to (cp_rank + 1) * (S // cp_size) of all fields but positions.

    Returns a dict of

        input_ids     int64 [B, S // cp_size]   on the input rank
        position_ids  int64 [B, S]              on the input rank
        label_ids     int64 [B, S // cp_size]   on the output rank
        label_mask    bool [B, S // cp_size]    on the output rank

    and, on all other ranks, a TensorPointer to the rank that holds the field.

    Raises:
        ValueError: as `DataCollatorForCLM`; use_doc_masking is neither True nor False; cp_size is
            not in 1 .. S, or cp_rank not in 0 .. cp_size - 1; cp_size is above 1 with
            attention_mask or cu_seqlens, which cannot be cut into columns.

    Warns (by logging): cp_size does not divide S, so columns are lost.
    """

    documents: DocumentOptions | None = WITHIN_DOCUMENTS
    use_doc_masking: bool = True
    cp_size: int = 1
    cp_rank: int = 0

    def __post_init__(self) -> None:
        for problem in flag_problems(self):
            raise ValueError(problem)
        if self.documents is None:
            self.documents = WITHIN_DOCUMENTS
        super().__post_init__()
        self.needs_starts &= self.use_doc_masking
        self.masks_padding &= self.use_doc_masking
        whole_number(self.cp_size, "cp_size", 1)
        whole_number(self.cp_rank, "cp_rank", 0)
        if self.cp_size > self.sequence_length:
            rule = f"cp_size must lie in 1 .. sequence_length = {self.sequence_length}"
            raise ValueError(
                f"{rule}, so that every rank has at least one column; got {self.cp_size}"
            )
        if self.cp_rank >= self.cp_size:
            raise ValueError(
                f"cp_rank must lie in 0 .. cp_size - 1 = {self.cp_size - 1}, got {self.cp_rank}"
            )
        whole_rows = {"attention_mask", "cu_seqlens"} & set(self.documents.field_names)
        if self.cp_size > 1 and whole_rows:
            raise ValueError(
                f"{' and '.join(sorted(whole_rows))} cannot be cut for cp_size={self.cp_size} "
                "ranks: leave them out, as Nanotron does, and mask by position_ids"
            )
        lost = self.sequence_length % self.cp_size
        if lost:
            logger.warning(
                "sequence_length=%d is not a multiple of cp_size=%d: the last %d columns of "
                "every row reach no rank, as in Nanotron; use another sequence_length",
                self.sequence_length,
                self.cp_size,
                lost,
            )
        del self._pointers["input_mask"]

    def split(self, block: RowBlock) -> Iterable[Batch]:
        """See `Collator.split`."""
        starts = block.starts
        if not self.use_doc_masking:
            starts = np.zeros(block.rows.shape, dtype=np.bool_)
            starts[:, 0] = True
        block = block._replace(rows=block.rows.long(), starts=starts)
        width = self.sequence_length // self.cp_size
        first = self.cp_rank * width
        for batch in super().split(block):
            batch.pop("input_mask", None)
            for name in ("input_ids", "label_ids", "label_mask"):
                if not isinstance(batch[name], TensorPointer):
                    batch[name] = batch[name][:, first : first + width]
            yield batch
