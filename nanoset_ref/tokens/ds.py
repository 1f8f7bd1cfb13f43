"""The .ds files of datatrove's DocumentTokenizer, one by one or a folder of them.

    00000.ds            raw token ids, uint16 or uint32, little endian
    00000.ds.index      uint64 [documents], where each document ends, in tokens
    00000.ds.metadata   text: "<tokenizer>|<bytes per id>", the number of tokens, and that number
                        for humans;
                        in files of this package also the checksum of these lines and of the
                        other two files

A `DatatroveFile` is `Tokens`, so a Nanoset takes the files of a folder (`datatrove_files`)
directly, one dataset per file: its samples are those of datatrove's DatatroveFolderDataset. Nothing
is converted or copied, and reading does not need datatrove. Cost: 8 bytes per document if
boundaries are used.

Source: datatrove.utils.dataset of https://github.com/huggingface/datatrove.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.io.overwriting import refuse_foreign
from nanoset_ref.io.paths import PathLike, as_path, checksum_of_set, read_in_blocks
from nanoset_ref.io.types import Int64Array
from nanoset_ref.io.urls import local_copy, local_path
from nanoset_ref.tokens.companions import refuse_link_without_companions
from nanoset_ref.tokens.interface import Facts, Tokens, cached_property
from nanoset_ref.tokens.manifest import TokenFileError, Windows
from nanoset_ref.tokens.npy_writer import TokenFileWriter


class DatatroveFile(Tokens):
    """One .ds file.

    Args:
        path: the file; its .index is needed for `document_offsets` only, its .metadata for the size
            of an id.
        windows: "disjoint" (datatrove's) or "overlapping".
        token_size: bytes per id, 2 or 4, for a file without .metadata; both must agree.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: other windows.
        TokenFileError: the size of an id is not 2 or 4, or the index belongs to another file.
    """

    def __init__(
        self,
        path: PathLike,
        windows: Windows = "disjoint",
        token_size: int | None = None,
    ) -> None:
        suffix = as_path(path).suffix
        super().__init__(path, f"{suffix}.index", f"{suffix}.metadata")
        if self.version is None:
            raise FileNotFoundError(
                f"no .ds file at {self.location}; datatrove's DocumentTokenizer writes them"
            )
        if windows not in ("disjoint", "overlapping"):
            raise ValueError(
                f"windows must be 'disjoint' or 'overlapping', got {windows!r}"
            )
        self.windows = windows
        self._metadata_text = f"|{token_size or 2}"
        metadata = self.companion(f"{suffix}.metadata")
        if self.companion_versions[f"{suffix}.metadata"] is not None:
            content = b"".join(read_in_blocks(metadata))
            self._metadata_text = content.decode(errors="replace")
        elif token_size is None and os.path.islink(path):
            refuse_link_without_companions(self.path, f"{suffix}.metadata")
        first_line = self._metadata_text.partition("\n")[0]
        tokenizer, _, size = first_line.rpartition("|")
        if size not in ("2", "4") or token_size not in (None, int(size)):
            raise TokenFileError(
                f"{metadata} must begin with <tokenizer>|<bytes per id, 2 or 4>; got {size!r} "
                f"(token_size={token_size})"
            )
        self._tokenizer = tokenizer
        if tokenizer.lower() in ("unknown", "unknown tokenizer"):
            self._tokenizer = ""
        self.dtype = np.dtype("<i4" if size == "4" else "<u2")
        self.num_tokens = 0
        if self.version[0]:  # datatrove itself writes empty files
            self.num_tokens = self.count_ids()

    @property
    def facts(self) -> Facts:
        """See `Tokens.facts`."""
        return {"tokenizer": self._tokenizer} if self._tokenizer else {}

    @cached_property
    def document_offsets(self) -> Int64Array | None:
        """int64 [documents + 1], from the index; None without one."""
        suffix = f"{self.path.suffix}.index"
        if self.companion_versions[suffix] is None:
            return None
        self.check_unchanged()
        index = self.companion(suffix)
        with local_copy(index) as content:
            size = content.stat().st_size
            offsets = np.append(0, np.fromfile(content, dtype="<i8"))
        if size % 8 or offsets[-1] != self.num_tokens or (np.diff(offsets) < 0).any():
            raise TokenFileError(
                f"{index} does not end with the {self.num_tokens} tokens of its file"
            )
        return offsets

    def check_content(self) -> bool:
        """Compare the files with the checksum that `convert` adds to .metadata."""
        if not self._has_checksum:
            return super().check_content()
        self.require_document_offsets()
        text, _, recorded = self._metadata_text.rpartition("\n")
        index = self.companion(f"{self.path.suffix}.index")
        if recorded != checksum_of_set(text, self.location, index):
            raise TokenFileError(
                f"{self.path}, its index or its metadata was changed; copy or write all three again"
            )
        return True

    @property
    def _has_checksum(self) -> bool:
        """Whether `convert` wrote the .metadata, with a checksum."""
        text = self._metadata_text
        return text.count("\n") >= 3 or "xxh3_128:" in text

    @property
    def checksum(self) -> str | None:
        """See `Tokens.checksum`; the one in .metadata covers all three files."""
        if self._has_checksum:
            return self._metadata_text.rpartition("\n")[2]
        return super().checksum

    def num_samples(self, sequence_length: int, disjoint: bool = False) -> int:
        """Samples of sequence_length + 1 tokens; 0 in a shorter file, which a folder may have."""
        if self.num_tokens <= sequence_length:
            return 0
        return super().num_samples(sequence_length, disjoint)


class DatatroveWriter(TokenFileWriter):
    """Like TokenFileWriter, but for a .ds file with its index and metadata."""

    def __init__(self, path: PathLike, *, dtype: DTypeLike, **options: Any) -> None:
        if np.dtype(dtype) == np.uint32:
            dtype = "int32"  # the same bytes: ids lie below 2**31
        super().__init__(path, dtype=dtype, **options)

    def _companions(self) -> Sequence[Path]:
        """The index and the metadata; FileExistsError if another program wrote one of them."""
        index = self.path.with_suffix(f"{self.path.suffix}.index")
        metadata = self.path.with_suffix(f"{self.path.suffix}.metadata")
        refuse_foreign(metadata, _names_id_size)
        if not metadata.exists():
            refuse_foreign(index, _holds_ends)
        return index, metadata

    def _write_offsets_header(self) -> None:
        """The index has no header, and no 0."""

    def _complete_and_describe(self) -> bytes:
        """The content of the metadata, with a checksum of all three files."""
        tokenizer = self._description.get("tokenizer") or "unknown"
        count = format_count(self.num_tokens)
        text = f"{tokenizer}|{self.dtype.itemsize}\n{self.num_tokens}\n{count}"
        self._ids.flush()
        self._offsets.flush()
        checksum = checksum_of_set(text, self._ids.name, self._offsets.name)
        return f"{text}\n{checksum}".encode()


def _names_id_size(metadata: Path) -> bool:
    """Whether a file begins like a .metadata."""
    return re.match(rb"[^\n]*\|[24]\n", metadata.read_bytes()) is not None


def _holds_ends(index: Path) -> bool:
    """Whether a file has the form of an index: uint64 [documents], ascending."""
    ends = np.fromfile(index, dtype="<i8")
    return index.stat().st_size % 8 == 0 and bool((np.diff(ends, prepend=0) >= 0).all())


def format_count(count: float) -> str:
    """2338 -> "2.34 kT": three significant digits, as datatrove writes them."""
    thousands = (len(str(int(count))) - 1) // 3
    count /= 1000**thousands
    decimals = 3 - len(str(int(count)))
    return f"{count:.{decimals}f} {' kMGT'[thousands].strip()}T"


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
    root = local_path(folder, "a folder of .ds files")
    paths = sorted(root.glob("**/*.ds" if recursive else "*.ds"), key=str)
    if not paths:
        raise FileNotFoundError(
            f"{folder} has no file '*.ds'; datatrove's DocumentTokenizer writes them"
        )
    if shuffle:
        paths = [paths[i] for i in np.random.default_rng(seed).permutation(len(paths))]
    return [DatatroveFile(path, windows) for path in paths]
