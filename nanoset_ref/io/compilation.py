"""Compile a kernel with numba, and cache it under a checksum of all files that define kernels.

`io.njit` imports this file, and with it numba, when it compiles the first kernel.
"""

import functools
import logging
import os
from collections.abc import Callable
from glob import glob
from typing import Any

import numba
import xxhash
from numba.core.caching import CompileResultCacheImpl, FunctionCache

logger = logging.getLogger(__name__)
PACKAGE = os.path.dirname(os.path.dirname(__file__))
MARK = b"nanoset_ref.io.njit import njit"  # a file that defines kernels has this line


@functools.cache
def sources_checksum() -> str:
    """The checksum of all files that define kernels, and of their names; takes 3 ms per process."""
    digest = xxhash.xxh3_128()
    for name in sorted(glob("**/*.py", root_dir=PACKAGE, recursive=True)):
        with open(f"{PACKAGE}/{name}", "rb", buffering=0) as file:
            content = file.read()
        if MARK in content:
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


class _StampedImpl(CompileResultCacheImpl):
    """numba's cache, but its entries are valid while `sources_checksum` stays the same."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._locator.get_source_stamp = sources_checksum


class _StampedCache(FunctionCache):
    _impl_class = _StampedImpl


def make_dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Apply `numba.njit` to a function, with the cache that `io.njit` describes."""
    dispatcher = numba.njit(nogil=True, **options)(function)
    # they are the same if NUMBA_DISABLE_JIT is set
    if dispatcher is not function:
        try:
            dispatcher._cache = _StampedCache(function)
        except RuntimeError:  # numba can write neither beside the package nor in HOME
            _warn_of_no_cache()
    return dispatcher


@functools.cache
def _warn_of_no_cache() -> None:
    logger.warning(
        "no folder can be written in which compiled kernels are kept, so every process compiles them "
        "again; set NUMBA_CACHE_DIR to a folder that can be written"
    )
