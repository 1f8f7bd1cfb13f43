"""Write a token file with its manifest and document boundaries: all three appear, or none."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, DTypeLike

from nanoset_ref.io.files import atomic_write, atomic_write_set
from nanoset_ref.io.overwriting import refuse_foreign
from nanoset_ref.io.paths import PathLike, as_path, checksum
from nanoset_ref.io.types import Int64Array
from nanoset_ref.tokens.manifest import (
    DOCUMENTS_SUFFIX,
    LABELS_SUFFIX,
    MANIFEST_SUFFIX,
    Manifest,
    TokenFileError,
)


class TokenFileWriter:
    """Write a token file with its manifest and document boundaries; a context manager.

    Nothing appears under the final names before a clean exit. The ids appear last, after the
    boundaries and the manifest (see `files.atomic_write_set`). An exception or a kill leaves no
    token file.

    Args:
        path: the token file to write, `<prefix>_input_ids.npy` by convention.
        dtype: "uint16" or "int32"; see `token_dtype_for`.
        overwrite: whether an existing file may be replaced.
        **description: the manifest's fields `tokenizer`, `vocab_size`, `eos_token_id`,
            `appended_eod`, `added_special_tokens`, `windows`, `row_length`.

    Raises:
        FileExistsError: the file exists and `overwrite` is False, or a file of another kind has the
            name of its manifest or document boundaries.
        ValueError: a field of the description has a wrong value.
        TokenFileError: the EOS id or (in `write`) another id does not fit the vocabulary or the
            dtype, or the lengths do not add up.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        dtype: DTypeLike,
        overwrite: bool = False,
        **description: Any,
    ) -> None:
        self.path = as_path(path)
        if self.path.name.endswith(DOCUMENTS_SUFFIX):
            raise ValueError(
                f"{self.path}: files named *{DOCUMENTS_SUFFIX} hold document boundaries; take "
                "another name"
            )
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.num_tokens = 0
        self.num_documents = 0
        self._description = description
        self._overwrite = overwrite
        self._digest = xxhash.xxh3_128()
        manifest = self._manifest()  # a wrong description fails at once
        limit = np.iinfo(self.dtype).max + 1
        self._limit = min(limit, manifest.vocab_size or limit)
        eos_token_id = manifest.eos_token_id
        if eos_token_id is not None and eos_token_id >= self._limit:
            raise TokenFileError(
                f"eos_token_id {eos_token_id} is outside [0, {self._limit}), the vocabulary and "
                f"{self.dtype.name}: give both of one tokenizer"
            )

    def _manifest(self) -> Manifest:
        """The manifest of what is written so far."""
        return Manifest(
            dtype=self.dtype.name,
            num_tokens=self.num_tokens,
            num_documents=self.num_documents,
            checksum=f"xxh3_128:{self._digest.hexdigest()}",
            **self._description,
        )

    def __enter__(self) -> Self:
        self._writing = self._write_all()
        self._writing.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._writing.__exit__(*error)

    @contextlib.contextmanager
    def _write_all(self) -> Iterator[None]:
        """Open the temporaries of all files; on a clean exit, complete and publish them."""
        paths = [*self._companions(), self.path]
        with atomic_write_set(paths, overwrite=self._overwrite) as files:
            self._offsets, manifest, self._ids = files
            self._write_offsets_header()
            yield
            if self.num_tokens == 0:
                raise TokenFileError(
                    f"nothing was written to {self.path}: a token file holds at least one id"
                )
            manifest.write(self._complete_and_describe())

    # ---- methods that a format overrides

    def _companions(self) -> Sequence[Path]:
        """The files of the document boundaries and of the description."""
        documents = self.path.with_suffix(DOCUMENTS_SUFFIX)
        if self._old_manifest() is None:
            refuse_foreign(documents, holds_document_offsets)
        return documents, self.path.with_suffix(MANIFEST_SUFFIX)

    def _old_manifest(self) -> Manifest | None:
        """The manifest that will be replaced, if there is one."""
        try:
            return Manifest.read(self.path.with_suffix(MANIFEST_SUFFIX))
        except FileNotFoundError:
            return None
        except TokenFileError as error:
            raise FileExistsError(
                f"{error}; a manifest would replace it: take another name"
            ) from error

    def _write_offsets_header(self) -> None:
        """Write a 0 after a .npy header, which NumPy pads so that any number of documents fits."""
        header = {
            "descr": "<i8",
            "fortran_order": False,
            "shape": (self.num_documents + 1,),
        }
        np.lib.format.write_array_header_1_0(self._offsets, header)
        self._offsets.write(bytes(8))

    def _complete_and_describe(self) -> bytes:
        """Complete the boundaries; return the content of the manifest."""
        self._offsets.seek(0)
        self._write_offsets_header()
        self._offsets.flush()
        return self._manifest().to_json(self._offsets.name)

    # ---- writing

    def write_document(self, ids: ArrayLike) -> None:
        """Append one document: integers [n]; n may be 0."""
        ids = np.asarray(ids)
        self.write(ids, [ids.size])

    def write(self, ids: ArrayLike, lengths: Iterable[int] | Int64Array) -> None:
        """Append n documents.

        Args:
            ids: the documents' ids back to back, integers [sum(lengths)].
            lengths: tokens in each document, [n].
        """
        ids = np.asarray(ids)
        lengths = np.asarray(lengths, dtype=np.int64)
        if ids.size == 0:
            ids = ids.astype(self.dtype)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise TokenFileError(
                f"token ids must be a 1-d array of integers, got {ids.ndim}-d {ids.dtype}"
            )
        if lengths.sum() != ids.size or (lengths < 0).any():
            raise TokenFileError(
                f"the document lengths add up to {lengths.sum()}, but there are {ids.size} ids"
            )
        low = int(ids.min(initial=0))
        high = int(ids.max(initial=0))
        if low < 0 or high >= self._limit:
            wrong = low if low < 0 else high
            raise TokenFileError(
                f"{self.path}, documents from {self.num_documents} on: token id {wrong} is outside "
                f"[0, {self._limit}), the vocabulary and {self.dtype.name}"
            )
        data = np.ascontiguousarray(ids, dtype=self.dtype).data
        self._digest.update(data)
        self._ids.write(data)
        self._offsets.write(
            (np.cumsum(lengths) + self.num_tokens).astype("<i8").tobytes()
        )
        self.num_tokens += ids.size
        self.num_documents += len(lengths)

    def write_labels(self, labels: Sequence[str], numbers: ArrayLike) -> None:
        """Write labels next to the file, and for each document the number of its label.

        Call this inside `files.write_together`, which adds them to the set.

        Raises:
            FileExistsError: a file of their name holds something else.
        """
        path = self.path.with_suffix(LABELS_SUFFIX)
        old = self._old_manifest()
        if old is None or old.sources is None:
            refuse_foreign(path, _holds_labels)
        with atomic_write(path) as file:
            np.savez(file, labels=np.array(labels), numbers=numbers)
            file.flush()
            self._description["sources"] = checksum(file.name)


def holds_document_offsets(path: Path) -> bool:
    """Whether a file has the form of document boundaries: int64 [n], the first is 0."""
    offsets = np.load(path, mmap_mode="r", allow_pickle=False)
    return offsets.dtype == np.int64 and offsets.ndim == 1 and offsets[0] == 0


def _holds_labels(path: Path) -> bool:
    """Whether a file has the arrays of `write_labels`."""
    with np.load(path, allow_pickle=False) as archive:
        return set(archive.files) == {"labels", "numbers"}
