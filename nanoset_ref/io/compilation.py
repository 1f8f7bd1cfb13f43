"""numba, for `kernels`, which imports this file when it compiles the first kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from nanoset_ref.io.kernels import sources_checksum


class _StampedImpl(CompileResultCacheImpl):
    """Lies where numba would put it; the stamp that makes an entry valid is `sources_checksum`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._locator.get_source_stamp = sources_checksum


class _StampedCache(FunctionCache):
    _impl_class = _StampedImpl


def compiled(function: Callable[..., Any], cache: bool, options: dict[str, Any]) -> Any:
    """`numba.njit` of a function, with the cache described in `kernels`."""
    dispatcher = numba.njit(**options)(function)
    if cache and dispatcher is not function:  # it is where NUMBA_DISABLE_JIT is set
        dispatcher._cache = _StampedCache(function)
    return dispatcher
