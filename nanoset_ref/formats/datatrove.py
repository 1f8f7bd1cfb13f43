"""Folders of .ds files, as datatrove's DocumentTokenizer writes them and today's Nanotron reads them.

    00000.ds            raw token ids, uint16 or uint32, little endian
    00000.ds.index      uint64 [documents], where each document ends, in tokens
    00000.ds.metadata   text: "<tokenizer>|<bytes per id>", the number of tokens, and the same for people to read;
                        in files of this package also a seal, the checksum of these lines and of the other two files

A `DatatroveFile` is `Tokens`, so a Nanoset takes the files of a folder (`datatrove_files`) directly, one dataset per
file: its samples are those of datatrove's DatatroveFolderDataset. A `DatatroveNanoset` has one dataset per folder, as
today's Nanotron. Both window conventions are there: "disjoint", datatrove's and today's Nanotron's, rows of S + 1
tokens that share none; and "overlapping", this package's, rows that share one token, so that every token is a label
once. Nothing is converted or copied; datatrove itself is not needed for
reading. Cost: 8 bytes per document where positions are asked for.

Source: datatrove.utils.dataset of https://github.com/huggingface/datatrove; nanotron.data.nanoset and
nanotron.data.collator of https://github.com/huggingface/nanotron.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike

from nanoset_ref.collator import Batch, Copy, DataCollatorForCLM, TensorPointer
from nanoset_ref.documents import DocumentOptions, Starts, starts_after_eos
from nanoset_ref.files import PathLike, listed, seal
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import NanotronOrder
from nanoset_ref.orders.base import Int64Array, NumberedOrder, Weights
from nanoset_ref.tokens import TokenFileError, TokenFileWriter, Tokens, Windows

WITHIN_DOCUMENTS = DocumentOptions(reset_position_ids=True, eod_mask_loss=True)


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
        if not Path(path).is_file():
            raise FileNotFoundError(f"no .ds file at {path}; datatrove's DocumentTokenizer writes them")
        self.index, self.metadata = index_and_metadata(path)
        super().__init__(path, self.index, self.metadata)
        self.windows = windows
        found = self.metadata.is_file()
        self._said = self.metadata.read_bytes().decode(errors="replace") if found else f"|{token_size or 2}"
        tokenizer, _, size = self._said.partition("\n")[0].rpartition("|")
        if size not in ("2", "4") or token_size not in (None, int(size)):
            begins = f"{self.metadata} must begin with <tokenizer>|<2 or 4, bytes of an id>, got {size!r}"
            raise TokenFileError(f"{begins}, where token_size={token_size}")
        self._tokenizer = "" if tokenizer.lower() in ("unknown", "unknown tokenizer") else tokenizer
        self.dtype = np.dtype("<i4" if size == "4" else "<u2")
        # datatrove itself writes empty files, and counts no samples in them
        self.num_tokens = self.count_ids() if self.path.stat().st_size else 0

    @property
    def facts(self) -> dict[str, Any]:
        return {"tokenizer": self._tokenizer} if self._tokenizer else {}

    @cached_property
    def document_offsets(self) -> Int64Array | None:
        """int64 [documents + 1], from the index; None without one."""
        if not self.index.is_file():
            return None
        self.check_unchanged()
        offsets = np.append(0, np.fromfile(self.index, dtype="<i8"))
        if self.index.stat().st_size % 8 or offsets[-1] != self.num_tokens or (np.diff(offsets) < 0).any():
            raise TokenFileError(f"{self.index} does not end with the {self.num_tokens} tokens of its file")
        return offsets

    def check_content(self) -> bool:
        """Compare the set with the seal that `convert` adds to its .metadata, behind what datatrove writes there."""
        text, _, found = self._said.rpartition("\n")
        if self._said.count("\n") < 3 and "xxh3_128:" not in self._said:
            return False
        self.known_documents()
        if found != seal(text, self.path, self.index):
            raise TokenFileError(f"{self.path}, its index or its metadata has changed since they were written")
        return True

    def num_samples(self, sequence_length: int, disjoint: bool = False) -> int:
        """Samples of sequence_length + 1 tokens; 0 for a file shorter than one (a folder may have such a file)."""
        return 0 if self.num_tokens <= sequence_length else super().num_samples(sequence_length, disjoint)


class DatatroveWriter(TokenFileWriter):
    """Write a .ds file with its index and metadata, as TokenFileWriter writes a token file; ids of 2 or 4 bytes."""

    def __init__(self, path: PathLike, *, dtype: DTypeLike, **options: Any) -> None:
        dtype = "int32" if np.dtype(dtype) == np.uint32 else dtype  # the same bytes, as ids lie below 2**31
        super().__init__(path, dtype=dtype, **options)

    def _beside(self) -> Sequence[Path]:
        return index_and_metadata(self.path)

    def _begin(self) -> None:
        """The index has no header, and no 0."""

    def _end(self) -> bytes:
        tokenizer = self._description.get("tokenizer") or "unknown"
        text = f"{tokenizer}|{self.dtype.itemsize}\n{self.num_tokens}\n{short(self.num_tokens)}"
        self._ids.flush()
        self._offsets.flush()
        return f"{text}\n{seal(text, self._ids.name, self._offsets.name)}".encode()


def short(count: float) -> str:
    """2338 -> "2.34 kT": three significant digits, as datatrove writes them."""
    thousands = (len(str(int(count))) - 1) // 3
    count /= 1000**thousands
    return f"{count:.{2 if count < 10 else 1 if count < 100 else 0}f} {' kMGT'[thousands].strip()}T"


def index_and_metadata(path: PathLike) -> tuple[Path, Path]:
    """What belongs to a .ds file: a.ds.index and a.ds.metadata."""
    return Path(f"{path}.index"), Path(f"{path}.metadata")


def datatrove_files(
    folder: PathLike,
    *,
    windows: Windows = "disjoint",
    recursive: bool = True,
    shuffle: bool = False,
    seed: int = 42,
) -> list[DatatroveFile]:
    """The .ds files of a folder in sorted order, or shuffled as datatrove shuffles them.

    Raises:
        FileNotFoundError: no file matches.
    """
    paths = sorted(Path(folder).glob("**/*.ds" if recursive else "*.ds"), key=str)
    if not paths:
        raise FileNotFoundError(f"{folder} holds no file '*.ds', as datatrove writes them")
    order = np.random.default_rng(seed).permutation(len(paths)) if shuffle else range(len(paths))
    return [DatatroveFile(paths[i], windows) for i in order]


class FolderOrder(NumberedOrder):
    """Nanotron's order over folders as one over their files: laid end to end, both have the same instances.

    Args:
        folders: the order over folders, whose lengths are the sums of `file_lengths`.
        file_lengths: per folder, the samples of each of its files.
    """

    name = "folders"
    repeats = True

    def __init__(self, folders: NanotronOrder, file_lengths: Sequence[Sequence[int]]) -> None:
        self.folders, self.numbers = folders, folders.numbers
        shares = folders.dataset_weights / np.maximum(folders.dataset_lengths, 1)
        lengths = [length for folder in file_lengths for length in folder]
        weights = np.repeat(shares, [len(folder) for folder in file_lengths]) * lengths
        super().__init__(lengths, weights, len(folders), folders.random_seed)

    def _identity(self) -> dict[str, object]:
        return {"order": self.name, "inner": self.folders.fingerprint, "file_lengths": self.dataset_lengths.tolist()}


class DatatroveNanoset(Nanoset):
    """A Nanoset whose datasets are folders of .ds files.

    Args:
        dataset_folders: the folders (or one). dataset_weights, sequence_length, train_split_num_samples, random_seed:
            as in `Nanoset`, a weight per folder.
        eos_token_id: documents end with this id; None: they end where the index says.
        windows: "disjoint" (Nanotron's) or "overlapping".

    The order, the samples and the positions of tokens within documents (`position_ids` of `starts`) are those of the
    Nanoset in Nanotron's main branch, bit for bit: it shuffles the files of a folder, not of those below it, with
    datatrove's own seed, 42.
    """

    def __init__(
        self,
        dataset_folders: PathLike | Sequence[PathLike],
        dataset_weights: Weights | None,
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        *,
        eos_token_id: int | None = None,
        windows: Windows = "disjoint",
    ) -> None:
        folders = [
            datatrove_files(folder, windows=windows, recursive=False, shuffle=True)
            for folder in listed(dataset_folders)
        ]
        lengths = [[file.num_samples(sequence_length) for file in folder] for folder in folders]
        order = NanotronOrder([*map(sum, lengths)], dataset_weights, train_split_num_samples, random_seed)
        super().__init__(
            [file for folder in folders for file in folder],
            None,
            sequence_length,
            train_split_num_samples,
            random_seed,
            order=FolderOrder(order, lengths),
        )
        self.eos_token_id = eos_token_id

    def _starts(self, positions: Int64Array) -> Starts:
        if self.eos_token_id is None:
            return super()._starts(positions)
        return starts_after_eos(self.read(positions), self.eos_token_id)


@dataclasses.dataclass
class DataCollatorForCLMWithPositionIds(DataCollatorForCLM):
    """Collate rows with positions, as Nanotron's collator of that name does.

    Args:
        sequence_length, input_pp_rank, output_pp_rank, current_pp_rank: as in `DataCollatorForCLM`.
        use_doc_masking: whether documents are told apart: positions begin again with each, and the label that begins
            another one is masked. If not, positions are those in the row, and no label is masked.
        cp_size, cp_rank: number of context-parallel ranks, and this one: it gets columns
            [cp_rank * (S // cp_size), (cp_rank + 1) * (S // cp_size)) of everything but the positions.

    Returns a dict of

        input_ids     int64 [B, S // cp_size]   on the input rank
        position_ids  int64 [B, S]              on the input rank
        label_ids     int64 [B, S // cp_size]   on the output rank
        label_mask    bool [B, S // cp_size]    on the output rank

    and a TensorPointer to the rank that has it for everything else.
    """

    documents: DocumentOptions = WITHIN_DOCUMENTS
    use_doc_masking: bool = True
    cp_size: int = 1
    cp_rank: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        del self._pointers["input_mask"]

    def split(
        self,
        rows: torch.Tensor,
        batch_size: int,
        starts: Starts | None = None,
        copy: Copy = torch.clone,
    ) -> Iterator[Batch]:
        """As `Collator.split`."""
        if not self.use_doc_masking:
            starts = np.indices(rows.shape)[1] == 0
        width = self.sequence_length // self.cp_size
        for batch in super().split(rows.long(), batch_size, starts, copy):
            batch.pop("input_mask", None)
            for name in batch.keys() - {"position_ids"}:
                if not isinstance(batch[name], TensorPointer):
                    batch[name] = batch[name][:, self.cp_rank * width : (self.cp_rank + 1) * width]
            yield batch
