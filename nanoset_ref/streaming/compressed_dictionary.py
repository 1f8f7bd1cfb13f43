"""A dictionary of int keys and JSON values, each compressed both in memory and in a file.

The file is a sequence of records. A record is a little-endian unsigned 32-bit length, followed by
this number of bytes. The first record is the JSON header `{"compression": "bz2"}`. Every other
record is a signed 32-bit key, followed by a value as compressed UTF-8 JSON.

    16 00 00 00  {"compression": "bz2"}
    29 00 00 00  00 00 00 00  42 5a 68 39 ...          key 0, a bz2 stream of 0x29 - 4 bytes

The PyPI package compressed-dictionary writes and reads the same files. This package does not depend
on it, because version 1.2.1 (November 2026) loads whole files into memory, accepts truncated files,
sets any attribute that a header names, decompresses without a limit, loses the compression in a
merge, and is licensed under the GPL. Law 11 of docs/laws.md has the figures.

Files from untrusted sources are safe to open: they contain JSON, which is not executable, every
length is checked against the file, and decompression stops as soon as a value exceeds
`max_value_bytes`. Parsed JSON takes up to 40 times its size (for short nested lists), so the
default of 16 MiB keeps one value below 700 MB of memory.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import operator
import struct
import zlib
from array import array
from bisect import bisect_left
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count, filterfalse, islice
from typing import Any, Self, SupportsIndex

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.files import atomic_write
from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.types import Int64Array
from nanoset_ref.streaming.file_map import FileMap

MAX_HEADER_BYTES = 4096
RECORD = struct.Struct("<Ii")  # the number of bytes that follow the length; the key
# name -> (compress, decompressor); gzip without a time stamp, so equal values have equal bytes
CODECS: dict[str, tuple[Any, Any]] = {
    "bz2": (bz2.compress, bz2.BZ2Decompressor),
    "xz": (
        lzma.compress,
        partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=1 << 28),
    ),
    "gzip": (partial(gzip.compress, mtime=0), partial(zlib.decompressobj, wbits=31)),
}


class CompressedFormatError(ValueError):
    """A file or value is damaged or too large, or has an unknown compression or a repeated key."""


class CompressedDictionary(UserDict[int, Any]):
    """A dict from int to any JSON value; values are compressed when set and decompressed when read.

    Args:
        compression: "bz2", "xz" or "gzip".

    Keys are signed 32-bit integers, as in the file. Values pass through `json`, so a tuple is
    returned as a list. Iteration follows the order of insertion. The compressed values are in
    memory.

    Attributes:
        max_value_bytes: the limit of one value's JSON text, in bytes; 16 MiB unless you change it.

    Raises:
        ValueError: the compression is unknown, a key is outside [-2**31, 2**31), or a value is
            above `max_value_bytes`.
        TypeError: a key is not an integer, or a value cannot be expressed in JSON.
        CompressedFormatError: a value that is read is damaged or above `max_value_bytes`.
    """

    max_value_bytes = 16 << 20
    __repr__ = object.__repr__

    def __init__(self, compression: str = "bz2") -> None:
        super().__init__()
        self.compression = _check_compression(compression)
        self.data: Any  # {key: compressed value}, a dict or a CompressedFile

    def __getitem__(self, key: int) -> Any:
        text = self._decompress(key)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._error(key, f"is not JSON: {error}") from None

    def __or__(self, other: Any) -> CompressedDictionary:  # type: ignore[override]
        union = self._with_values(dict(self.data.items()))
        union.update(other)
        return union

    def __ror__(self, other: Any) -> CompressedDictionary:  # type: ignore[override]
        union = self._with_values({})
        union.update(other)
        union.update(self)
        return union

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]
        self.update(other)
        return self

    def __setitem__(self, key: int, value: Any) -> None:
        key = operator.index(key)
        if not -(2**31) <= key < 2**31:
            raise ValueError(
                f"keys are stored in 32 signed bits, -2**31 <= key < 2**31; got {key}"
            )
        text = json.dumps(value).encode()
        if len(text) > self.max_value_bytes:
            raise ValueError(
                f"the value of key {key} has more than "
                f"max_value_bytes={self.max_value_bytes} of JSON"
            )
        if isinstance(self.data, CompressedFile):
            raise TypeError(
                f"{self.data.path} was opened for reading; `load` makes a dictionary that takes "
                "values"
            )
        compress, _ = CODECS[self.compression]
        self.data[key] = compress(text)

    @classmethod
    def open(cls, filepath: PathLike) -> CompressedDictionary:
        """Open a file for reading; values stay in the file, and each takes 12 bytes of memory.

        Raises:
            FileNotFoundError: the file does not exist.
            CompressedFormatError: the file has another format, a record beyond its end, or a
                repeated key.
        """
        file = CompressedFile(filepath)
        return cls(file.compression)._with_values(file)

    @classmethod
    def load(cls, filepath: PathLike, limit: int | None = None) -> CompressedDictionary:
        """Read the first `limit` values (None: all) of a file into memory, compressed.

        Raises:
            FileNotFoundError, CompressedFormatError: see `open`.
        """
        file = cls.open(filepath)
        return file._with_values(dict(islice(file.data.items(), limit)))

    def dump(self, filepath: PathLike, limit: int | None = None) -> None:
        """Write the first `limit` values (None: all) to `filepath`, completely or not at all."""
        _write(filepath, self.compression, islice(self.data.items(), limit))

    def split(
        self,
        parts: int | None = None,
        parts_length: int | None = None,
        drop_last: bool = False,
        reset_keys: bool = False,
    ) -> Iterator[CompressedDictionary]:
        """Divide into dictionaries whose lengths differ by at most one; no value is decompressed.

        Args:
            parts: number of parts; the longer ones come first.
            parts_length: the maximum length of a part; give this or `parts`.
            drop_last: drop the last part if it is shorter than the first.
            reset_keys: number the values of each part from 0.
        """
        if (parts is None) == (parts_length is None):
            raise ValueError(
                f"give either parts or parts_length, got parts={parts}, parts_length={parts_length}"
            )
        if parts_length is not None:
            parts = max(
                1, -(-len(self) // whole_number(parts_length, "parts_length", 1))
            )
        divided = np.array_split(list(self.data), whole_number(parts, "parts", 1))
        if drop_last and len(divided[-1]) < len(divided[0]):
            divided.pop()
        return (self._part(keys.tolist(), reset_keys) for keys in divided)

    def merge(
        self, other: CompressedDictionary, reset_keys: bool = True
    ) -> CompressedDictionary:
        """Return a new dictionary with this one's compression and the values of both.

        Args:
            other: the other dictionary; with another compression, its values are recompressed.
            reset_keys: number all values from 0, this dictionary's first; False: keep the keys.

        Raises:
            ValueError: keys are kept, and a key occurs in both dictionaries.
        """
        return self._with_values(
            dict(_merged_records([self, other], self.compression, reset_keys))
        )

    def merge_(self, other: CompressedDictionary, reset_keys: bool = True) -> None:
        """Add the values of `other` to this dictionary, whose own keys stay.

        Args:
            reset_keys: give the new values the smallest free keys; False: keep their keys.

        Raises:
            ValueError: keys are kept, and a key occurs in both dictionaries; nothing is changed.
        """
        if reset_keys:
            if isinstance(self.data, CompressedFile):
                self.data = dict(self.data.items())
            free = filterfalse(self.data.__contains__, count())
            self.data.update(
                zip(free, list(other._payloads(self.compression)), strict=False)
            )
        else:
            self.data = self.merge(other, reset_keys=False).data

    @staticmethod
    def combine_on_disk(
        destination: PathLike,
        *dictionaries_files: PathLike,
        compression: str | None = None,
        reset_keys: bool = True,
    ) -> None:
        """Merge files into one, value by value; only the keys and one value are in memory.

        Args:
            destination: the new file.
            dictionaries_files: the files, in order.
            compression: the new file's compression; None: the first file's.
            reset_keys: number all values from 0; False: keep the keys.

        Raises:
            ValueError: there is no file; or keys are kept, and a key occurs in two files.
        """
        if not dictionaries_files:
            raise ValueError("combine_on_disk needs at least one file to read")
        files = [CompressedDictionary.open(path) for path in dictionaries_files]
        compression = _check_compression(compression or files[0].compression)
        _write(
            destination, compression, _merged_records(files, compression, reset_keys)
        )

    def _with_values(self, payloads: Any) -> CompressedDictionary:
        """A new dictionary with this one's settings and other values."""
        new = CompressedDictionary(self.compression)
        new.data = payloads
        new.max_value_bytes = self.max_value_bytes
        return new

    def _part(self, keys: list[int], reset_keys: bool) -> CompressedDictionary:
        """A new dictionary, in memory, with the values of these keys."""
        new_keys = range(len(keys)) if reset_keys else keys
        return self._with_values(
            dict(zip(new_keys, map(self.data.__getitem__, keys), strict=True))
        )

    def _payloads(self, compression: str) -> Iterator[bytes]:
        """The values, compressed by `compression`."""
        if compression == self.compression:
            yield from self.data.values()
            return
        compress, _ = CODECS[compression]
        for key in self.data:
            yield compress(self._decompress(key))

    def _decompress(self, key: int) -> bytes:
        """The JSON text of a value: one compressed stream, of at most `max_value_bytes` in all."""
        payload = self.data[key]
        _, decompressor = CODECS[self.compression]
        stream = decompressor()
        try:
            text: bytes = stream.decompress(payload, self.max_value_bytes + 1)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._error(key, f"is not {self.compression}: {error}") from None
        if len(text) > self.max_value_bytes:
            raise self._error(
                key,
                f"grows beyond {self.max_value_bytes} bytes; "
                "set a larger max_value_bytes if you trust the file",
            )
        if not stream.eof or stream.unused_data:
            raise self._error(key, "is cut off, or has bytes after its end")
        return text

    def _error(self, key: int, problem: str) -> CompressedFormatError:
        """The error for the value of a key, with the file that holds it."""
        where = getattr(self.data, "path", "a dictionary in memory")
        return CompressedFormatError(f"{where}: the value of key {key} {problem}")


