"""The file of a compressed dictionary: a run of records, read through a memory map.

Each record is a little-endian unsigned 32-bit length followed by that many bytes. The first one is the JSON header
`{"compression": "bz2"}`; every other one is a signed 32-bit key followed by the compressed UTF-8 JSON of one value:

    16 00 00 00  {"compression": "bz2"}
    29 00 00 00  00 00 00 00  42 5a 68 39 ...          key 0, a bz2 stream of 0x29 - 4 bytes

bz2, xz and gzip are the format of the package compressed-dictionary and files go both ways; zstd is ours.

A file may come from anywhere: it holds JSON and nothing that can run, every length is checked against the file, and a
value that grows beyond `max_value_bytes` stops being decompressed there. In memory it takes 12 bytes per entry. The
rejected alternative, one compressed stream for everything, is several times smaller and has no random access.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any

import numpy as np
import zstandard
from numba import njit
from numpy.typing import NDArray

MAX_VALUE_BYTES = 64 << 20
MAX_HEADER_BYTES = 4096


class _Zstd(threading.local):
    """The contexts of one thread; to make them takes twenty times as long as to use them on a small value."""

    def __init__(self) -> None:
        self.compressor, self.decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()


_zstd = _Zstd()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "gzip": lambda data: gzip.compress(data, mtime=0),  # the same bytes at every time of day
    "zstd": lambda data: _zstd.compressor.compress(data),
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
        return decode(self._payload(place), self.compression, self.max_value_bytes, int(self.keys[place]))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(CompressedFile, max_value_bytes=self.max_value_bytes), (self.filepath,)

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
            return known(header["compression"]), 4 + length
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = 'the header is not {"compression": ...}'
            raise CompressedFormatError(f"{self.filepath}: {what}: {error}") from None


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


def decode(payload: bytes, compression: str, limit: int, key: int) -> Any:
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


def recompressed(payload: bytes, old: str, new: str, limit: int) -> bytes:
    if old == new:
        return payload
    try:
        return COMPRESS[new](_decompress(payload, old, limit))
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise CompressedFormatError(f"a value is not {old}: {error}") from None


def write_header(file: IO[bytes], compression: str) -> None:
    write_record(file, json.dumps({"compression": compression}).encode(), b"")


def write_record(file: IO[bytes], head: bytes, payload: bytes) -> None:
    file.write(struct.pack("<I", len(head) + len(payload)))
    file.write(head)
    file.write(payload)


def known(compression: str) -> str:
    if compression not in COMPRESS:
        raise ValueError(f"compression must be one of {list(COMPRESS)}, got {compression!r}")
    return compression
