"""Orders of runs that others have published: as the files lie, or by a file of instance numbers (see `base`).

Pythia's data lie in the order of training: position k reads instance k (`IdentityOrder`). OLMo shuffles the instances
once for each epoch, and saves the result as `global_indices.npy` (`PublishedOrder`). Nothing is built or stored here. A
file of numbers stays on disk; opening it reads it once, 4 bytes per sample, and so do the checksum
of a plan and the way back from a sample.
"""

import functools
import logging
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.files import PathLike, require_regular
from nanoset_ref.orders.base import BLOCK, Int64Array, NumberedOrder, Order, Pairs

logger = logging.getLogger(__name__)


class IdentityOrder(Order):
    """Position k reads instance k, and after the last one instance 0 again.

    Raises:
        ValueError: see `Order`; weights were given.
    """

    name = "identity"
    endless = True
    keeps_shares = False
    repeats = True

    @property
    def identity(self) -> dict[str, Any]:
        """As `Order.identity`: the seed changes nothing."""
        return identity_of_instances(self.dataset_lengths)

    def lookup(self, positions: Int64Array) -> Pairs:
        return self.pairs(positions % self.samples_per_epoch)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        return np.arange(self.firsts[dataset] + sample, until, self.samples_per_epoch)


def identity_of_instances(
    dataset_lengths: Int64Array, checksum: str | None = None
) -> dict[str, Any]:
    """The identity of an order that reads instances as they lie, or, with a checksum, as published numbers say."""
    read = {"kind": "identity"} if checksum is None else {"kind": "published", "numbers": checksum}
    return {
        **read,
        "algorithm": IdentityOrder.algorithm,
        "dataset_lengths": dataset_lengths.tolist(),
    }


class PublishedOrder(NumberedOrder):
    """Position k reads the instance whose number is the k-th in a file.

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`, in this order; the weights are None,
            and the seed changes nothing.
        path: the file: one-dimensional .npy, or raw uint32 without a header, as OLMo writes it in spite of its name.

    Attributes:
        name: the path.
        checksum: of all numbers in the file, whatever their dtype and header; None if they are 0, 1, 2, ..., epoch
            after epoch, which is the order "identity". Worked out when it is first asked for, in one pass.

    Raises:
        ValueError: see `IdentityOrder`; the file is no regular file, is empty or holds something else than whole
            numbers, fewer of them than num_samples, or one that is no instance. By a lookup: the file was overwritten
            since, and holds one now.
    """

    endless = True
    keeps_shares = False

    def __init__(self, *order_arguments: Any, path: PathLike) -> None:
        self.name = str(path)
        super().__init__(*order_arguments)

    def _build(self) -> None:
        self.numbers = open_numbers(self.name)
        given, instances = len(self.numbers), self.samples_per_epoch
        if self.num_samples > given:
            raise ValueError(
                f"{self.name} orders {given:,} samples, the run asks for {self.num_samples:,}"
            )
        largest = self._largest(self.numbers)
        if largest < 0.99 * (instances - 1):
            logger.warning(
                "%s names no instance after %d of %d: are these its files?",
                self.name,
                largest,
                instances,
            )

    def _largest(self, numbers: NDArray[Any]) -> int:
        """The largest of some numbers, of which each must be an instance."""
        largest = int(numbers.max(initial=0))
        for number in (int(numbers.min(initial=0)), largest):
            if not 0 <= number < self.samples_per_epoch:
                these = f"these files have {self.samples_per_epoch:,} in all"
                raise ValueError(
                    f"{self.name} names instance {number:,}, {these}: take the order made for them"
                )
        return largest

    @functools.cached_property
    def checksum(self) -> str | None:
        digest, in_line = xxhash.xxh3_128(), True
        for first in range(0, len(self.numbers), BLOCK):
            numbers = self.numbers[first : first + BLOCK].astype("<i8")
            digest.update(numbers.data)
            expected = np.arange(first, first + len(numbers)) % self.samples_per_epoch
            in_line = in_line and bool(np.array_equal(numbers, expected))
        return None if in_line else f"xxh3_128:{digest.hexdigest()}"

    @property
    def identity(self) -> dict[str, Any]:
        """The numbers; their path, their dtype and the seed change nothing."""
        return identity_of_instances(self.dataset_lengths, self.checksum)

    @property
    def recipe(self) -> dict[str, Any]:
        """As `Order.recipe`, with the path."""
        return {
            "name": self.name,
            "dataset_weights": None,
            "random_seed": self.random_seed,
            "options": {},
        }

    def lookup(self, positions: Int64Array) -> Pairs:
        """As `Order.lookup`. The numbers are checked again: they are mapped, and whoever overwrites
        the file in place would make a kernel read outside of the token files.
        """
        given = len(self.numbers)
        instances = self.numbers[np.minimum(positions, given - 1)].astype(np.int64)
        self._largest(instances)
        if (
            positions.max(initial=0) >= given
        ):  # a witness beyond the file, where the identity order would go on
            instances = np.where(positions < given, instances, positions % self.samples_per_epoch)
        return self.pairs(instances)


def open_numbers(path: PathLike) -> NDArray[Any]:
    """The numbers in the file of a `PublishedOrder`, mapped: integers [n], n at least 1.

    Raises:
        ValueError: no regular file (a pipe would be waited for); no numbers in it, or others than integers [n].
    """
    size = require_regular(path)
    header = np.fromfile(path, np.uint8, 6).tobytes() == b"\x93NUMPY"
    if not header and (size == 0 or size % 4):
        raise ValueError(
            f"{path} must hold instance numbers as .npy or raw uint32; it has {size:,} bytes: copy it again"
        )
    numbers: NDArray[Any] = (
        np.load(path, mmap_mode="r") if header else np.memmap(path, dtype="<u4", mode="r")
    )
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise ValueError(
            f"{path} must hold instance numbers [n], got {numbers.dtype} {list(numbers.shape)}"
        )
    return numbers.view(np.ndarray)
