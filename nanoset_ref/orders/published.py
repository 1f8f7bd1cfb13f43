"""Orders of published runs: the instances in file order, or as a file lists them (see `base`).

Pythia's files hold the samples in the order of training: position k reads instance k
(`IdentityOrder`). OLMo shuffles the instances once for each epoch, and saves their numbers as
`global_indices.npy` (`PublishedOrder`). Nothing is built or stored here. A file of numbers stays on
disk. Opening reads it once (4 bytes per sample); so does a plan's checksum, and so does each
inverse query.
"""

import functools
import logging
from typing import Any

import numpy as np
import xxhash

from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.paths import PathLike, file_size
from nanoset_ref.io.types import Array, Int64Array, Json
from nanoset_ref.orders.base import ListedOrder, Matches, Order, Pairs
from nanoset_ref.orders.inverse import POSITIONS_AT_ONCE, repeat_in_epochs

logger = logging.getLogger(__name__)


class IdentityOrder(Order):
    """Position k reads instance k, and after the last one instance 0 again.

    Raises:
        ValueError: see `Order`; weights were given.
    """

    name = "identity"
    endless = True
    keeps_shares = False
    same_epochs = True

    @property
    def identity(self) -> Json:
        """See `Order.identity`; the seed changes nothing."""
        return identity_of_instances(self.dataset_lengths)

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        return self.pairs(positions % self.samples_per_epoch)

    def reverse_lookup_each(
        self,
        sources: Int64Array,
        samples: Int64Array,
        until: int,
    ) -> Matches:
        """See `Order.reverse_lookup_each`."""
        instances = self.source_offsets[sources] + samples
        indices = np.arange(len(instances))
        return repeat_in_epochs(indices, instances, self.samples_per_epoch, until)


def identity_of_instances(dataset_lengths: Int64Array) -> Json:
    """The identity of an order that reads the instances one after another."""
    return {
        "kind": "identity",
        "algorithm": IdentityOrder.algorithm,
        "dataset_lengths": dataset_lengths.tolist(),
    }


class PublishedOrder(ListedOrder):
    """Position k reads the instance whose number is the k-th in a file.

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`, in this order; the
            weights are None, and the seed changes nothing.
        path: the file: one-dimensional .npy, or raw uint32 without a header, as OLMo writes it
            despite its name.

    Attributes:
        name: the path.
        checksum: of all numbers in the file, whatever their dtype and header; None if they are
            0, 1, 2, ..., epoch after epoch, which is the order "identity". Computed on first use,
            in one pass.

    Raises:
        ValueError: see `IdentityOrder`; the file is not a regular file, is empty, holds anything
            but whole numbers, fewer of them than num_samples, or a number that is no instance. In a
            lookup: the file was overwritten and now holds a number that is no instance.
    """

    endless = True
    keeps_shares = False

    def __init__(self, *order_arguments: Any, path: PathLike) -> None:
        self.name = str(path)
        super().__init__(*order_arguments)

    def build(self) -> None:
        """Read the instance numbers, and check that they fit the files."""
        self.instances = open_instances(self.name)
        listed = len(self.instances)
        if self.num_samples > listed:
            raise ValueError(
                f"{self.name} lists {listed:,} samples, but {self.num_samples:,} are requested: "
                "request fewer, or use a longer file"
            )
        largest = self._check_instances(self.instances)
        if largest < 0.99 * (self.samples_per_epoch - 1):
            logger.warning(
                "%s names no instance above %d of %d: are these the right files?",
                self.name,
                largest,
                self.samples_per_epoch,
            )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle a copy of all numbers in the file."""
        check_not_truncated(self.instances)
        return self.__dict__

    def _check_instances(self, instances: Array) -> int:
        """The largest of some instances; ValueError if one of them does not exist."""
        smallest = int(instances.min(initial=0))
        largest = int(instances.max(initial=0))
        extreme = smallest if smallest < 0 else largest
        if not 0 <= extreme < self.samples_per_epoch:
            raise ValueError(
                f"{self.name} names instance {extreme:,}, but these files have "
                f"{self.samples_per_epoch:,} in all: use the order that was made for them"
            )
        return largest

    @functools.cached_property
    def checksum(self) -> str | None:
        """The checksum of the file of instance numbers."""
        digest = xxhash.xxh3_128()
        is_identity = True
        for first in range(0, len(self.instances), POSITIONS_AT_ONCE):
            numbers = self.instances[first : first + POSITIONS_AT_ONCE].astype("<i8")
            digest.update(numbers.data)
            positions = np.arange(first, first + len(numbers))
            in_file_order = positions % self.samples_per_epoch
            is_identity &= np.array_equal(numbers, in_file_order)
        return None if is_identity else f"xxh3_128:{digest.hexdigest()}"

    @property
    def identity(self) -> Json:
        """The numbers; the path, the dtype and the seed change nothing."""
        identity = identity_of_instances(self.dataset_lengths)
        if self.checksum is not None:
            identity |= {"kind": "published", "numbers": self.checksum}
        return identity

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`. The numbers are checked again, because the file is mapped: if someone
        overwrites it in place, a kernel must not read outside of the token files.
        """
        check_not_truncated(self.instances)
        listed = len(self.instances)
        inside = np.minimum(positions, listed - 1)
        instances = self.instances[inside].astype(np.int64)
        self._check_instances(instances)
        if positions.max(initial=0) >= listed:
            # beyond the file: continue in file order, as `identity` does
            in_file_order = positions % self.samples_per_epoch
            instances = np.where(positions < listed, instances, in_file_order)
        return self.pairs(instances)


def open_instances(path: PathLike) -> Array:
    """Map the instances in the file of a `PublishedOrder`: integers [n], n at least 1.

    Raises:
        ValueError: no regular file (opening a pipe would block), no numbers, or not integers [n].
    """
    size = file_size(path)
    numbers: Array
    first_bytes = np.fromfile(path, np.uint8, 6).tobytes()
    if first_bytes == b"\x93NUMPY":
        numbers = np.load(path, mmap_mode="r")
    elif size == 0 or size % 4:
        raise ValueError(
            f"{path} must hold instance numbers as .npy or raw uint32; "
            f"it has {size:,} bytes: copy it again"
        )
    else:
        numbers = np.memmap(path, dtype="<u4", mode="r")
    is_whole = numbers.dtype.kind in "iu"
    if numbers.ndim != 1 or not is_whole or not len(numbers):
        raise ValueError(
            f"{path} must hold instance numbers [n], got {numbers.dtype} {list(numbers.shape)}"
        )
    return numbers.view(np.ndarray)
