import collections.abc
import typing

from .base import Int64Array as Int64Array
from .base import Order as Order
from .base import Weights as Weights
from .nanotron import NanotronOrder as NanotronOrder
from .published import IdentityOrder as IdentityOrder
from .published import PublishedOrder as PublishedOrder
from .skipping import SkippingOrder as SkippingOrder
from .stateless import Ledger as Ledger
from .stateless import StatelessOrder as StatelessOrder

def build_order(
    name: str,
    dataset_lengths: collections.abc.Sequence[int] | Int64Array,
    dataset_weights: Weights | None,
    num_samples: int,
    random_seed: int = 1234,
    **options: object,
) -> Order: ...
def recipe_of(order: Order) -> dict[str, typing.Any] | None: ...
def find_order(name: str) -> type[Order] | None: ...
