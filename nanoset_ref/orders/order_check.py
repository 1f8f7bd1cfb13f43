"""Check that an order made before its dataset belongs to the dataset's files."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.orders.base import Order, Weights, normalize_weights


def check_order(
    order: Any,
    lengths: Sequence[int],
    num_samples: int | None,
    weights: Weights | None,
) -> None:
    """Raise unless `order` is an Order over these files.

    Args:
        order: the caller's argument `order`.
        lengths: the samples of each file.
        num_samples: the samples of the run, or None if the order decides.
        weights: the weights that were given beside the order, or None.

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
    if own_lengths != lengths:
        raise ValueError(
            f"the order has {len(order)} positions over sources of {own_lengths} samples, but "
            f"these files have {lengths}: build it with their lengths"
        )
    if num_samples not in (None, len(order)):
        raise ValueError(
            f"the order has {len(order)} positions, but train_split_num_samples is {num_samples}: "
            "leave train_split_num_samples out"
        )
    if weights is not None:
        own = order.dataset_weights
        given = normalize_weights(weights, len(own))
        if not np.allclose(given, own):
            raise ValueError(
                f"the order's own weights are {own.tolist()}, dataset_weights are {weights}: "
                "leave dataset_weights out"
            )
