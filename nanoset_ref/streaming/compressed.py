"""A dictionary of int keys and JSON values that keeps every value compressed.

What it holds is the compressed values: the largest key costs nothing. Its file is described in `records`. The rejected
alternative, values in blocks that are compressed together, saves more and has to decompress a block for each value.
"""

from __future__ import annotations

import json
import math
import operator
import os
import random
import struct
from collections.abc import Iterable, Iterator, MutableMapping
from itertools import count, filterfalse, islice
from typing import Any

import numpy as np

from nanoset_ref.files import atomic_write
from nanoset_ref.streaming.layout import at_least
from nanoset_ref.streaming.records import (
    COMPRESS,
    MAX_VALUE_BYTES,
    CompressedFile,
    decode,
    known,
    recompressed,
    write_header,
    write_record,
)

KEYS = range(-(2**31), 2**31)


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
        self.compression = known(compression)
        self.max_value_bytes = max_value_bytes
        self._payloads: dict[int, bytes] = {}

    def __getitem__(self, key: int) -> Any:
        return decode(self._payloads[key], self.compression, self.max_value_bytes, key)

    def __setitem__(self, key: int, value: Any) -> None:
        text = json.dumps(value).encode()
        if len(text) > self.max_value_bytes:
            allowed = f"max_value_bytes={self.max_value_bytes} are allowed"
            raise ValueError(f"the value of key {key} has {len(text)} bytes of JSON, {allowed}")
        self._payloads[_checked(key)] = COMPRESS[self.compression](text)

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
            write_header(file, self.compression)
            for key, payload in islice(self._payloads.items(), limit):
                write_record(file, struct.pack("<i", key), payload)

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
            parts = max(1, math.ceil(len(self) / at_least(1, "parts_length", parts_length)))
        at_least(1, "parts", parts)
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
        new.merge_(self, reset_keys)
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
            recompressed(payload, other.compression, self.compression, other.max_value_bytes)
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
        compression = files[0].compression if compression is None else known(compression)
        seen: set[int] = set()
        numbers = count()
        with atomic_write(destination) as out:
            write_header(out, compression)
            for file in files:
                if not reset_keys:
                    keys = set(file.keys.tolist())
                    _no_common_key(seen & keys)
                    seen |= keys
                for key, payload in file.payloads():
                    new_key = _checked(next(numbers)) if reset_keys else key
                    payload = recompressed(payload, file.compression, compression, file.max_value_bytes)
                    write_record(out, struct.pack("<i", new_key), payload)


def _checked(key: int) -> int:
    key = operator.index(key)
    if key not in KEYS:
        raise ValueError(f"keys are stored in 32 signed bits, -2**31 <= key < 2**31; got {key}")
    return key


def _no_common_key(common: set[int]) -> None:
    if common:
        raise ValueError(f"both have the key {min(common)}; pass reset_keys=True to number the values anew")
