"""Token files: raw little-endian token ids, and a manifest that says what they are.

    <stem>.npy             the ids back to back, no header (the format Nanotron writes and reads)
    <stem>.json            the manifest: dtype, counts, tokenizer, EOS id, checksum
    <stem>.documents.npy   int64 [num_documents + 1], the offset in tokens at which each document begins, and the end

A reader costs three system calls and no memory: the ids stay in the page cache. A file without a manifest is readable
too, with the dtype given by the caller. The rejected alternative, a header inside the file, would make it unreadable
for Nanotron; a pickled index would not be safe to open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import xxhash
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nanoset_ref.files import atomic_write, checksum

FORMAT_VERSION = 1
TOKEN_DTYPES = ("uint16", "int32")
# "overlapping": sample j holds tokens [j*S, j*S + S + 1); neighbours share one token, so every token is a label once.
# "disjoint": sample j holds tokens [j*(S+1), (j+1)*(S+1)); rows that were cut to S + 1 tokens when the file was made.
Windows = Literal["overlapping", "disjoint"]


class TokenFileError(ValueError):
    """A token file, its manifest or what was asked of them does not hold together."""


def token_dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype that Nanotron's readers know and that holds every id below `vocab_size`: uint16 up to 65,536
    ids, else int32.
    """
    if not 1 <= vocab_size <= 2**31:
        raise ValueError(f"vocab_size must be in [1, 2**31], got {vocab_size}")
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What stands beside a token file.

    Args:
        dtype: "uint16" or "int32", little endian.
        num_tokens: number of ids in the file.
        num_documents: number of documents; the boundaries lie in `<stem>.documents.npy`.
        checksum: "xxh3_128:<hex>" of the token file's bytes.
        tokenizer: name or folder the tokenizer was loaded from, None if unknown.
        vocab_size: len(tokenizer): every id is below it, None if unknown.
        eos_token_id: the tokenizer's end-of-sequence id, None if it has none.
        appended_eod: whether an EOS id was written after each document.
        added_special_tokens: whether the tokenizer's own special tokens (such as BOS) were written.
        windows: how samples are cut, "overlapping" or "disjoint" (see the top of this module).
        row_length: for "disjoint", the tokens per row (sequence_length + 1) the file was cut to; else None.
        format_version: 1.
    """

    dtype: str
    num_tokens: int
    num_documents: int
    checksum: str
    tokenizer: str | None = None
    vocab_size: int | None = None
    eos_token_id: int | None = None
    appended_eod: bool = False
    added_special_tokens: bool = False
    windows: Windows = "overlapping"
    row_length: int | None = None
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.format_version != FORMAT_VERSION:
            raise TokenFileError(
                f"format_version must be {FORMAT_VERSION}, got {self.format_version}; a newer nanoset_ref wrote it"
            )
        if self.dtype not in TOKEN_DTYPES:
            raise TokenFileError(f"dtype must be one of {TOKEN_DTYPES}, got {self.dtype!r}")
        if self.windows not in get_args(Windows):
            raise TokenFileError(f"windows must be one of {get_args(Windows)}, got {self.windows!r}")
        if (self.windows == "disjoint") != (self.row_length is not None):
            raise TokenFileError(
                f'row_length goes with windows="disjoint" and only with it, got {self.windows!r} and {self.row_length}'
            )
        for name in ("num_tokens", "num_documents"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise TokenFileError(f"{name} must be a non-negative integer, got {value!r}")
        for name in ("vocab_size", "eos_token_id", "row_length"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 0):
                raise TokenFileError(f"{name} must be a non-negative integer or null, got {value!r}")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read and validate a manifest; every error names `path`."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(fields, dict):
                raise TokenFileError(f"it must be an object, got {type(fields).__name__}")
            if unknown := sorted(set(fields) - {field.name for field in dataclasses.fields(cls)}):
                raise TokenFileError(f"it has unknown fields {unknown}; a newer nanoset_ref may have written it")
            return cls(**fields)
        except (TypeError, ValueError) as error:
            raise TokenFileError(f"{path} is not a manifest of a token file: {error}") from error

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def manifest_path(path: str | os.PathLike[str]) -> Path:
    """datasets/a_input_ids.npy -> datasets/a_input_ids.json"""
    return Path(path).with_suffix(".json")


def documents_path(path: str | os.PathLike[str]) -> Path:
    """datasets/a_input_ids.npy -> datasets/a_input_ids.documents.npy"""
    return Path(path).with_suffix(".documents.npy")


class TokenFile:
    """One token file, memory-mapped.

    Args:
        path: the file with the ids.
        token_dtype: dtype of the ids, for a file without a manifest (default uint16, as Nanotron has it). With a
            manifest it must agree.

    Attributes:
        path: Path. dtype: little-endian np.dtype. num_tokens: int. manifest: Manifest or None.
        tokens: np.ndarray [num_tokens] of `dtype`, a read-only view of the mapping.

    Raises:
        FileNotFoundError: no such file.
        TokenFileError: empty; not a whole number of ids; another size or dtype than the manifest says; a NumPy header
            in the file.
    """

    def __init__(self, path: str | os.PathLike[str], token_dtype: DTypeLike | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f"no token file at {self.path}; nanoset_ref.preprocess writes one as <output-prefix>_input_ids.npy"
            )
        manifest = manifest_path(self.path)
        mine = self.path.suffix != ".ds"  # beside a.ds, a.json is the manifest of a.npy
        self.manifest = Manifest.read(manifest) if mine and manifest.is_file() else None
        self.dtype = self._resolve_dtype(token_dtype)
        num_bytes = self.path.stat().st_size
        if num_bytes == 0:
            raise TokenFileError(
                f"{self.path} is empty: a token file holds at least one id; run the preprocessing again"
            )
        if self.manifest is None:
            self._refuse_numpy_header()
        if num_bytes % self.dtype.itemsize:
            raise TokenFileError(
                f"{self.path} has {num_bytes} bytes, not a multiple of the {self.dtype.itemsize} bytes "
                f"of a {self.dtype.name} id: it is truncated, or token_dtype is wrong"
            )
        self.num_tokens = num_bytes // self.dtype.itemsize
        if self.manifest is not None and self.manifest.num_tokens != self.num_tokens:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} ids, its manifest {manifest.name} says "
                f"{self.manifest.num_tokens}: the file is truncated or not this manifest's; write it again"
            )
        self.tokens: NDArray[Any] = np.memmap(self.path, dtype=self.dtype, mode="r").view(np.ndarray)

    def _resolve_dtype(self, token_dtype: DTypeLike | None) -> np.dtype[Any]:
        given = None if token_dtype is None else np.dtype(token_dtype).newbyteorder("<")
        if given is not None and given.name not in TOKEN_DTYPES:
            raise TokenFileError(f"token_dtype must be one of {TOKEN_DTYPES}, got {given.name}")
        if self.manifest is None:
            return given or np.dtype("<u2")
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        if given is not None and given != dtype:
            raise TokenFileError(
                f"{self.path}: token_dtype={given.name} contradicts the manifest, which says {dtype.name}; "
                "leave token_dtype out"
            )
        return dtype

    def _refuse_numpy_header(self) -> None:
        with open(self.path, "rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise TokenFileError(
                    f"{self.path} begins with a NumPy header, but token files are raw ids; "
                    f"convert it: np.load({self.path.name!r}).astype('<u2').tofile('raw_input_ids.npy')"
                )

    @property
    def windows(self) -> Windows:
        """How samples are cut from this file: what the manifest says, else "overlapping"."""
        return "overlapping" if self.manifest is None else self.manifest.windows

    @functools.cached_property
    def document_offsets(self) -> NDArray[np.int64] | None:
        """int64 [num_documents + 1], memory-mapped: document d is tokens[offsets[d]:offsets[d + 1]]. None without a
        manifest. Opened at the first access.
        """
        if self.manifest is None:
            return None
        path = documents_path(self.path)
        if not path.is_file():
            raise TokenFileError(
                f"{path} is missing, though {manifest_path(self.path).name} speaks of "
                f"{self.manifest.num_documents} documents"
            )
        try:
            offsets = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise TokenFileError(f"{path} is no array of document boundaries; write the token file again") from error
        if (
            offsets.dtype != np.int64
            or offsets.shape != (self.manifest.num_documents + 1,)
            or offsets[0] != 0
            or offsets[-1] != self.num_tokens
        ):
            raise TokenFileError(
                f"{path} must hold int64 [{self.manifest.num_documents + 1}] from 0 to {self.num_tokens}; "
                "it belongs to another token file"
            )
        return offsets

    def stride(self, sequence_length: int) -> int:
        """Tokens from the beginning of one sample to the next: S for overlapping windows, S + 1 for disjoint ones."""
        if self.manifest is not None and self.manifest.row_length not in (None, sequence_length + 1):
            raise TokenFileError(
                f"{self.path} was cut into rows of {self.manifest.row_length} tokens: "
                f"read it with sequence_length={self.manifest.row_length - 1}, not {sequence_length}"
            )
        return sequence_length + (self.windows == "disjoint")

    def num_samples(self, sequence_length: int) -> int:
        """Samples of sequence_length + 1 tokens in the file: (num_tokens - 1) // sequence_length for overlapping
        windows.

        Raises:
            TokenFileError: the file is too short for a single sample.
        """
        if self.num_tokens < sequence_length + 1:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} tokens; one sample of sequence_length={sequence_length} needs "
                f"{sequence_length + 1}: take a shorter sequence_length or leave the file out"
            )
        return (self.num_tokens - sequence_length - 1) // self.stride(sequence_length) + 1

    def verify(self) -> None:
        """Read the whole file and hold it against its manifest: checksum, and every id below the vocabulary size.

        Raises:
            TokenFileError: no manifest, or what differs.
        """
        if self.manifest is None:
            raise TokenFileError(f"{self.path} has no manifest to be verified against")
        found = checksum(self.path)
        if found != self.manifest.checksum:
            raise TokenFileError(
                f"{self.path}: checksum {found}, the manifest says {self.manifest.checksum}: the content has changed"
            )
        if self.document_offsets is not None and np.any(np.diff(self.document_offsets) < 0):
            raise TokenFileError(f"{documents_path(self.path)}: the document offsets must not decrease")
        if self.manifest.vocab_size is not None:
            for start in range(0, self.num_tokens, 1 << 24):
                _check_ids(
                    self.tokens[start : start + (1 << 24)],
                    self.manifest.vocab_size,
                    self.dtype,
                    where=f"{self.path}, from token {start}",
                )

    def __len__(self) -> int:
        return self.num_tokens

    def __repr__(self) -> str:
        documents = "" if self.manifest is None else f", {self.manifest.num_documents:,} documents"
        return f"TokenFile({str(self.path)!r}, {self.dtype.name}, {self.num_tokens:,} tokens{documents})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the file again; a mapping itself must not travel, it would be copied."""
        return TokenFile, (self.path, None if self.manifest else self.dtype)


