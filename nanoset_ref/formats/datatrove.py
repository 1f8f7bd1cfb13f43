"""Folders of .ds files, as datatrove's DocumentTokenizer writes them and today's Nanotron reads them.

    00000.ds            raw token ids, uint16 or uint32, little endian
    00000.ds.index      uint64 [documents], where each document ends, in tokens
    00000.ds.metadata   text: "<tokenizer>|<bytes per id>", then the number of tokens

A `DatatroveFile` is `Tokens`, so a Nanoset takes the files of a folder directly, one dataset per file; a
`DatatroveNanoset` has one dataset per folder, as today's Nanotron. Both window conventions are there: "disjoint",
datatrove's and today's Nanotron's, rows of S + 1 tokens that share none; and "overlapping", this package's, rows that
share one token, so that every token is a label once. Nothing is converted or copied; datatrove itself is not needed for
reading. Cost: 8 bytes per document where positions are asked for.

Source: datatrove.utils.dataset of https://github.com/huggingface/datatrove; nanotron.data.nanoset and
nanotron.data.collator of https://github.com/huggingface/nanotron.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset

from nanoset_ref.collator import TensorPointer
from nanoset_ref.documents import loss_mask, position_ids, starts_after_eos, starts_at_boundaries
from nanoset_ref.files import PathLike
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Order, build_order
from nanoset_ref.rows import checked_number
from nanoset_ref.tokens import TokenFileError, Tokens, Windows, count_ids


class DatatroveFile(Tokens):
    """One .ds file.

    Args:
        path: the file; its .index is needed for `document_offsets` only, its .metadata for the size of an id.
        windows: "disjoint" (datatrove's) or "overlapping".
        token_size: bytes per id, 2 or 4, for a file without .metadata. With it, it must agree.

    Raises:
        FileNotFoundError: no such file.
        TokenFileError: a size of ids that is not 2 or 4; an index that does not belong to the file.
    """

    def __init__(self, path: PathLike, windows: Windows = "disjoint", token_size: int | None = None) -> None:
        self.path, self.windows = Path(path), windows
        if not self.path.is_file():
            raise FileNotFoundError(f"no .ds file at {self.path}; datatrove's DocumentTokenizer writes them")
        size, tokenizer = str(token_size or 2), ""
        metadata = Path(f"{self.path}.metadata")
        if metadata.is_file():
            tokenizer, _, size = metadata.read_text(encoding="utf-8").partition("\n")[0].rpartition("|")
        self._tokenizer = "" if tokenizer.lower() in ("unknown", "unknown tokenizer") else tokenizer
        if size not in ("2", "4"):
            raise TokenFileError(
                f"an id takes 2 or 4 bytes; {metadata} must begin with <tokenizer>|2 or |4, got {size!r}"
            )
        if token_size not in (None, int(size)):
            raise TokenFileError(f"{self.path}: token_size={token_size} contradicts {metadata.name}, which says {size}")
        self.dtype = np.dtype("<i4" if size == "4" else "<u2")
        # datatrove itself writes empty files, and counts no samples in them
        self.num_tokens = count_ids(self.path, self.dtype) if self.path.stat().st_size else 0

    @property
    def facts(self) -> dict[str, Any]:
        return {"tokenizer": self._tokenizer} if self._tokenizer else {}

    @cached_property
    def document_offsets(self) -> NDArray[np.int64] | None:
        """int64 [documents + 1], from the index; None without one."""
        if not Path(f"{self.path}.index").is_file():
            return None
        ends = np.fromfile(f"{self.path}.index", dtype="<u8").astype(np.int64)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        if offsets[-1] != self.num_tokens or (np.diff(offsets) < 0).any():
            raise TokenFileError(f"{self.path}.index does not end with the {self.num_tokens} tokens of its file")
        return offsets

    def num_samples(self, sequence_length: int) -> int:
        """Samples of sequence_length + 1 tokens; 0 for a file shorter than one (a folder may have such a file)."""
        return 0 if self.num_tokens <= sequence_length else super().num_samples(sequence_length)

    def __reduce__(self) -> tuple[Any, ...]:
        return DatatroveFile, (self.path, self.windows, self.dtype.itemsize)


def datatrove_files(
    folder: PathLike,
    *,
    windows: Windows = "disjoint",
    filename_pattern: str = "*.ds",
    recursive: bool = True,
    shuffle: bool = False,
    seed: int = 42,
    token_size: int | None = None,
) -> list[DatatroveFile]:
    """The .ds files of a folder in sorted order, or shuffled as datatrove shuffles them.

    Raises:
        FileNotFoundError: no file matches.
    """
    paths = sorted((Path(folder).rglob if recursive else Path(folder).glob)(filename_pattern), key=str)
    if not paths:
        raise FileNotFoundError(
            f"{folder} holds no file {filename_pattern!r}; datatrove's DocumentTokenizer writes them"
        )
    order = np.random.default_rng(seed).permutation(len(paths)) if shuffle else range(len(paths))
    return [DatatroveFile(paths[i], windows, token_size) for i in order]


class DatatroveFolder(Dataset[dict[str, NDArray[np.int64]]]):
    """The samples of a folder one after the other, as datatrove's DatatroveFolderDataset gives them.

    Args:
        data_folder: the folder. seq_len: S, in tokens; a sample is S + 1 ids.
        return_positions: whether a sample has "positions" too: 0, 1, 2, ... from the beginning of each document.
        positions_from_eos_token_id: documents end with this id; None: they end where the index says.
        **files: of `datatrove_files`.

    A sample is {"input_ids": int64 [S + 1], "positions": int64 [S + 1]}, read at any index in any order at the same
    cost. An index outside [0, len) is an IndexError; datatrove's own error for a negative one is an OSError.
    """

    def __init__(
        self,
        data_folder: PathLike,
        seq_len: int,
        *,
        return_positions: bool = False,
        positions_from_eos_token_id: int | None = None,
        **files: Any,
    ) -> None:
        self.files = datatrove_files(data_folder, **files)
        self.seq_len, self.return_positions = seq_len, return_positions
        self.positions_from_eos_token_id = positions_from_eos_token_id
        self.file_lens = [file.num_samples(seq_len) for file in self.files]
        self._ends = np.cumsum(self.file_lens)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, item: int) -> dict[str, NDArray[np.int64]]:
        checked_number(item, len(self), "sample")
        which = int(np.searchsorted(self._ends, item, side="right"))
        file, eos = self.files[which], self.positions_from_eos_token_id
        begin = (item - int(self._ends[which]) + self.file_lens[which]) * file.stride(self.seq_len)
        row = file.tokens[begin : begin + self.seq_len + 1].astype(np.int64)
        if not self.return_positions:
            return {"input_ids": row}
        if eos is None:
            starts = starts_at_boundaries(file.known_documents(), np.array([begin]), len(row))
        else:
            starts = starts_after_eos(row[None], eos)
        return {"input_ids": row, "positions": position_ids(starts)[0]}


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
        self._order = order
        self._folder_of = np.repeat(np.arange(len(file_lengths)), [len(folder) for folder in file_lengths])
        self._begins = np.cumsum(self.dataset_lengths) - self.dataset_lengths
        self._folder_begins = np.cumsum(order.dataset_lengths) - order.dataset_lengths
        share = order.dataset_weights / np.maximum(order.dataset_lengths, 1)
        self.dataset_weights = share[self._folder_of] * self.dataset_lengths

    def _identity(self) -> dict[str, object]:
        return {"order": self.name, "inner": self._order.fingerprint, "file_lengths": self.dataset_lengths.tolist()}

    def lookup(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        folders, samples = self._order[positions]
        samples = samples + self._folder_begins[folders]
        files = np.searchsorted(self._begins, samples, side="right") - 1
        return files, samples - self._begins[files]

    def _positions(self, dataset: int, sample: int, until: int) -> NDArray[np.int64]:
        folder = int(self._folder_of[dataset])
        return self._order.positions(folder, sample + int(self._begins[dataset] - self._folder_begins[folder]), until)

    def _counts(self, until: int) -> NDArray[np.int64]:
        counts = np.zeros_like(self._begins)
        for start in range(0, until, 2**20):
            counts += np.bincount(self[start : min(start + 2**20, until)][0], minlength=len(counts))
        return counts


class DatatroveNanoset(Nanoset):
    """A Nanoset whose datasets are folders of .ds files, with the position of every token within its document.

    Args:
        dataset_folders: the folders (or one). dataset_weights, sequence_length, train_split_num_samples, random_seed,
            order: as in `Nanoset`, a weight per folder.
        eos_token_id: documents end with this id; None: they end where the index says.
        **files: of `datatrove_files`. Unless given, `shuffle` is True and `recursive` False: today's Nanotron shuffles
            the files of a folder, not of those below it, with datatrove's own seed, 42.

    A sample is {"input_ids": int32 [S + 1], "positions": int64 [S + 1]}. The order, the samples and the positions are
    those of the Nanoset in Nanotron's main branch, bit for bit, if `windows` is left at "disjoint".
    """

    def __init__(
        self,
        dataset_folders: PathLike | Sequence[PathLike],
        dataset_weights: ArrayLike | None,
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        *,
        eos_token_id: int | None = None,
        order: str = "nanotron",
        **files: Any,
    ) -> None:
        if isinstance(dataset_folders, (str, os.PathLike)):
            dataset_folders = [dataset_folders]
        folders = [datatrove_files(it, **{"shuffle": True, "recursive": False} | files) for it in dataset_folders]
        lengths = [[file.num_samples(sequence_length) for file in folder] for folder in folders]
        totals = [sum(folder) for folder in lengths]
        inner = build_order(order, totals, dataset_weights, train_split_num_samples, random_seed)  # type: ignore[arg-type]
        every = [file for folder in folders for file in folder]
        outer = FolderOrder(inner, lengths)
        super().__init__(every, None, sequence_length, train_split_num_samples, random_seed, order=outer)
        self.eos_token_id = eos_token_id

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> list[dict[str, NDArray[Any]]]:  # type: ignore[override]
        indices = np.asarray(positions, dtype=np.int64)
        rows, eos = self.read(indices), self.eos_token_id
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
        feeds, judges = self.input_pp_rank, self.output_pp_rank
        home = {"input_ids": feeds, "position_ids": feeds, "label_ids": judges, "label_mask": judges}
        batch: dict[str, torch.Tensor | TensorPointer] = {name: TensorPointer(rank) for name, rank in home.items()}
        if self.current_pp_rank not in (feeds, judges):
            return batch
        rows, positions = (np.stack([example[key] for example in examples]) for key in ("input_ids", "positions"))
        if rows.shape[1] != self.sequence_length + 1:
            raise ValueError(f"samples must have {self.sequence_length + 1} tokens, got {rows.shape[1]}")
        if not self.use_doc_masking:
            positions = np.tile(np.arange(rows.shape[1]), (len(rows), 1))
        width = self.sequence_length // self.cp_size
        mine = slice(self.cp_rank * width, (self.cp_rank + 1) * width)
        rows = rows.astype(np.int64)
        fields = {
            "input_ids": rows[:, :-1][:, mine],
            "position_ids": positions[:, :-1],
            "label_ids": rows[:, 1:][:, mine],
            "label_mask": loss_mask(positions == 0)[:, mine],
        }
        here = {name for name in home if home[name] == self.current_pp_rank}
        return batch | {name: torch.from_numpy(fields[name]) for name in here}
