"""Orders: which sample is at position k of the run. `build_order` makes one by name.

The default of a `Nanoset` and of the commands is "nanotron".
An order's module is imported when the order is asked for. To add one, write a module with a
subclass of `Order`, add the class to `__init__.pyi`, and its name and class to `ORDERS`.

base                      `Order`: checks, slices, counts, fingerprints; weights normalized
nanotron                  Nanotron's order (2024), built from the two below
greedy_blend, mt19937     its blend and its shuffle
stateless                 an order that stores nothing, built from the three below
share_tree, interleaving  exact shares, the source of each position
permutation               shuffles by formula
named_options             options in the name of an order, or beside it
order_check               checks that an order made beforehand belongs to the files
folders                   Nanotron's order over folders of files
published                 identity, and orders that a file lists
others                    orders of other loaders
traced_shuffle            a few values of NumPy's shuffle, without shuffling all of them
inverse                   the positions of many samples, in one pass
skipping                  an order without some of its positions
plans                     a run's tokens described as JSON; a state from another plan is refused
plots                     pictures and tables for notebooks
"""

from collections.abc import Sequence

import lazy_loader

from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.orders.base import Order, Weights

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
    """Build the order of this name: "nanotron", "stateless", "identity", one of `orders.others`, or
    the path of a .npy file of instance numbers.

    `options` are the order's own keyword arguments; integers may also be given in the name:
    "olmo_core:chunk_size=2".

    Raises:
        ValueError: no order has that name; the order does not have an option, or refuses its value.
    """
    order = find_order(name)
    if order is None or options or name.endswith(".npy"):
        # only names with options, and unknown ones, need it
        from nanoset_ref.orders.named_options import order_with_options

        order, options = order_with_options(name, options)
    return order(dataset_lengths, dataset_weights, num_samples, random_seed, **options)


def recipe_of(order: Order) -> Json | None:
    """The arguments of `build_order` that make this order again, as JSON; None: it cannot."""
    is_named = find_order(order.name) is type(order)
    return order.arguments if is_named else None


def find_order(name: str) -> type[Order] | None:
    """The class that `build_order` calls for a name without options; None: there is none."""
    # __getattr__ imports a class of `__init__.pyi`
    if name in ORDERS:
        return __getattr__(ORDERS[name])
    if name.endswith(".npy"):
        return __getattr__("PublishedOrder")
    # imported only when one of them is named
    from nanoset_ref.orders.others import OTHERS

    return OTHERS.get(name)
