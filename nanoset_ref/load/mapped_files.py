"""Mappings of token files, and which parts of them have been read, for `gather_kernel`.

A row comes from the page cache in one of two ways:

    1. by pread, for regions of 64 KiB that have not been read before: 1.7 us for 512 tokens. (A
       mapping would take 5: a page fault maps 16 pages, where the row needs one.)
    2. through a mapping of the file, for regions that have: 0.13 us.
"""

import mmap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.types import Int64Array, Uint8Array
from nanoset_ref.load.gather import OpenFiles
from nanoset_ref.load.gather_kernel import REGION_BYTES
from nanoset_ref.tokens import Tokens

MAX_REGIONS = 1 << 20  # beyond 64 GiB, regions share entries: some are mapped early


class FileArrays(NamedTuple):
    """The mapped files, for the kernel.

    Attributes:
        addresses: uint64 [files], of the mappings; 0: not mapped.
        itemsizes: int64 [files], bytes of an id, 2 or 4.
        header_bytes: int64 [files], bytes before the first id.
        first_regions: int64 [files], the number of each file's first region of REGION_BYTES.
        visited: uint8 [regions], 1 where a region has been read.
    """

    addresses: NDArray[np.uint64]
    itemsizes: Int64Array
    header_bytes: Int64Array
    first_regions: Int64Array
    visited: Uint8Array


class MappedFiles:
    """Mappings of the files that stay open.

    Args:
        files: the token files.
        open_files: their descriptors.

    Attributes:
        arrays: see `FileArrays`.
    """

    def __init__(self, files: Sequence[Tokens], open_files: OpenFiles) -> None:
        self._open_files = open_files
        self._mappings: list[mmap.mmap] = []
        num_tokens = [file.num_tokens for file in files]
        ends = open_files.header_bytes + open_files.itemsizes * num_tokens
        regions = -(-ends // REGION_BYTES)
        count = min(max(1, regions.sum()), MAX_REGIONS)
        self.arrays = FileArrays(
            addresses=np.zeros(len(files), dtype=np.uint64),
            itemsizes=open_files.itemsizes,
            header_bytes=open_files.header_bytes,
            first_regions=np.cumsum(regions) - regions,
            visited=np.zeros(count, dtype=np.uint8),
        )

    def map_opened(self) -> None:
        """Map the files that were opened since the last call.

        Scans of `TokenFile.tokens` use their own mapping and keep the system's read-ahead.
        """
        while self._open_files.unmapped:
            try:
                source = self._open_files.unmapped.popleft()
            except IndexError:
                return  # another thread took the last one
            descriptor = int(self._open_files.descriptors[source])
            try:
                mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            except ValueError:  # truncated to 0 bytes; the kernel reports it
                continue
            mapping.madvise(mmap.MADV_RANDOM)
            self._mappings.append(mapping)
            address = np.frombuffer(mapping, np.uint8).ctypes.data
            self.arrays.addresses[source] = address