class TokenFileWriter:
    """Write a token file with its manifest and document boundaries; a context manager.

    Nothing appears under the final names before a clean exit: boundaries, manifest and ids are renamed in this order,
    so that whoever sees the ids sees all three. An exception, or a kill, leaves no token file.

    Args:
        path: the token file to write, `<prefix>_input_ids.npy` by convention.
        dtype: "uint16" or "int32"; see `token_dtype_for`.
        overwrite: whether an existing file may be replaced (it disappears when the new one is begun to be renamed).
        **description: the manifest's fields `tokenizer`, `vocab_size`, `eos_token_id`, `appended_eod`,
            `added_special_tokens`, `windows`, `row_length`.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        TokenFileError: (write) an id that does not fit the vocabulary or the dtype; lengths that do not add up.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, dtype: DTypeLike, overwrite: bool = False, **description: Any
    ) -> None:
        self.path = Path(path)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype.name not in TOKEN_DTYPES:
            raise TokenFileError(f"dtype must be one of {TOKEN_DTYPES}, got {self.dtype.name}")
        if self.path.exists() and not overwrite:
            raise FileExistsError(f"{self.path} exists; remove it, or ask for overwriting")
        self.num_tokens = 0
        self.num_documents = 0
        self._description = description
        self._digest = xxhash.xxh3_128()
        self._manifest()  # a wrong description is an error now, not after hours

    def _manifest(self) -> Manifest:
        return Manifest(
            dtype=self.dtype.name,
            num_tokens=self.num_tokens,
            num_documents=self.num_documents,
            checksum=f"xxh3_128:{self._digest.hexdigest()}",
            **self._description,
        )

    def __enter__(self) -> TokenFileWriter:
        self._session = self._write_all()
        self._session.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._session.__exit__(*error)

    @contextlib.contextmanager
    def _write_all(self) -> Iterator[None]:
        with atomic_write(self.path) as self._ids:
            with atomic_write(documents_path(self.path)) as self._offsets:
                self._write_offsets_header()
                self._offsets.write(np.zeros(1, dtype="<i8").tobytes())
                yield
                if self.num_tokens == 0:
                    raise TokenFileError(f"nothing was written to {self.path}: a token file holds at least one id")
                self._offsets.seek(0)
                self._write_offsets_header()
                self.path.unlink(missing_ok=True)  # an old file goes before its boundaries and manifest do
            with atomic_write(manifest_path(self.path), "w") as file:
                file.write(self._manifest().to_json())

    def write_document(self, ids: ArrayLike) -> None:
        """Append one document: integers [n]; n may be 0."""
        ids = np.asarray(ids)
        self.write(ids, [ids.size])

    def write(self, ids: ArrayLike, lengths: Iterable[int] | NDArray[np.int64]) -> None:
        """Append several documents: integers [sum(lengths)], back to back, and the tokens of each, [n]."""
        ids = np.asarray(ids)
        if ids.size == 0:
            ids = ids.astype(self.dtype)
        lengths = np.asarray(lengths, dtype=np.int64)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise TokenFileError(f"token ids must be a 1-d array of integers, got {ids.ndim}-d {ids.dtype}")
        if lengths.sum() != ids.size or (lengths < 0).any():
            raise TokenFileError(f"the document lengths add up to {lengths.sum()}, but there are {ids.size} ids")
        _check_ids(
            ids,
            self._description.get("vocab_size"),
            self.dtype,
            where=f"{self.path}, documents from {self.num_documents} on",
        )
        data = np.ascontiguousarray(ids, dtype=self.dtype).data
        self._digest.update(data)
        self._ids.write(data)
        self._offsets.write((np.cumsum(lengths) + self.num_tokens).astype("<i8").tobytes())
        self.num_tokens += int(ids.size)
        self.num_documents += len(lengths)

    def _write_offsets_header(self) -> None:
        """A .npy header; NumPy pads it so that the final number of documents takes the same room."""
        header = {"descr": "<i8", "fortran_order": False, "shape": (self.num_documents + 1,)}
        np.lib.format.write_array_header_1_0(self._offsets, header)


def _check_ids(ids: NDArray[Any], vocab_size: int | None, dtype: np.dtype[Any], *, where: str) -> None:
    if ids.size == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    limit = np.iinfo(dtype).max + 1 if vocab_size is None else min(vocab_size, np.iinfo(dtype).max + 1)
    if low < 0 or high >= limit:
        raise TokenFileError(
            f"{where}: token id {low if low < 0 else high} is outside [0, {limit}), the range of the vocabulary "
            f"and of {dtype.name}; the ids come from another tokenizer, or a wider dtype is needed"
        )
