"""One file of token ids in any format: its ids, document boundaries, samples, and facts about it.

`TokenFile` (.npy and manifest), `MMapIndexedDataset` (.bin/.idx), `DatatroveFile` (.ds) and
`LlmCFile` (a .bin shard of llm.c) are Tokens, so Nanosets, conversions and provenance read any of
them. Tokens remember the version of each file that they opened. If a file is replaced or changed
later, mapping it or unpickling the object in another process raises instead of reading different
ids.
"""

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.paths import (
    FileVersion,
    PathLike,
    as_path,
    checksum,
    file_version,
    in_bucket,
    location_of,
    read_json,
    version_from_status,
)
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.tokens.manifest import TokenFileError, Windows

Facts = dict[str, Any]
Value = TypeVar("Value")

BLOCK_IDS = 1 << 22  # ids that are processed at once


class cached_property(functools.cached_property[Value]):
    """Python's, but without the lock that Python 3.11 holds while a value is computed.

    All objects of a class share that lock. A process that is forked while a thread holds it would
    wait for it forever.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.lock = nullcontext()


class Tokens(ABC):
    """Token ids on disk.

    Args:
        path: the file with the ids, little endian, back to back from byte `first_byte` on.
        *companions: suffixes of the other files of its set, which may be missing.
        version: the version of the file, if its caller has just opened it.

    Attributes:
        location: the local path as a string, or a BucketPath for a URL.
        version: the `paths.file_version` of the file with the ids.
        companion_versions: the versions of its companions, by suffix; None: a missing file.
        dtype: the type of an id.
        num_tokens: ids in the file.
        windows: how samples are cut, see `Windows`.
        row_length: the tokens of a row, if the file was cut into rows.
        first_byte: offset of the ids in the file, in bytes.
        facts: the known fields of a manifest that survive a conversion (tokenizer, vocab_size,
            eos_token_id, ...), and the "checksum" of the file's bytes if one is recorded.
    """

    dtype: np.dtype[Any]
    num_tokens: int
    windows: Windows = "overlapping"
    version: FileVersion | None = None
    row_length: int | None = None
    first_byte = 0
    companion_versions: Mapping[str, FileVersion | None] = {}

    def __init__(
        self, path: PathLike, *companions: str, version: FileVersion | None = None
    ) -> None:
        self.location = location_of(path)
        self.version = version or file_version(self.location)
        if companions:
            self.companion_versions = {
                suffix: file_version(self.companion(suffix)) for suffix in companions
            }

    @property
    def path(self) -> Path:
        """A Path, or a BucketPath for a URL.

        Built on each access, since 100,000 stored Paths would take too much memory.
        """
        return as_path(self.location)

    def companion(self, suffix: str) -> Any:
        """The location of the companion with this suffix."""
        if isinstance(self.location, str):
            # a local name with a suffix (".npy" is a name without one) needs no Path
            stem, _, own_suffix = self.location.rpartition(".")
            if stem[-1:] not in ("", "/") and "/" not in own_suffix:
                return stem + suffix
        return location_of(self.path.with_suffix(suffix))

    def check_unchanged(self) -> None:
        """Raise TokenFileError if a file of the set was replaced or changed since it was opened."""
        if file_version(self.location) != self.version:
            raise _changed_error(self.location)
        for suffix, version in self.companion_versions.items():
            companion = self.companion(suffix)
            if file_version(companion) != version:
                raise _changed_error(companion)

    def check_descriptor(self, descriptor: int) -> None:
        """Raise TokenFileError if the local file open as `descriptor` is not the opened version."""
        if version_from_status(os.fstat(descriptor), self.location) != self.version:
            raise _changed_error(self.location)

    @property
    def facts(self) -> Facts:
        """The recorded facts about the ids (see above); empty unless a format overrides it."""
        return {}

    @property
    def seal_path(self) -> Path:
        """The file with the checksum of a token file of another tool; see `write_seal`."""
        return self.path.with_suffix(f"{self.path.suffix}.seal")

    @property
    def checksum(self) -> str | None:
        """The recorded checksum of the content, from the file's set or a seal; None without one."""
        recorded: str | None = self.facts.get("checksum")
        if recorded is None and self.seal_path.is_file():
            recorded = str(read_json(self.seal_path))
        return recorded

    def content_checksum(self) -> str:
        """The checksum of the current content."""
        return checksum(self.path)

    @cached_property
    def documents_checksum(self) -> str | None:
        """A checksum of `document_offsets`, equal in all formats; None if they are unknown."""
        offsets = self.document_offsets
        if offsets is None:
            return None
        check_not_truncated(offsets)
        content = np.ascontiguousarray(offsets, dtype="<i8").data
        return xxhash.xxh3_128_hexdigest(content)

    @cached_property
    def tokens(self) -> Array:
        """The ids, [num_tokens], read-only; mapped at the first access and never copied.

        For a URL they are `BucketIds`.
        """
        if in_bucket(self.location):
            # only objects in a bucket need it
            from nanoset_ref.io.bucket_ranges import BucketIds

            return BucketIds(self.location, self.version, self.dtype)  # type: ignore[arg-type, return-value]
        self.check_unchanged()
        if self.num_tokens == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype=self.dtype)
        mapped = np.memmap(self.path, self.dtype, "r", self.first_byte, self.num_tokens)
        return mapped.view(np.ndarray)

    @property
    @abstractmethod
    def document_offsets(self) -> Int64Array | None:
        """int64 [num_documents + 1]: document d is tokens[offsets[d]:offsets[d + 1]].

        None if the boundaries are unknown.
        """

    def require_ids(self) -> None:
        """Raise TokenFileError if the values are not integers: Megatron's pairs may hold floats."""
        if self.dtype.kind not in "iu":
            raise TokenFileError(
                f"{self.path} holds {self.dtype.name} values; token ids are integers"
            )

    def require_document_offsets(self) -> Int64Array:
        """Return `document_offsets`; raise TokenFileError if they are unknown."""
        offsets = self.document_offsets
        if offsets is None:
            raise TokenFileError(
                f"{self.path} records no document boundaries; give the id that ends a document "
                "(--eos-token-id, or eos_token_id=), or copy its .index if it is a .ds file"
            )
        return offsets

    def label_of(self, document: int | None) -> str | None:
        """The label of a document's source, in files made of chunks; None if it is unknown."""
        return None

    def count_ids(self) -> int:
        """The number of ids of `dtype` in the file.

        Raises:
            TokenFileError: the file is empty, or its size is not a multiple of an id's size.
        """
        # a version begins with the size
        num_bytes = self.version[0] if self.version else 0
        count, rest = divmod(num_bytes, self.dtype.itemsize)
        if rest or not count:
            raise TokenFileError(
                f"{self.path} is empty, truncated, or of another dtype than {self.dtype.name}"
            )
        return count

    def stride(self, sequence_length: int, disjoint: bool = False) -> int:
        """Tokens from the start of one sample to the next.

        This is S in overlapping windows and S + 1 in disjoint ones.

        Args:
            sequence_length: S.
            disjoint: use disjoint windows, whatever `windows` is.

        Raises:
            TokenFileError: the file was cut into rows of another length.
            ValueError: `disjoint` is not a bool.
        """
        if disjoint not in (True, False):
            raise ValueError(f"disjoint must be True or False, got {disjoint!r}")
        length = self.row_length
        if length is not None and length != sequence_length + 1:
            raise TokenFileError(
                f"{self.path} was cut into rows: read it with sequence_length={length - 1}"
            )
        if disjoint or self.windows != "overlapping":
            return sequence_length + 1
        return sequence_length

    def num_samples(self, sequence_length: int, disjoint: bool = False) -> int:
        """Samples of S + 1 tokens in the file.

        There are (num_tokens - 1) // S overlapping samples, or num_tokens // (S + 1) disjoint ones,
        which may be 0.

        Args:
            sequence_length: S.
            disjoint: see `stride`.

        Raises:
            TokenFileError: see `stride`; or the file is too short for a single sample.
            ValueError: `sequence_length` is not an integer in [1, 2**31).
        """
        sequence_length = whole_number(sequence_length, "sequence_length", 1, bits=31)
        if self.num_tokens <= sequence_length and not disjoint:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} tokens; one sample of "
                f"sequence_length={sequence_length} needs {sequence_length + 1}: use a shorter "
                "sequence_length or leave the file out"
            )
        stride = self.stride(sequence_length, disjoint)
        return count_samples(self.num_tokens, sequence_length + 1, stride)

    def check_content(self) -> bool:
        """Compare the files of the set with the recorded checksums, if there are any.

        Returns:
            Whether checksums are recorded.

        Raises:
            TokenFileError: they differ.
        """
        recorded = self.checksum
        if recorded is None:
            return False
        if recorded != self.content_checksum():
            raise TokenFileError(
                f"{self.path}: the content has changed since its checksum was recorded; "
                "copy it again"
            )
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Leave out mappings, which pickling would copy; another process maps the files again."""
        state = self.__dict__.copy()
        state.pop("tokens", None)
        state.pop("document_offsets", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.check_unchanged()


def _changed_error(path: PathLike) -> TokenFileError:
    """The error for a file that is not the opened version, or is gone."""
    problem = "was replaced or changed after it was opened"
    if not in_bucket(path) and not os.path.exists(path):
        problem = f"is gone (the working directory is {os.getcwd()})"
    return TokenFileError(f"{path} {problem}; build the dataset again")


def count_samples(num_tokens: int, row_length: int, stride: int) -> int:
    """The samples in a file: one row, and one more for each further stride."""
    return max(0, (num_tokens - row_length) // stride + 1)
