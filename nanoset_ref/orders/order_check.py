"""Check that an order made before its dataset belongs to the dataset's files."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.orders.base import Order, Weights, normalize_weights


def check_order(
    order: Any,
    dataset_lengths: Sequence[int],
    dataset_weights: Weights | None,
    num_samples: int | None,
) -> None:
    """Raise unless `order` is an Order over these files.

    Args:
        order: the caller's argument `order`.
        dataset_lengths: the samples of each file.
        dataset_weights: the weights that were given beside the order, or None.
        num_samples: the samples of the run, or None if the order decides.

    Raises:
        TypeError: it is neither a name nor an `Order`.
        ValueError: it has other lengths, another number of samples, or other weights.
    """
    if not isinstance(order, Order):
        raise TypeError(
            "order must be a name, such as 'stateless', or an Order over these files, such as "
            f"StatelessOrder(lengths, weights, num_samples, seed); got {order!r:.200}"
        )
    own_lengths = order.dataset_lengths.tolist()
    if own_lengths != dataset_lengths:
        raise ValueError(
            f"the order has {len(order)} positions over sources of {own_lengths} samples, but "
            f"these files have {dataset_lengths}: build it with their lengths"
        )
    if num_samples not in (None, len(order)):
        raise ValueError(
            f"the order has {len(order)} positions, but train_split_num_samples is {num_samples}: "
            "leave train_split_num_samples out"
        )
    if dataset_weights is not None:
        own = order.dataset_weights
        given = normalize_weights(dataset_weights, len(own))
        if not np.allclose(given, own):
            raise ValueError(
                f"the order's own weights are {own.tolist()}, dataset_weights are "
                f"{dataset_weights}: leave dataset_weights out"
            )
