"""Folders of .ds files as datasets, in the order and batches of Nanotron's Nanosets.

Nanotron's trainer read them until April 2025 (from 2e36d6f to pull request 341). Its main branch
(2411b022, April 2026) has the class, and no longer calls it.

A `DatatroveNanoset` has one dataset per folder. Its rows of S + 1 tokens are "disjoint", as in
datatrove and in Nanotron's Nanoset, or "overlapping", as elsewhere in this package: they share one
token, so that every token is a label once.

Source: nanotron.data.nanoset and nanotron.data.collator of https://github.com/huggingface/nanotron.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.collator import Batch, DataCollatorForCLM, RowBlock, TensorPointer
from nanoset_ref.load.document_masks import (
    DocumentOptions,
    flag_problems,
    starts_after_eos,
)
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Starts
from nanoset_ref.load.weighted_paths import separate_weights
from nanoset_ref.orders import NanotronOrder
from nanoset_ref.orders.base import Weights
from nanoset_ref.orders.folders import FolderOrder
from nanoset_ref.tokens import Windows, datatrove_files

logger = logging.getLogger(__name__)
WITHIN_DOCUMENTS = DocumentOptions(reset_position_ids=True, eod_mask_loss=True)


class DatatroveNanoset(Nanoset):
    """A Nanoset whose datasets are folders of .ds files.

    Args:
        dataset_folders: the folders (or one), or {folder: weight}.
        dataset_weights, sequence_length, train_split_num_samples, random_seed: as in `Nanoset`;
            weights are per folder.
        eos_token_id: the id at the end of each document; by default the index has their ends.
        windows: "disjoint" (Nanotron's) or "overlapping".

    The order, the samples and the positions of tokens within documents
    (`document_masks.position_ids`) are those of the Nanoset of 2411b022 (April 2026), bit for
    bit. As there, the files of a folder are shuffled with datatrove's own seed, 42, and files in
    subfolders are left out.
    """

    def __init__(
        self,
        dataset_folders: PathLike | Sequence[PathLike] | Mapping[str, float],
        dataset_weights: Weights | None,
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        *,
        eos_token_id: int | None = None,
        windows: Windows = "disjoint",
    ) -> None:
        dataset_folders, dataset_weights = separate_weights(
            dataset_folders, dataset_weights
        )
        files = []
        file_lengths = []
        for path in as_list(dataset_folders):
            folder = datatrove_files(
                path, windows=windows, recursive=False, shuffle=True
            )
            files += folder
            file_lengths.append([file.num_samples(sequence_length) for file in folder])
        folder_lengths = [sum(lengths) for lengths in file_lengths]
        order = NanotronOrder(
            folder_lengths, dataset_weights, train_split_num_samples, random_seed
        )
        super().__init__(
            files,
            None,
            sequence_length,
            train_split_num_samples,
            random_seed,
            order=FolderOrder(order, file_lengths),
        )
        if eos_token_id is not None:
            eos_token_id = whole_number(eos_token_id, "eos_token_id", 0)
        self.eos_token_id = eos_token_id

    def _starts(self, positions: Int64Array) -> Starts:
        """See `Rows._starts`: after each EOS id, or else by the indexes of the files."""
        if self.eos_token_id is None:
            return super()._starts(positions)
        return starts_after_eos(self.read(positions), self.eos_token_id)


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
