"""A dictionary of int keys and JSON values that keeps every value compressed, and its file.

The file is a run of records, each a little-endian unsigned 32-bit length followed by that many bytes. The first record
is the JSON header `{"compression": "bz2"}`; every other record is a signed 32-bit key followed by the compressed UTF-8
JSON text of one value:

    16 00 00 00  {"compression": "bz2"}
    29 00 00 00  00 00 00 00  42 5a 68 39 ...          key 0, a bz2 stream of 0x29 - 4 bytes

bz2, xz and gzip are the format of the package compressed-dictionary and files go both ways; zstd is ours.

A file may come from anywhere: it holds JSON and nothing that can run, every length is checked against the file, and a
value that grows beyond `max_value_bytes` stops being decompressed there. What grows with the file is 12 bytes per
entry for `CompressedFile` and the compressed values for `CompressedDictionary`; neither depends on the largest key.
The rejected alternative, one compressed stream for everything, is several times smaller and has no random access.
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
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import count, filterfalse, islice
from typing import IO, Any

import numpy as np
import zstandard
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.files import atomic_write

MAX_VALUE_BYTES = 64 << 20
MAX_HEADER_BYTES = 4096
KEYS = range(-(2**31), 2**31)


class _Zstd(threading.local):
    """The contexts of one thread; to make them takes twenty times as long as to use them on a small value."""

    def __init__(self) -> None:
        self.compressor, self.decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()


_zstd = _Zstd()
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "gzip": lambda data: gzip.compress(data, mtime=0),  # the same bytes at every time of day
    "zstd": lambda data: _zstd.compressor.compress(data),
}


class CompressedFormatError(ValueError):
    """A file or a value that is not what the format allows: truncated, damaged, of unknown compression, or a bomb."""


class CompressedDictionary(MutableMapping[int, Any]):
    """A dict from int to any JSON value; values are compressed when set and decompressed when read.

    Args:
        compression: "bz2", "xz", "gzip" or "zstd".
        max_value_bytes: the largest JSON text of one value, in bytes.

    Keys are checked to fit in 32 bits (the file stores them so). Values are what `json` makes of them: a tuple comes
    back as a list. Iteration is in order of insertion.

    Raises:
        ValueError: unknown compression; a key outside [-2**31, 2**31); a value beyond `max_value_bytes`.
        TypeError: a key that is no integer, a value that is not JSON.
        CompressedFormatError: on reading a damaged value or one beyond `max_value_bytes`.
    """

    def __init__(self, compression: str = "bz2", *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.compression = _known(compression)
        self.max_value_bytes = max_value_bytes
        self._payloads: dict[int, bytes] = {}

    def __getitem__(self, key: int) -> Any:
        return _decode(self._payloads[key], self.compression, self.max_value_bytes, key)

    def __setitem__(self, key: int, value: Any) -> None:
        text = json.dumps(value).encode()
        if len(text) > self.max_value_bytes:
            allowed = f"max_value_bytes={self.max_value_bytes} are allowed"
            raise ValueError(f"the value of key {key} has {len(text)} bytes of JSON, {allowed}")
        self._payloads[_checked(key)] = _COMPRESS[self.compression](text)

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
        with atomic_write(filepath) as file:
            _write_header(file, self.compression)
            for key, payload in islice(self._payloads.items(), limit):
                _write_record(file, struct.pack("<i", key), payload)

    @classmethod
    def load(
        cls, filepath: str | os.PathLike[str], limit: int | None = None, *, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> CompressedDictionary:
        """Read the first `limit` values (None: all) of a file; their decompression waits until they are asked for.

        Raises:
            FileNotFoundError: no such file.
            CompressedFormatError: not such a file, a record beyond its end, the same key twice.
        """
        file = CompressedFile(filepath, max_value_bytes=max_value_bytes)
        new = cls(file.compression, max_value_bytes=max_value_bytes)
        new._payloads = dict(islice(file.payloads(), limit))
        return new

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
            parts = max(1, math.ceil(len(self) / _positive("parts_length", parts_length)))
        _positive("parts", parts)
        keys = list(self)
        if shuffle:
            random.Random(seed).shuffle(keys)
        short, longer = divmod(len(keys), parts)
        bounds = [0, *np.cumsum([short + (part < longer) for part in range(parts)]).tolist()]
        dropped = int(drop_last and parts > 1 and longer > 0)

        def divided() -> Iterator[CompressedDictionary]:
            for part in range(parts - dropped):
                new = CompressedDictionary(self.compression, max_value_bytes=self.max_value_bytes)
                for place, key in enumerate(keys[bounds[part] : bounds[part + 1]]):
                    new._payloads[place if reset_keys else key] = self._payloads[key]
                yield new

        return divided()

    def merge(self, other: CompressedDictionary, reset_keys: bool = True) -> CompressedDictionary:
        """A new dictionary, compressed as this one, with the values of both.

        Args:
            other: values of another compression are compressed anew.
            reset_keys: number everything from 0, first this one's values, then the other's; else keys stay.

        Raises:
            ValueError: a common key when keys stay.
        """
        new = CompressedDictionary(self.compression, max_value_bytes=self.max_value_bytes)
        if reset_keys:
            new._payloads = dict(enumerate(self._payloads.values()))
        else:
            new._payloads = dict(self._payloads)
        new.merge_(other, reset_keys)
        return new

    def merge_(self, other: CompressedDictionary, reset_keys: bool = True) -> None:
        """Add the values of `other` to this dictionary, whose own keys stay.

        Args:
            reset_keys: give the new values the smallest keys from 0 on that are free; else they keep theirs.

        Raises:
            ValueError: a common key when keys stay; nothing has been changed then.
        """
        keys: Iterable[int] = list(other)
        if reset_keys:
            keys = filterfalse(frozenset(self._payloads).__contains__, count())
        else:
            _no_common_key(self._payloads.keys() & other._payloads.keys())
        payloads = [
            _recompressed(payload, other.compression, self.compression, other.max_value_bytes)
            for payload in other._payloads.values()
        ]
        self._payloads.update(zip(map(_checked, keys), payloads, strict=False))

    @staticmethod
    def combine_on_disk(
        destination: str | os.PathLike[str],
        *dictionaries_files: str | os.PathLike[str],
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
        files = [CompressedFile(path) for path in dictionaries_files]
        compression = files[0].compression if compression is None else _known(compression)
        seen: set[int] = set()
        numbers = count()
        with atomic_write(destination) as out:
            _write_header(out, compression)
            for file in files:
                if not reset_keys:
                    keys = set(file.keys.tolist())
                    _no_common_key(seen & keys)
                    seen |= keys
                for key, payload in file.payloads():
                    new_key = _checked(next(numbers)) if reset_keys else key
                    payload = _recompressed(payload, file.compression, compression, file.max_value_bytes)
                    _write_record(out, struct.pack("<i", new_key), payload)


class CompressedFile:
    """A file of compressed values, read through a memory map: nothing but keys and places is kept in memory.

    Args:
        filepath: the file.
        max_value_bytes: as in CompressedDictionary.

    Attributes:
        compression: as the header says.
        keys: int32 [n], in file order.

    `file[i]` is the i-th value in file order, decompressed. The object can be sent to other processes, which map the
    file themselves.

    Raises:
        FileNotFoundError: no such file.
        CompressedFormatError: a header that is none, a record beyond the end of the file, the same key twice.
    """

    def __init__(self, filepath: str | os.PathLike[str], *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.filepath = os.fspath(filepath)
        self.max_value_bytes = max_value_bytes
        with open(self.filepath, "rb") as file:
            if os.fstat(file.fileno()).st_size < 4:
                raise CompressedFormatError(f"{self.filepath}: too short for a header; not a compressed dictionary")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.compression, begin = self._read_header()
        # self._starts[i] is the byte of the i-th record's length
        self._starts, self.keys, damaged = _records(np.frombuffer(self._map, np.uint8), begin)
        if damaged >= 0:
            what = "is shorter than a key or goes beyond the end of the file"
            raise CompressedFormatError(f"{self.filepath}: the record at byte {damaged} {what}")
        sorted_keys = np.sort(self.keys)
        twice = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
        if len(twice):
            raise CompressedFormatError(f"{self.filepath}: key {sorted_keys[twice[0]]} stands in it more than once")

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, place: int) -> Any:
        place = range(len(self))[place]
        return _decode(self._payload(place), self.compression, self.max_value_bytes, int(self.keys[place]))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.filepath, self.max_value_bytes)

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """(key, compressed value) in file order."""
        for place, key in enumerate(self.keys.tolist()):
            yield key, self._payload(place)

    def _payload(self, place: int) -> bytes:
        begin = int(self._starts[place])
        (length,) = struct.unpack_from("<I", self._map, begin)
        return self._map[begin + 8 : begin + 4 + length]

    def _read_header(self) -> tuple[str, int]:
        """The compression, and the byte at which the records begin."""
        (length,) = struct.unpack_from("<I", self._map)
        if length > min(MAX_HEADER_BYTES, len(self._map) - 4):
            raise CompressedFormatError(f"{self.filepath}: a header of {length} bytes; not a compressed dictionary")
        try:
            header = json.loads(self._map[4 : 4 + length])
            return _known(header["compression"]), 4 + length
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = 'the header is not {"compression": ...}'
            raise CompressedFormatError(f"{self.filepath}: {what}: {error}") from None


def _reopened(filepath: str, max_value_bytes: int) -> CompressedFile:
    return CompressedFile(filepath, max_value_bytes=max_value_bytes)


@njit(cache=True)
def _records(data: NDArray[np.uint8], begin: int) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """Where every record begins, its key, and the byte of the first damaged record (-1: there is none)."""
    starts, keys = np.empty(1024, np.int64), np.empty(1024, np.int32)
    found, at = 0, begin
    while at < len(data):
        length = _uint32(data, at) if at + 8 <= len(data) else np.int64(0)
        if length < 4 or at + 4 + length > len(data):
            return starts[:0], keys[:0], at
        if found == len(starts):
            starts = np.concatenate((starts, np.empty(found, np.int64)))
            keys = np.concatenate((keys, np.empty(found, np.int32)))
        starts[found], keys[found] = at, np.int32(_uint32(data, at + 4))
        found += 1
        at += 4 + int(length)
    return starts[:found].copy(), keys[:found].copy(), -1


@njit(cache=True)
def _uint32(data: NDArray[np.uint8], at: int) -> np.int64:
    """Four bytes, little end first."""
    low, high = data[at : at + 2].astype(np.int64), data[at + 2 : at + 4].astype(np.int64)
    return low[0] | low[1] << 8 | high[0] << 16 | high[1] << 24


def _decode(payload: bytes, compression: str, limit: int, key: int) -> Any:
    try:
        return json.loads(_decompress(payload, compression, limit))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise CompressedFormatError(f"the value of key {key} is not {compression} of JSON: {error}") from None


def _decompress(payload: bytes, compression: str, limit: int) -> bytes:
    """At most `limit` bytes out of exactly one compressed stream."""
    if compression == "zstd":
        size = zstandard.frame_content_size(payload)
        if size > limit:
            raise _too_large(limit)
        return _zstd.decompressor.decompress(payload, max_output_size=limit, allow_extra_data=False)
    stream: Any
    if compression == "gzip":
        stream = zlib.decompressobj(wbits=31)
    else:
        xz = compression == "xz"
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 28) if xz else bz2.BZ2Decompressor()
    data = stream.decompress(payload, limit + 1)
    if len(data) > limit:
        raise _too_large(limit)
    if not stream.eof or stream.unused_data:
        raise ValueError("the stream is cut off" if not stream.eof else "bytes follow the end of the stream")
    return data


def _too_large(limit: int) -> ValueError:
    return ValueError(f"it grows beyond {limit} bytes; give a larger max_value_bytes if you trust the file")


def _recompressed(payload: bytes, old: str, new: str, limit: int) -> bytes:
    return payload if old == new else _COMPRESS[new](_decompress(payload, old, limit))


def _write_header(file: IO[bytes], compression: str) -> None:
    _write_record(file, json.dumps({"compression": compression}).encode(), b"")


def _write_record(file: IO[bytes], head: bytes, payload: bytes) -> None:
    file.write(struct.pack("<I", len(head) + len(payload)))
    file.write(head)
    file.write(payload)


def _known(compression: str) -> str:
    if compression not in _COMPRESS:
        raise ValueError(f"compression must be one of {list(_COMPRESS)}, got {compression!r}")
    return compression


def _checked(key: int) -> int:
    key = operator.index(key)
    if key not in KEYS:
        raise ValueError(f"keys are stored in 32 signed bits, -2**31 <= key < 2**31; got {key}")
    return key


def _positive(name: str, value: int | None) -> int:
    if value is None or value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def _no_common_key(common: set[int]) -> None:
    if common:
        raise ValueError(f"both have the key {min(common)}; pass reset_keys=True to number the values anew")
