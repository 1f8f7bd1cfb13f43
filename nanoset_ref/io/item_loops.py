"""Loops of kernels that NumPy does for all items at once while Python runs the kernel.

    for p in each(len(xs)):
        ys[p] = f(xs[p])

Compiled, p counts 0, 1, 2, and so on. In Python, the loop runs once, with p a slice of all items.
Both give the same results if the body only uses p as an index. `io.compilation` has the compiled
forms of these functions.
"""

from typing import Any

import numpy as np


def each(n: int) -> Any:
    """The indices of a loop over n items."""
    return (slice(n),)


def any_of(condition: Any) -> Any:
    """Whether a condition holds for an item, or for any of the items."""
    return np.any(condition)


def count_bits(mask: Any) -> Any:
    """The number of bits set in words (uint64)."""
    return np.bitwise_count(mask)
