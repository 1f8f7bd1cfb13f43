"""Random choices that are the same on every platform and Python version.

`random.Random.random()` is the one method whose sequence Python promises never to change, so everything here is made of
it and of IEEE arithmetic that no math library can round differently: +, *, / and sqrt, but no exp, log or pow. Each
document throws dice of its own, keyed by its name, so no document depends on how many choices another one made.
"""

import math
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """The random choices of one document, a pure function of `key` (any string)."""

    def __init__(self, key: str) -> None:
        self._unit = random.Random(key).random

    def below(self, stop: int) -> int:
        """An integer in [0, stop)."""
        return int(self._unit() * stop)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._unit() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def several(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items, in random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def heavy_tailed(self, low: int, high: int) -> int:
        """A length in [low, high] with density ~ length**(-5/3): most documents short, most words in the long ones."""
        unit = 1.0 - self._unit()
        return min(high, int(low / (unit * math.sqrt(unit))))
