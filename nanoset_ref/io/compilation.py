"""The import of numba: `io.njit` imports this file when it compiles the first kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from nanoset_ref.io.njit import sources_checksum


class _StampedImpl(CompileResultCacheImpl):
    """numba's cache, but its entries are valid while `sources_checksum` stays the same."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._locator.get_source_stamp = sources_checksum


class _StampedCache(FunctionCache):
    _impl_class = _StampedImpl


def make_dispatcher(function: Callable[..., Any], cache: bool, options: dict[str, Any]) -> Any:
    """Apply `numba.njit` to a function, with the cache that `io.njit` describes."""
    dispatcher = numba.njit(**options)(function)
    if cache and dispatcher is not function:  # they are the same if NUMBA_DISABLE_JIT is set
        dispatcher._cache = _StampedCache(function)
    return dispatcher