class CompressedFile(Mapping[int, bytes]):
    """The compressed values of a file by key, in file order, read through a memory map."""

    def __init__(self, filepath: PathLike) -> None:
        self.path = filepath
        self._file = FileMap(filepath)
        data = self._file.bytes
        length = int.from_bytes(data[:4], "little")
        try:
            header = json.loads(data[4 : 4 + min(length, MAX_HEADER_BYTES)])
            self.compression = _check_compression(header["compression"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CompressedFormatError(
                f"{filepath}: invalid header ({error})"
            ) from None
        keys = array("i")
        starts = array("q")
        offset = 4 + length
        while offset != len(data):
            record = data[offset : offset + RECORD.size]
            length, key = RECORD.unpack(record.ljust(RECORD.size, b"\0"))
            if length < 4 or offset + 4 + length > len(data):
                raise CompressedFormatError(
                    f"{filepath}: the record at byte {offset} is damaged or truncated"
                )
            keys.append(key)
            starts.append(offset)
            offset += 4 + length
        self._keys, order = _unique(keys, filepath)
        self._starts = np.array(starts)[order]

    def copy(self) -> Self:
        """This file, which nothing changes; `copy.copy` of a dictionary calls it."""
        return self

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys[np.argsort(self._starts)].tolist())

    def __getitem__(self, key: int) -> bytes:
        if not isinstance(key, SupportsIndex):
            raise KeyError(key)
        index = bisect_left(self._keys.data, key)
        if index == len(self) or self._keys[index] != key:
            raise KeyError(key)
        start = int(self._starts[index])
        length, _ = RECORD.unpack_from(self._file.bytes, start)
        return self._file.bytes[start + RECORD.size : start + 4 + length]


def _write(
    filepath: PathLike, compression: str, payloads: Iterable[tuple[int, bytes]]
) -> None:
    """Write a header and records, completely or not at all."""
    header = json.dumps({"compression": compression}).encode()
    with atomic_write(filepath) as file:
        file.write(len(header).to_bytes(4, "little") + header)
        for key, payload in payloads:
            file.write(RECORD.pack(4 + len(payload), key) + payload)


def _check_compression(compression: str) -> str:
    """The compression; ValueError if it is unknown."""
    if compression not in CODECS:
        raise ValueError(
            f"compression must be one of {list(CODECS)}, got {compression!r}"
        )
    return compression


def _merged_records(
    dictionaries: list[CompressedDictionary], compression: str, reset_keys: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield (key, compressed value) of all dictionaries, with their keys or numbered from 0."""
    keys: Iterable[int] = count()
    if not reset_keys:
        keys = list(chain(*dictionaries))
        _unique(
            keys, "these dictionaries", "; reset_keys=True numbers the values from 0"
        )
    payloads = chain.from_iterable(one._payloads(compression) for one in dictionaries)
    return zip(keys, payloads, strict=False)


def _unique(
    keys: Any, where: PathLike, advice: str = ""
) -> tuple[Int64Array, Int64Array]:
    """Return the sorted keys, and the index of each in `keys`.

    Args:
        keys: the keys, integers.
        where: a file or dictionaries, for the error.
        advice: the end of the error.

    Raises:
        CompressedFormatError: a key occurs twice.
    """
    values, indexes, counts = np.unique(keys, return_index=True, return_counts=True)
    repeated = values[counts > 1]
    if repeated.size:
        raise CompressedFormatError(
            f"key {repeated[0]} occurs more than once in {where}{advice}"
        )
    return values, indexes
