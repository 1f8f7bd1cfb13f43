"""Compile a kernel with numba, and cache it under a checksum of all files that define kernels.

`io.njit` imports this file, and with it numba, when it compiles the first kernel.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable
from glob import glob
from typing import Any

import numba
import numpy as np
import xxhash
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.extending import overload

from nanoset_ref.io.item_loops import any_of, count_bits, each
from nanoset_ref.io.njit import numba_lock

logger = logging.getLogger(__name__)
PACKAGE = os.path.dirname(os.path.dirname(__file__))
# a file that defines kernels has this line
KERNEL_IMPORT = b"nanoset_ref.io.njit import njit"


@functools.cache
def sources_checksum() -> str:
    """The checksum of all files that define kernels, and of their names; takes 3 ms per process."""
    digest = xxhash.xxh3_128()
    for name in sorted(glob("**/*.py", root_dir=PACKAGE, recursive=True)):
        with open(f"{PACKAGE}/{name}", "rb", buffering=0) as file:
            content = file.read()
        if KERNEL_IMPORT in content:
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


class _ChecksummedImpl(CompileResultCacheImpl):
    """numba's cache, but its entries are valid while `sources_checksum` stays the same.

    Both files of an entry hold the checksum, because numba writes the index first: a process that
    is killed in between leaves a new index beside old code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._locator.get_source_stamp = sources_checksum

    def reduce(self, result: Any) -> Any:
        """What is stored of a compiled kernel, with the checksum."""
        return sources_checksum(), super().reduce(result)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """A compiled kernel from the cache; None if it belongs to other sources."""
        stamp, result = payload
        if stamp != sources_checksum():
            return None
        return super().rebuild(target_context, result)


class _ChecksummedCache(FunctionCache):
    """A cache that cannot be read or written costs time but stops no run."""

    _impl_class = _ChecksummedImpl

    def load_overload(self, types: Any, context: Any) -> Any:
        """See numba; None also for a cache that cannot be read."""
        try:
            result = super().load_overload(types, context)
            # processes that compile for different types at once may write to the same file
            if result and result.signature.args == types:
                return result
        except OSError:
            pass
        except Exception:  # a damaged file raises anything
            with contextlib.suppress(OSError):
                self.flush()
        return None

    def save_overload(self, *arguments: Any) -> None:
        """See numba; a cache that cannot be written is logged."""
        try:
            super().save_overload(*arguments)
        except OSError as error:
            _warn_of_no_cache(error.strerror)


def make_dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Apply `numba.njit` to a function, with the cache that `io.njit` describes."""
    dispatcher = numba.njit(nogil=True, **options)(function)
    # they are the same if NUMBA_DISABLE_JIT is set
    if dispatcher is not function:
        try:
            dispatcher._cache = _ChecksummedCache(function)
        except RuntimeError:  # numba can write neither beside the package nor in HOME
            _warn_of_no_cache("no folder can be written")
        compile = dispatcher._compile_for_args

        def compile_alone(*arguments: Any) -> Any:
            with numba_lock:  # imports numba's extensions at first
                return compile(*arguments)

        dispatcher._compile_for_args = compile_alone
    return dispatcher


@functools.cache
def _warn_of_no_cache(why: str) -> None:
    """Log, once for each reason, that kernels are not cached."""
    logger.warning(
        "compiled kernels cannot be kept (%s), so every process compiles them again; set "
        "NUMBA_CACHE_DIR to a folder that can be written",
        why,
    )


@overload(each, inline="always")
def _each(n):
    return lambda n: range(n)


@overload(any_of, inline="always")
def _any_of(condition):
    return lambda condition: condition


@overload(count_bits)
def _count_bits(mask):
    def count_one_by_one(mask):
        """The compiler makes one instruction of it."""
        count = 0
        while mask:
            mask &= mask - np.uint64(1)
            count += 1
        return count

    return count_one_by_one
