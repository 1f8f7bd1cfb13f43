"""Folders of .ds files, as datatrove's DocumentTokenizer writes them, read as they are.

    00000.ds            raw token ids, uint16 or uint32, little endian
    00000.ds.index      uint64 [documents], where each document ends, in tokens
    00000.ds.metadata   text: "<tokenizer>|<bytes per id>", then the number of tokens

A .ds file is a token file under another name: `DatatroveFile` is a `TokenFile`, so a Nanoset takes the files of a
folder directly, one dataset per file; `datatrove.nanoset` has one dataset per folder, as today's Nanotron. Both window
conventions are there: "disjoint", datatrove's and today's Nanotron's, rows of S + 1 tokens that share none; and
"overlapping", this package's, rows that share one token, so that every token is a label once. Nothing is converted or
copied; datatrove itself is not needed for reading. Cost: 8 bytes per document where positions are asked for.

Source: datatrove.utils.dataset of https://github.com/huggingface/datatrove.
"""

from __future__ import annotations

import operator
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from nanoset_ref.documents import position_ids, starts_after_eos, starts_at_boundaries
from nanoset_ref.files import PathLike
from nanoset_ref.tokens import TokenFileError, Tokens, Windows, count_ids


class DatatroveFile(Tokens):
    """One .ds file.

    Args:
        path: the file; its .index is needed for `document_offsets` only, its .metadata for the size of an id.
        windows: "disjoint" (datatrove's) or "overlapping".
        token_size: bytes per id, 2 or 4, for a file without .metadata. With it, it must agree.

    Attributes (beside those of `Tokens`):
        tokenizer: what .metadata names, or None.

    Raises:
        TokenFileError: as `TokenFile`, and for an index that does not belong to the file.
    """

    def __init__(self, path: PathLike, windows: Windows = "disjoint", token_size: int | None = None) -> None:
        self.tokenizer: str | None = None
        metadata = Path(f"{os.fspath(path)}.metadata")
        if metadata.is_file():
            tokenizer, _, size = metadata.read_text(encoding="utf-8").partition("\n")[0].rpartition("|")
            if tokenizer.lower() not in ("", "unknown", "unknown tokenizer"):
                self.tokenizer = tokenizer
            if size not in ("2", "4"):
                raise TokenFileError(f"{metadata} must begin with <tokenizer>|<bytes per id, 2 or 4>, got {size!r}")
            stated = int(size)
            if token_size not in (None, stated):
                raise TokenFileError(
                    f"{path}: token_size={token_size} contradicts {metadata.name}, which says {stated}"
                )
            token_size = stated
        if token_size not in (None, 2, 4):
            raise TokenFileError(f"{path}: an id takes 2 or 4 bytes, got {token_size}")
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"no .ds file at {self.path}; datatrove's DocumentTokenizer writes them")
        self.dtype = np.dtype("<i4" if token_size == 4 else "<u2")
        # datatrove itself writes empty files, and counts no samples in them
        self.num_tokens = count_ids(self.path, self.dtype) if self.path.stat().st_size else 0
        self.windows = windows

    @property
    def facts(self) -> dict[str, Any]:
        return {} if self.tokenizer is None else {"tokenizer": self.tokenizer}

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
        self.seq_len = seq_len
        self.files = datatrove_files(data_folder, **files)
        self.return_positions = return_positions
        self.positions_from_eos_token_id = positions_from_eos_token_id
        self.file_lens = [file.num_samples(seq_len) for file in self.files]
        self._ends = np.cumsum(self.file_lens)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, item: int) -> dict[str, NDArray[np.int64]]:
        item = operator.index(item)
        if not 0 <= item < len(self):
            raise IndexError(f"index {item} is outside a folder of {len(self)} samples")
        which = int(np.searchsorted(self._ends, item, side="right"))
        file = self.files[which]
        begin = (item - int(self._ends[which]) + self.file_lens[which]) * file.stride(self.seq_len)
        row = file.tokens[begin : begin + self.seq_len + 1].astype(np.int64)
        if not self.return_positions:
            return {"input_ids": row}
        if self.positions_from_eos_token_id is not None:
            starts = starts_after_eos(row[None], self.positions_from_eos_token_id)
        else:
            starts = starts_at_boundaries(file.known_documents(), np.array([begin]), len(row))
        return {"input_ids": row, "positions": position_ids(starts)[0]}
