"""Today's Nanotron over folders of .ds files: one dataset per folder, positions per document, its collator.

A folder has several files, and a Nanoset's order speaks of files: `FolderOrder` translates. The alternative, a dataset
that looks up folder, file and sample for every index, would be a second Nanoset beside the first.

Source: nanotron.data.nanoset and nanotron.data.collator of https://github.com/huggingface/nanotron.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from nanoset_ref.collator import TensorPointer
from nanoset_ref.documents import loss_mask, position_ids, starts_after_eos
from nanoset_ref.files import PathLike
from nanoset_ref.formats.datatrove_files import datatrove_files
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Order, build_order


class FolderOrder(Order):
    """An order over folders, told as an order over their files: sample s of a folder is a sample of one of its files.

    Args:
        order: over the folders, whose lengths are the sums of `file_lengths`.
        file_lengths: per folder, the samples of each of its files.

    `counts` reads the order through, in blocks; everything else costs a binary search more than `order` does.
    """

    name = "folders"

    def __init__(self, order: Order, file_lengths: Sequence[Sequence[int]]) -> None:
        super().__init__([length for folder in file_lengths for length in folder], None, len(order), order.random_seed)
        if [sum(folder) for folder in file_lengths] != order.dataset_lengths.tolist():
            raise ValueError(f"the order has folders of {order.dataset_lengths.tolist()} samples, not {file_lengths}")
        self._order = order
        folder_of = np.repeat(np.arange(len(file_lengths)), [len(folder) for folder in file_lengths])
        self._ends = np.cumsum(self.dataset_lengths)
        self._begins = self._ends - self.dataset_lengths
        self._folder_of, self._folder_begins = folder_of, np.cumsum(order.dataset_lengths) - order.dataset_lengths
        share = order.dataset_weights / np.maximum(order.dataset_lengths, 1)
        self.dataset_weights = share[folder_of] * self.dataset_lengths

    def _identity(self) -> dict[str, object]:
        return {"order": self.name, "inner": self._order.fingerprint, "file_lengths": self.dataset_lengths.tolist()}

    def _lookup(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        folders, samples = self._order[positions]
        samples = samples + self._folder_begins[folders]
        files = np.searchsorted(self._ends, samples, side="right")
        return files, samples - self._begins[files]

    def _positions(self, dataset: int, sample: int, until: int) -> NDArray[np.int64]:
        folder = int(self._folder_of[dataset])
        return self._order.positions(folder, sample + int(self._begins[dataset] - self._folder_begins[folder]), until)

    def _counts(self, until: int) -> NDArray[np.int64]:
        blocks = (self[start : min(start + 2**20, until)][0] for start in range(0, until, 2**20))
        return sum((np.bincount(block, minlength=len(self._ends)) for block in blocks), np.zeros_like(self._ends))


class DatatroveNanoset(Nanoset):
    """A Nanoset whose datasets are folders of .ds files, with the position of every token within its document.

    Args:
        dataset_folders: the folders. dataset_weights, sequence_length, train_split_num_samples, random_seed, order: as
            in `Nanoset`, a weight per folder.
        eos_token_id: documents end with this id; None: they end where the index says.
        **files: of `datatrove_files`. Unless given, `shuffle` is True and `recursive` False: today's Nanotron shuffles
            the files of a folder, not of those below it, with datatrove's own seed, 42.

    A sample is {"input_ids": int32 [S + 1], "positions": int64 [S + 1]}. The order, the samples and the positions are
    those of the Nanoset in Nanotron's main branch, bit for bit, if `windows` is left at "disjoint".
    """

    def __init__(
        self,
        dataset_folders: Sequence[PathLike],
        dataset_weights: ArrayLike | None,
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        *,
        eos_token_id: int | None = None,
        order: str = "nanotron",
        **files: Any,
    ) -> None:
        files = {"shuffle": True, "recursive": False} | files
        folders = [datatrove_files(folder, **files) for folder in dataset_folders]
        lengths = [[file.num_samples(sequence_length) for file in folder] for folder in folders]
        totals = [sum(folder) for folder in lengths]
        inner = build_order(order, totals, dataset_weights, train_split_num_samples, random_seed)  # type: ignore[arg-type]
        super().__init__(
            [file for folder in folders for file in folder],
            None,
            sequence_length,
            train_split_num_samples,
            random_seed,
            order=FolderOrder(inner, lengths),
        )
        self.eos_token_id = eos_token_id

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> list[dict[str, NDArray[Any]]]:  # type: ignore[override]
        indices = np.asarray(positions, dtype=np.int64)
        rows = self.read(indices)
        eos = self.eos_token_id
        ids = position_ids(self.starts(indices) if eos is None else starts_after_eos(rows, eos))
        return [{"input_ids": row, "positions": of_row} for row, of_row in zip(rows, ids, strict=True)]


@dataclasses.dataclass
class DataCollatorForCLMWithPositionIds:
    """Collate samples with positions, as Nanotron's collator of that name does.

    Args:
        sequence_length, input_pp_rank, output_pp_rank, current_pp_rank: as in `DataCollatorForCLM`.
        use_doc_masking: whether documents are told apart: positions begin again with each, and the label that begins
            another one is masked. If not, positions are those in the row, and no label is masked.
        cp_size, cp_rank: number of context-parallel ranks, and this one: it gets columns
            [cp_rank * (S // cp_size), (cp_rank + 1) * (S // cp_size)) of everything but the positions.

    Called with a list of {"input_ids": [S + 1], "positions": [S + 1]}, of length B. Returns a dict of

        input_ids     int64 [B, S // cp_size]   on the input rank
        position_ids  int64 [B, S]              on the input rank
        label_ids     int64 [B, S // cp_size]   on the output rank
        label_mask    bool [B, S // cp_size]    on the output rank

    and a TensorPointer to the rank that has it for everything else.
    """

    sequence_length: int
    input_pp_rank: int
    output_pp_rank: int
    current_pp_rank: int
    use_doc_masking: bool = True
    cp_size: int = 1
    cp_rank: int = 0

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor | TensorPointer]:
        batch: dict[str, torch.Tensor | TensorPointer] = {
            "input_ids": TensorPointer(self.input_pp_rank),
            "position_ids": TensorPointer(self.input_pp_rank),
            "label_ids": TensorPointer(self.output_pp_rank),
            "label_mask": TensorPointer(self.output_pp_rank),
        }
        if self.current_pp_rank not in (self.input_pp_rank, self.output_pp_rank):
            return batch
        rows, positions = (np.stack([example[key] for example in examples]) for key in ("input_ids", "positions"))
        if rows.shape[1] != self.sequence_length + 1:
            raise ValueError(f"samples must have {self.sequence_length + 1} tokens, got {rows.shape[1]}")
        width = self.sequence_length // self.cp_size
        mine = slice(self.cp_rank * width, (self.cp_rank + 1) * width)
        rows = rows.astype(np.int64)
        if self.current_pp_rank == self.input_pp_rank:
            batch["input_ids"] = torch.from_numpy(rows[:, :-1][:, mine])
            in_row = np.broadcast_to(np.arange(self.sequence_length), rows[:, :-1].shape)
            batch["position_ids"] = torch.from_numpy(positions[:, :-1] if self.use_doc_masking else in_row.copy())
        if self.current_pp_rank == self.output_pp_rank:
            mask = loss_mask(positions == 0) if self.use_doc_masking else np.ones_like(rows[:, 1:], dtype=np.bool_)
            batch["label_ids"] = torch.from_numpy(rows[:, 1:][:, mine])
            batch["label_mask"] = torch.from_numpy(mask[:, mine])
        return batch
