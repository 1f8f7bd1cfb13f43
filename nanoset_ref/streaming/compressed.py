"""A dictionary of int keys and JSON values that keeps every value compressed, in memory and in its file.

The file is a run of records, each a little-endian unsigned 32-bit length followed by that many bytes. The first one is
the JSON header `{"compression": "bz2"}`; every other one is a signed 32-bit key followed by the compressed UTF-8 JSON
of one value:

    16 00 00 00  {"compression": "bz2"}
    29 00 00 00  00 00 00 00  42 5a 68 39 ...          key 0, a bz2 stream of 0x29 - 4 bytes

This is the format of the package compressed-dictionary, and files go both ways.

A file may come from anywhere: it holds JSON and nothing that can run, every length is checked against the file, and a
value stops being decompressed once it is longer than `max_value_bytes`. JSON grows up to 40 times when it is parsed
(short lists within lists do), so the default of 16 MiB keeps one value below 700 MB of memory.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import mmap
import operator
import os
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from itertools import count, filterfalse, islice
from typing import Any, BinaryIO

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.files import atomic_write
from nanoset_ref.streaming.resumable import at_least

MAX_VALUE_BYTES = 16 << 20
MAX_HEADER_BYTES = 4096
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "gzip": partial(gzip.compress, mtime=0),  # the same bytes at any time of day
}
DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=1 << 28),
    "gzip": partial(zlib.decompressobj, wbits=31),
}


class CompressedFormatError(ValueError):
    """A file or a value that is not what the format allows: truncated, damaged, of unknown compression, or a bomb."""


class CompressedFile:
    """A file of compressed values, read through a memory map: nothing but keys and places is kept in memory.

    Args:
        filepath: the file.
        max_value_bytes: as in CompressedDictionary.

    Attributes:
        compression: as the header says.
        keys: int32 [n], in file order.

    `file[i]` is the i-th value in file order, decompressed. The object can be sent to other processes, which map the
    file themselves. Memory: 12 bytes per entry.

    Raises:
        FileNotFoundError: no such file.
        CompressedFormatError: not such a file, a record beyond its end, the same key twice.
    """

    def __init__(self, filepath: str | os.PathLike[str], *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.filepath, self.max_value_bytes = os.fspath(filepath), max_value_bytes
        with open(self.filepath, "rb") as file:
            self.compression = self._read_header(file)
            begin = file.tell()
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = np.frombuffer(self._map, np.uint8)
        # record i is the bytes starts[i] : starts[i + 1], with its length and its key
        self._starts = _record_starts(data, begin)
        if self._starts[-1] != len(data):
            what = "is shorter than a key or goes beyond the end of the file"
            raise CompressedFormatError(f"{self.filepath}: the record at byte {self._starts[-1]} {what}")
        key_bytes = self._starts[:-1, None] + np.arange(4, 8)
        self.keys = data[key_bytes].view("<i4")[:, 0]
        if repeated := _repeated(self.keys):
            raise CompressedFormatError(f"{self.filepath}: key {repeated[0]} stands in it more than once")

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, place: int) -> Any:
        return _decoded(self._payload(place), self.compression, self.max_value_bytes, self.keys[place])

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(CompressedFile, max_value_bytes=self.max_value_bytes), (self.filepath,)

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """(key, compressed value) in file order."""
        return zip(self.keys.tolist(), map(self._payload, range(len(self))), strict=True)

    def _payload(self, place: int) -> bytes:
        return self._map[self._starts[place] + 8 : self._starts[place + 1]]

    def _read_header(self, file: BinaryIO) -> str:
        """The compression; leaves the file where the records begin."""
        length = int.from_bytes(file.read(4), "little")
        try:
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"it would have {length} bytes")
            return _known(json.loads(file.read(length))["compression"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = 'not a compressed dictionary, its header is not {"compression": ...}'
            raise CompressedFormatError(f"{self.filepath}: {what}: {error}") from None


class CompressedDictionary(MutableMapping[int, Any]):
    """A dict from int to any JSON value; values are compressed when set and decompressed when read.

    Args:
        compression: "bz2", "xz" or "gzip".
        max_value_bytes: the largest JSON text of one value, in bytes.

    Keys must fit in 32 signed bits (the file stores them so). Values are what `json` makes of them: a tuple comes back
    as a list. Iteration is in order of insertion. Memory is that of the compressed values.

    Raises:
        ValueError: unknown compression; a key outside [-2**31, 2**31); a value beyond `max_value_bytes`.
        TypeError: a key that is not an integer, a value that is not JSON.
        CompressedFormatError: on reading a damaged value or one beyond `max_value_bytes`.
    """

    def __init__(self, compression: str = "bz2", *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.compression, self.max_value_bytes = _known(compression), max_value_bytes
        self._payloads: dict[int, bytes] = {}

    def __getitem__(self, key: int) -> Any:
        return _decoded(self._payloads[key], self.compression, self.max_value_bytes, key)

    def __setitem__(self, key: int, value: Any) -> None:
        key = operator.index(key)
        if not -(2**31) <= key < 2**31:
            raise ValueError(f"keys are stored in 32 signed bits, -2**31 <= key < 2**31; got {key}")
        text = json.dumps(value).encode()
        if len(text) > self.max_value_bytes:
            allowed = f"max_value_bytes={self.max_value_bytes} are allowed"
            raise ValueError(f"the value of key {key} has {len(text)} bytes of JSON, {allowed}")
        self._payloads[key] = COMPRESS[self.compression](text)

    def __delitem__(self, key: int) -> None:
        del self._payloads[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._payloads)

    def __len__(self) -> int:
        return len(self._payloads)

    def __contains__(self, key: object) -> bool:
        return key in self._payloads

    def __repr__(self) -> str:
        size = sum(map(len, self._payloads.values()))
        return f"CompressedDictionary({len(self)} values, {size} bytes of {self.compression})"

    def dump(self, filepath: str | os.PathLike[str], limit: int | None = None) -> None:
        """Write the first `limit` values (None: all) to `filepath`, completely or not at all."""
        _write(filepath, self.compression, islice(self._payloads.items(), limit))

    @classmethod
    def load(
        cls, filepath: str | os.PathLike[str], limit: int | None = None, *, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> CompressedDictionary:
        """Read the first `limit` values (None: all) of a file; they stay compressed until they are asked for.

        Raises: as CompressedFile.
        """
        file = CompressedFile(filepath, max_value_bytes=max_value_bytes)
        return cls(file.compression, max_value_bytes=max_value_bytes)._with(islice(file.payloads(), limit))

    def split(
        self,
        parts: int | None = None,
        parts_length: int | None = None,
        drop_last: bool = False,
        reset_keys: bool = False,
        shuffle: bool = False,
        *,
        seed: int = 1234,
    ) -> Iterator[CompressedDictionary]:
        """Divide into dictionaries whose lengths differ by at most one; no value is decompressed.

        Args:
            parts: into how many; the first ones are the longer ones.
            parts_length: or the largest length of one part. Give one of the two.
            drop_last: leave out the last part if it is shorter than the first.
            reset_keys: number each part from 0.
            shuffle: shuffle the keys first, with `seed`.
        """
        if (parts is None) == (parts_length is None):
            raise ValueError(f"give either parts or parts_length, got parts={parts}, parts_length={parts_length}")
        if parts is None:
            parts = max(1, math.ceil(len(self) / at_least(1, "parts_length", parts_length)))
        keys = list(self)
        if shuffle:
            random.Random(seed).shuffle(keys)
        divided = np.array_split(np.array(keys, np.int64), at_least(1, "parts", parts))
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
        new = self._part(list(self), reset_keys)
        new.merge_(other, reset_keys)
        return new

    def merge_(self, other: CompressedDictionary, reset_keys: bool = True) -> None:
        """Add the values of `other` to this dictionary, whose own keys stay.

        Args:
            reset_keys: give the new values the smallest keys from 0 on that are free; else they keep theirs.

        Raises:
            ValueError: a common key when keys stay; nothing has been changed then.
        """
        if not reset_keys:
            _refuse_repeated([*self, *other])
        keys = filterfalse(self._payloads.__contains__, count()) if reset_keys else list(other)
        payloads = [
            _recompressed(payload, other.compression, self.compression, other.max_value_bytes, key)
            for key, payload in other._payloads.items()
        ]
        self._with(zip(keys, payloads, strict=False))

    @staticmethod
    def combine_on_disk(
        destination: str | os.PathLike[str],
        *dictionaries_files: str | os.PathLike[str],
        compression: str | None = None,
        reset_keys: bool = True,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        """Merge files into one, value by value: memory holds one value and the keys.

        Args:
            destination: the new file.
            dictionaries_files: the files, in order.
            compression: of the new file; None takes that of the first.
            reset_keys: number all values from 0; else keys stay.
            max_value_bytes: as in CompressedDictionary.

        Raises:
            ValueError: a common key when keys stay, no file at all.
        """
        if not dictionaries_files:
            raise ValueError("combine_on_disk needs at least one file to read")
        files = [CompressedFile(path, max_value_bytes=max_value_bytes) for path in dictionaries_files]
        new = _known(compression or files[0].compression)
        if not reset_keys:
            _refuse_repeated(np.concatenate([file.keys for file in files]))
        numbers = count()
        payloads = (
            (
                next(numbers) if reset_keys else key,
                _recompressed(payload, file.compression, new, max_value_bytes, key),
            )
            for file in files
            for key, payload in file.payloads()
        )
        _write(destination, new, payloads)

    def _part(self, keys: list[int], reset_keys: bool) -> CompressedDictionary:
        """A new dictionary with the values of these keys."""
        new = CompressedDictionary(self.compression, max_value_bytes=self.max_value_bytes)
        new_keys = range(len(keys)) if reset_keys else keys
        return new._with(zip(new_keys, map(self._payloads.__getitem__, keys), strict=True))

    def _with(self, payloads: Iterable[tuple[int, bytes]]) -> CompressedDictionary:
        self._payloads.update(payloads)
        return self


@njit(cache=True)
def _record_starts(data: NDArray[np.uint8], at: int) -> NDArray[np.int64]:
    """Where each record begins, and after them where the first damaged one does: the end of a file that is whole."""
    starts = [at]
    while at + 8 <= len(data):
        length = data[at] + 256 * (data[at + 1] + 256 * (data[at + 2] + 256 * data[at + 3]))
        if length < 4 or at + 4 + length > len(data):
            break
        at += 4 + length
        starts.append(at)
    return np.array(starts)


def _write(filepath: str | os.PathLike[str], compression: str, payloads: Iterable[tuple[int, bytes]]) -> None:
    header = json.dumps({"compression": compression}).encode()
    with atomic_write(filepath) as file:
        file.write(struct.pack("<I", len(header)) + header)
        for key, payload in payloads:
            file.write(struct.pack("<Ii", 4 + len(payload), key) + payload)


def _decoded(payload: bytes, compression: str, limit: int, key: int) -> Any:
    text = _decompressed(payload, compression, limit, key)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CompressedFormatError(f"the value of key {key} is not JSON: {error}") from None


def _recompressed(payload: bytes, old: str, new: str, limit: int, key: int) -> bytes:
    return payload if old == new else COMPRESS[new](_decompressed(payload, old, limit, key))


def _decompressed(payload: bytes, compression: str, limit: int, key: int) -> bytes:
    """At most `limit` bytes out of exactly one compressed stream."""
    stream = DECOMPRESSORS[compression]()
    try:
        data = stream.decompress(payload, limit + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CompressedFormatError(f"the value of key {key} is not {compression}: {error}") from None
    if len(data) > limit:
        what = f"grows beyond {limit} bytes; give a larger max_value_bytes if you trust the file"
    elif not stream.eof:
        what = "is cut off"
    elif stream.unused_data:
        what = "has bytes after its end"
    else:
        return data
    raise CompressedFormatError(f"the value of key {key} {what}")


def _known(compression: str) -> str:
    if compression not in COMPRESS:
        raise ValueError(f"compression must be one of {list(COMPRESS)}, got {compression!r}")
    return compression


def _repeated(keys: Iterable[int] | NDArray[np.int32]) -> list[int]:
    """The keys that occur more than once."""
    values, counts = np.unique(np.asarray(keys), return_counts=True)
    return values[counts > 1].tolist()


def _refuse_repeated(keys: Iterable[int] | NDArray[np.int32]) -> None:
    if repeated := _repeated(keys):
        raise ValueError(f"both have the key {repeated[0]}; pass reset_keys=True to number the values anew")
