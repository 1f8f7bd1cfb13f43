"""Nanotron's order over folders of files."""

from collections.abc import Sequence

import numpy as np

from nanoset_ref.io.types import Json
from nanoset_ref.orders.base import ListedOrder
from nanoset_ref.orders.nanotron import NanotronOrder


class FolderOrder(ListedOrder):
    """The order over folders, expressed over their files: it reads the same instances.

    Args:
        folder_order: the order over folders, whose lengths are the sums of `file_lengths`.
        file_lengths: per folder, the samples of each of its files.
    """

    name = "folders"
    endless = True
    same_epochs = True

    def __init__(
        self, folder_order: NanotronOrder, file_lengths: Sequence[Sequence[int]]
    ) -> None:
        self.folder_order = folder_order
        self.instances = folder_order.instances  # shared, so there is nothing to build
        samples = np.maximum(folder_order.dataset_lengths, 1)
        sample_weights = folder_order.dataset_weights / samples
        lengths: list[int] = []
        weights = []
        for weight, folder in zip(sample_weights, file_lengths, strict=True):
            lengths += folder
            weights += [weight * length for length in folder]
        super().__init__(lengths, weights, len(folder_order), folder_order.random_seed)
        # an epoch reads the first samples of a weighted folder, which lie in its first files
        if folder_order.weighted and max(map(len, file_lengths)) > 1:
            self.keeps_shares = False

    @property
    def identity(self) -> Json:
        """The identity of the order over folders, and the lengths of all their files."""
        lengths = self.dataset_lengths.tolist()
        return self.folder_order.identity | {"kind": self.name, "file_lengths": lengths}
