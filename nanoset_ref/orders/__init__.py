"""Orders: which sample stands at position k of the run. `build_order` makes one by name.

An order's module is imported when the order is asked for. To add one: a module with a subclass of `Order`, its class in
`__init__.pyi`, its name in `ORDERS`.
"""

from collections.abc import Sequence

import lazy_loader

from nanoset_ref.orders.base import Int64Array, Order, Weights

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

ORDERS = {
    "nanotron": "NanotronOrder",
    "stateless": "StatelessOrder",
    "identity": "IdentityOrder",
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
        order: type[Order] = __getattr__("PublishedOrder")
        return order(
            dataset_lengths, dataset_weights, num_samples, random_seed, path=name, **options
        )
    kind, _, given = name.partition(":")
    for option in filter(None, given.split(",")):
        key, _, value = option.partition("=")
        if not value.isdecimal():
            raise ValueError(f"options of an order are name=number, got {option!r} in {name!r}")
        options[key] = int(value)
    if kind in ORDERS:
        order = __getattr__(ORDERS[kind])
    else:
        from nanoset_ref.orders.others import OTHERS  # imported only when one of them is named

        if kind not in OTHERS:
            known = ", ".join(map(repr, [*ORDERS, *OTHERS]))
            raise ValueError(f"there is no order {kind!r}; choose one of {known}, or an .npy file")
        order = OTHERS[kind]
    return order(dataset_lengths, dataset_weights, num_samples, random_seed, **options)
