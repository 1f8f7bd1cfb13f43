"""Paths with weights in one value: {path: weight}, as in a YAML file."""

from collections.abc import Mapping
from typing import Any


def separate_weights(paths: Any, weights: Any) -> tuple[Any, Any]:
    """The paths and the weights of {path: weight}; other paths and their weights as they are.

    Raises:
        ValueError: the mapping has weights, and there are others.
    """
    if not isinstance(paths, Mapping):
        return paths, weights
    if weights is not None:
        raise ValueError("the mapping has weights: leave dataset_weights out")
    return list(paths), list(paths.values())
