"""Check that an order made before its dataset belongs to the dataset's files."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.orders.base import Order, Weights, normalize_weights


def check_order(
    order: Any, lengths: Sequence[int], num_samples: int, weights: Weights | None
) -> None:
    """Raise unless `order` is an Order over these files.

    Args:
        order: the caller's argument `order`.
        lengths: the samples of each file.
        num_samples: the samples of the run.
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
    if len(order) != num_samples or own_lengths != lengths:
        raise ValueError(
            f"the order has {len(order)} positions over sources of {own_lengths} samples; "
            f"train_split_num_samples is {num_samples}, and these files have {lengths}"
        )
    if weights is not None:
        own = order.dataset_weights
        given = normalize_weights(weights, len(own))
        if not np.allclose(given, own):
            raise ValueError(
                f"the order's own weights are {own.tolist()}, dataset_weights are {weights}: "
                "leave dataset_weights out"
            )
