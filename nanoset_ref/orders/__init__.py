"""Orders: which sample stands at position k of the run. `build_order` makes one by name."""

from collections.abc import Sequence

from nanoset_ref.orders.base import Int64Array, Weights
from nanoset_ref.orders.base import Order as Order
from nanoset_ref.orders.nanotron import NanotronOrder as NanotronOrder
from nanoset_ref.orders.published import IdentityOrder as IdentityOrder
from nanoset_ref.orders.published import PublishedOrder as PublishedOrder
from nanoset_ref.orders.skipping import SkippingOrder as SkippingOrder
from nanoset_ref.orders.stateless import Ledger as Ledger
from nanoset_ref.orders.stateless import StatelessOrder as StatelessOrder

ORDERS: dict[str, type[Order]] = {
    order.name: order for order in (NanotronOrder, StatelessOrder, IdentityOrder)
}


def build_order(
    name: str,
    dataset_lengths: Sequence[int] | Int64Array,
    dataset_weights: Weights | None,
    num_samples: int,
    random_seed: int = 1234,
    **options: object,
) -> Order:
    """The order called `name`: "nanotron", "stateless", "identity", one of `orders.others`, or the path of an .npy
    file of instance numbers.

    `options` are that order's own keyword arguments; whole numbers may stand in its name, too:
    "olmo_core:chunk_size=2".

    Raises:
        ValueError: no order has that name; and what the order itself refuses.
    """
    if name.endswith(".npy"):
        return PublishedOrder(
            dataset_lengths, dataset_weights, num_samples, random_seed, path=name, **options
        )
    kind, _, given = name.partition(":")
    known = ORDERS
    if kind not in ORDERS:  # a run of ours imports none of the others
        from nanoset_ref.orders.others import OTHERS

        known = ORDERS | OTHERS
    if kind not in known:
        raise ValueError(
            f"there is no order {kind!r}; choose one of {', '.join(map(repr, known))}, or an .npy file"
        )
    for option in filter(None, given.split(",")):
        key, _, value = option.partition("=")
        if not value.isdecimal():
            raise ValueError(f"options of an order are name=number, got {option!r} in {name!r}")
        options[key] = int(value)
    return known[kind](dataset_lengths, dataset_weights, num_samples, random_seed, **options)
