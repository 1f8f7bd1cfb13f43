"""An order's options: in its name, as in "olmo_core:chunk_size=2", or as keyword arguments."""

import inspect

from nanoset_ref.io.checks import unknown_key_problem
from nanoset_ref.orders import ORDERS, Order, find_order  # type: ignore[attr-defined]


def order_with_options(
    name: str, options: dict[str, object]
) -> tuple[type[Order], dict[str, object]]:
    """The class of an order, and all of its options; see `build_order`.

    Raises:
        ValueError: no order has that name, or the order does not have an option.
    """
    if name.endswith(".npy"):
        kind = name
        options = {**options, "path": name}
    else:
        kind, _, listed = name.partition(":")
        named = _options_in_name(name, listed)
        for key in named.keys() & options:
            raise ValueError(f"the order {name!r}: {key} is given twice; leave one out")
        options = options | named
    order = find_order(kind)
    if order is None:
        from nanoset_ref.orders.others import OTHERS  # only the message needs them

        known = [*ORDERS, *OTHERS]
        raise ValueError(
            f"the order {kind!r}: {unknown_key_problem(kind, known, 'order')} "
            f"(choose one of {str(known)[1:-1]}, or a .npy file)"
        )
    names = inspect.getfullargspec(order).kwonlyargs
    for key in options:
        if key not in names:
            raise ValueError(
                f"the order {kind!r}: {key}: {unknown_key_problem(key, names)}"
            )
    return order, options


def _options_in_name(name: str, listed: str) -> dict[str, object]:
    """The options in a name: a=1,b=2 -> {"a": 1, "b": 2}."""
    options: dict[str, object] = {}
    for option in filter(None, listed.split(",")):
        key, _, value = option.partition("=")
        if key in options or not value.isdecimal():
            raise ValueError(
                f"options of an order are name=number, each once, got {option!r} in {name!r}"
            )
        options[key] = int(value)
    return options
