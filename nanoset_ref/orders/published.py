"""Orders of runs that others have published: as the files lie, or by a file of instance numbers (see `base`).

Pythia's data lie in the order of training: position k reads instance k (`IdentityOrder`). OLMo shuffles the instances
once for each epoch, and saves the result as `global_indices.npy` (`PublishedOrder`). Nothing is built or stored here. A
file of numbers stays on disk; opening it reads it once, 4 bytes per sample, and so does the way back from a sample.
"""

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.files import PathLike, checksum
from nanoset_ref.orders.base import Int64Array, NumberedOrder, Order, Pairs

logger = logging.getLogger(__name__)


class IdentityOrder(Order):
    """Position k reads instance k, and after the last one instance 0 again.

    Raises:
        ValueError: see `Order`; weights were given.
    """

    name = "identity"
    keeps_shares = False
    repeats = True

    def lookup(self, positions: Int64Array) -> Pairs:
        return self.pairs(positions % self.samples_per_epoch)

    def _positions(self, dataset: int, sample: int, until: int) -> Int64Array:
        return np.arange(self.firsts[dataset] + sample, until, self.samples_per_epoch)


class PublishedOrder(NumberedOrder):
    """Position k reads the instance whose number is the k-th in a file.

    Args:
        dataset_lengths, dataset_weights, num_samples, random_seed: see `Order`, in this order; the weights are None,
            and the seed changes nothing.
        path: the file: one-dimensional .npy, or raw uint32 without a header, as OLMo writes it in spite of its name.

    Attributes:
        name: the path. checksum: of the file, part of the fingerprint.

    Raises:
        ValueError: see `IdentityOrder`; the file holds something else than whole numbers, fewer of them than
            num_samples, or one that is no instance.
    """

    keeps_shares = False

    def __init__(self, *order_arguments: Any, path: PathLike) -> None:
        self.name = str(path)
        super().__init__(*order_arguments)

    def _build(self) -> None:
        self.numbers, self.checksum = open_numbers(self.name), checksum(self.name)
        given, instances = len(self.numbers), self.samples_per_epoch
        if self.num_samples > given:
            raise ValueError(f"{self.name} orders {given:,} samples, the run asks for {self.num_samples:,}")
        for number in (int(self.numbers.min()), int(self.numbers.max())):
            if not 0 <= number < instances:
                raise ValueError(f"{self.name} names instance {number:,}, these files have {instances:,} in all")
        if number < 0.99 * (instances - 1):
            logger.warning("%s names no instance after %d of %d: are these its files?", self.name, number, instances)

    def _identity(self) -> dict[str, object]:
        return super()._identity() | {"order": self.checksum}


def open_numbers(path: PathLike) -> NDArray[Any]:
    """The numbers in the file of a `PublishedOrder`, mapped: integers [n]."""
    header = np.fromfile(path, np.uint8, 6).tobytes() == b"\x93NUMPY"
    numbers: NDArray[Any] = np.load(path, mmap_mode="r") if header else np.memmap(path, dtype="<u4", mode="r")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"{path} must hold instance numbers [n], got {numbers.dtype} {list(numbers.shape)}")
    return numbers.view(np.ndarray)
