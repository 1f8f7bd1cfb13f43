"""A dictionary of int keys and JSON values that keeps every value compressed, in memory and in its file.

The file is a run of records, each a little-endian unsigned 32-bit length followed by that many bytes. The first one is
the JSON header `{"compression": "bz2"}`; every other one is a signed 32-bit key followed by the compressed UTF-8 JSON
of one value:

    16 00 00 00  {"compression": "bz2"}
    29 00 00 00  00 00 00 00  42 5a 68 39 ...          key 0, a bz2 stream of 0x29 - 4 bytes

This is the format of the package compressed-dictionary, and files go both ways.

A file may come from anywhere: it holds JSON and nothing that can run, every length is checked against the file, and a
value stops being decompressed once it is longer than `max_value_bytes`. JSON grows up to 40 times when it is parsed
(short lists within lists do), so the usual 16 MiB keep one value below 700 MB of memory.
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
from typing import Any

import numpy as np

from nanoset_ref.io.files import PathLike, atomic_write
from nanoset_ref.streaming.adapters import FileMap
from nanoset_ref.streaming.resumable import at_least

MAX_HEADER_BYTES = 4096
RECORD = struct.Struct("<Ii")  # how many bytes follow the length, and the key
# name -> (compresses, makes a decompressor)
CODECS: dict[str, tuple[Any, Any]] = {
    "bz2": (bz2.compress, bz2.BZ2Decompressor),
    "xz": (lzma.compress, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=1 << 28)),
    "gzip": (
        partial(gzip.compress, mtime=0),
        partial(zlib.decompressobj, wbits=31),
    ),  # the same bytes at any time
}


class CompressedFormatError(ValueError):
    """A file or a value that is not what the format allows: truncated, damaged, of unknown compression, or a bomb."""


class CompressedDictionary(UserDict[int, Any]):
    """A dict from int to any JSON value; values are compressed when set and decompressed when read.

    Args:
        compression: "bz2", "xz" or "gzip".

    Keys must fit in 32 signed bits (the file stores them so). Values are what `json` makes of them: a tuple comes back
    as a list. Iteration is in order of insertion. Memory is that of the compressed values.

    Attributes:
        max_value_bytes: the largest JSON text of one value, in bytes, 16 MiB; set it to allow more.

    Raises:
        ValueError: unknown compression; a key outside [-2**31, 2**31); a value beyond `max_value_bytes`.
        TypeError: a key that is not an integer, a value that is not JSON.
        CompressedFormatError: on reading a damaged value or one beyond `max_value_bytes`.
    """

    max_value_bytes = 16 << 20
    __repr__ = object.__repr__

    def __init__(self, compression: str = "bz2") -> None:
        super().__init__()
        self.compression = _known(compression)
        self.data: Any  # the compressed values: a dict, or a CompressedFile

    def __getitem__(self, key: int) -> Any:
        text = self._text(key)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._error(key, f"is not JSON: {error}") from None

    def __setitem__(self, key: int, value: Any) -> None:
        key = operator.index(key)
        if not -(2**31) <= key < 2**31:
            raise ValueError(f"keys are stored in 32 signed bits, -2**31 <= key < 2**31; got {key}")
        text = json.dumps(value).encode()
        if len(text) > self.max_value_bytes:
            raise ValueError(
                f"the value of key {key} has more than max_value_bytes={self.max_value_bytes} of JSON"
            )
        self.data[key] = CODECS[self.compression][0](text)

    @classmethod
    def open(cls, filepath: PathLike) -> CompressedDictionary:
        """The dictionary in a file, to be read only: values stay in the file, memory is 12 bytes for each.

        Raises:
            FileNotFoundError: no such file.
            CompressedFormatError: not such a file, a record beyond its end, the same key twice.
        """
        file = CompressedFile(filepath)
        return cls(file.compression)._with(file)

    @classmethod
    def load(cls, filepath: PathLike, limit: int | None = None) -> CompressedDictionary:
        """Read the first `limit` values (None: all) of a file into memory, compressed. Raises: as `open`."""
        file = cls.open(filepath)
        return file._part(islice(file, limit))

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
            parts: into how many; the first ones are the longer ones.
            parts_length: or the largest length of one part. Give one of the two.
            drop_last: leave out the last part if it is shorter than the first.
            reset_keys: number each part from 0.
        """
        if (parts is None) == (parts_length is None):
            raise ValueError(
                f"give either parts or parts_length, got parts={parts}, parts_length={parts_length}"
            )
        if parts_length is not None:
            parts = max(1, -(-len(self) // at_least(1, "parts_length", parts_length)))
        divided = np.array_split(np.array([*self], np.int64), at_least(1, "parts", parts))
        if drop_last and len(divided[-1]) < len(divided[0]):
            divided.pop()
        return (self._part(part.tolist(), reset_keys) for part in divided)

    def merge(self, other: CompressedDictionary, reset_keys: bool = True) -> CompressedDictionary:
        """A new dictionary, compressed as this one, with the values of both.

        Args:
            other: values of another compression are compressed anew.
            reset_keys: number everything from 0, first this one's values, then the other's; else keys stay.

        Raises:
            ValueError: a common key when keys stay.
        """
        return self._with(dict(_joined([self, other], self.compression, reset_keys)))

    def merge_(self, other: CompressedDictionary, reset_keys: bool = True) -> None:
        """Add the values of `other` to this dictionary, whose own keys stay.

        Args:
            reset_keys: give the new values the smallest keys from 0 on that are free; else they keep theirs.

        Raises:
            ValueError: a common key when keys stay; nothing has been changed then.
        """
        if reset_keys:
            free = filterfalse(self.data.__contains__, count())
            self.data.update(zip(free, [*other._payloads(self.compression)], strict=False))
        else:
            self.data = dict(_joined([self, other], self.compression, False))

    @staticmethod
    def combine_on_disk(
        destination: PathLike,
        *dictionaries_files: PathLike,
        compression: str | None = None,
        reset_keys: bool = True,
    ) -> None:
        """Merge files into one, value by value: memory holds one value and the keys.

        Args:
            destination: the new file.
            dictionaries_files: the files, in order.
            compression: of the new file; None takes that of the first.
            reset_keys: number all values from 0; else keys stay.

        Raises:
            ValueError: a common key when keys stay, no file at all.
        """
        if not dictionaries_files:
            raise ValueError("combine_on_disk needs at least one file to read")
        files = [CompressedDictionary.open(path) for path in dictionaries_files]
        new = _known(compression or files[0].compression)
        _write(destination, new, _joined(files, new, reset_keys))

    def _with(self, payloads: Any) -> CompressedDictionary:
        """A new dictionary that differs in its values only."""
        new = CompressedDictionary(self.compression)
        new.data, new.max_value_bytes = payloads, self.max_value_bytes
        return new

    def _part(self, keys: Iterable[int], reset_keys: bool = False) -> CompressedDictionary:
        """A new dictionary, in memory, with the values of these keys."""
        return self._with(
            {place if reset_keys else key: self.data[key] for place, key in enumerate(keys)}
        )

    def _payloads(self, compression: str) -> Iterator[bytes]:
        """The values in this compression."""
        for key in self.data:
            yield (
                self.data[key]
                if compression == self.compression
                else CODECS[compression][0](self._text(key))
            )

    def _text(self, key: int) -> bytes:
        """The JSON of a value: at most `max_value_bytes` out of exactly one compressed stream."""
        stream = CODECS[self.compression][1]()
        try:
            text = stream.decompress(self.data[key], self.max_value_bytes + 1)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._error(key, f"is not {self.compression}: {error}") from None
        if len(text) > self.max_value_bytes:
            way_out = "set a larger max_value_bytes if you trust the file"
            raise self._error(key, f"grows beyond {self.max_value_bytes} bytes; {way_out}")
        if not stream.eof or stream.unused_data:
            raise self._error(key, "is cut off, or has bytes after its end")
        return text

    def _error(self, key: int, problem: str) -> CompressedFormatError:
        where = getattr(self.data, "path", "a dictionary in memory")
        return CompressedFormatError(f"{where}: the value of key {key} {problem}")


class CompressedFile(Mapping[int, bytes]):
    """The compressed values of a file by key, in file order, read through a memory map."""

    def __init__(self, filepath: PathLike) -> None:
        self._file, self.path = FileMap(filepath), filepath
        data = self._file.bytes
        length = int.from_bytes(data[:4], "little")
        try:
            header = json.loads(data[4 : 4 + min(length, MAX_HEADER_BYTES)])
            self.compression = _known(header["compression"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CompressedFormatError(f"{filepath}: its header is not usable ({error})") from None
        keys, starts, at = array("i"), array("q"), 4 + length
        while at != len(data):
            length, key = RECORD.unpack(data[at : at + RECORD.size].ljust(RECORD.size, b"\0"))
            if length < 4 or at + 4 + length > len(data):
                raise CompressedFormatError(
                    f"{filepath}: the record at byte {at} is damaged or cut off"
                )
            keys.append(key)
            starts.append(at)
            at += 4 + length
        _refuse_repeated(keys, filepath)
        # by key: memory is 12 bytes per value
        order = np.argsort(keys)
        self._keys, self._starts = np.array(keys)[order], np.array(starts)[order]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys[np.argsort(self._starts)].tolist())

    def __getitem__(self, key: int) -> bytes:
        place = bisect_left(self._keys.data, key)
        if place == len(self) or self._keys[place] != key:
            raise KeyError(key)
        start = int(self._starts[place])
        length, _ = RECORD.unpack_from(self._file.bytes, start)
        return self._file.bytes[start + RECORD.size : start + 4 + length]


def _write(filepath: PathLike, compression: str, payloads: Iterable[tuple[int, bytes]]) -> None:
    header = json.dumps({"compression": compression}).encode()
    with atomic_write(filepath) as file:
        file.write(len(header).to_bytes(4, "little") + header)
        for key, payload in payloads:
            file.write(RECORD.pack(4 + len(payload), key) + payload)


def _known(compression: str) -> str:
    if compression not in CODECS:
        raise ValueError(f"compression must be one of {list(CODECS)}, got {compression!r}")
    return compression


def _joined(
    dictionaries: list[CompressedDictionary], compression: str, reset_keys: bool
) -> Iterator[tuple[int, bytes]]:
    """The compressed values of all, with the keys that they have, or with new ones that count from 0."""
    if not reset_keys:
        _refuse_repeated(
            list(chain(*dictionaries)),
            "what is to be merged; reset_keys=True numbers the values anew",
        )
    keys = count() if reset_keys else chain(*dictionaries)
    payloads = chain.from_iterable(one._payloads(compression) for one in dictionaries)
    return zip(keys, payloads, strict=False)


def _refuse_repeated(keys: Any, where: Any) -> None:
    values, counts = np.unique(keys, return_counts=True)
    for key in values[counts > 1]:
        raise CompressedFormatError(f"key {key} occurs more than once in {where}")
