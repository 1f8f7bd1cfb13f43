"""`njit` for the kernels of this package: numba's, with a cache on disk that no change of a source makes stale.

numba keeps what it compiled until the file of a function changes. But a kernel has functions of other
files inlined (`permutation.derive` in `windows.locate`), and goes on running their old code. Here every
cached kernel is keyed on the content of all files of the package that hold kernels, so that a change of
one compiles all of them again. Time stamps decide nothing, and numba's settings stay as they are.
"""

import functools
import os
from collections.abc import Callable
from glob import glob
from typing import Any

import numba
import xxhash
from numba.core.caching import CompileResultCacheImpl, FunctionCache

PACKAGE = os.path.dirname(os.path.dirname(__file__))
MARK = b"nanoset_ref.io.kernels import njit"  # a file that holds kernels has this line


@functools.cache
def sources_checksum() -> str:
    """The content of all files that hold kernels, and their names. It takes 3 ms, once in a process."""
    digest = xxhash.xxh3_128()
    for name in sorted(glob("**/*.py", root_dir=PACKAGE, recursive=True)):
        with open(f"{PACKAGE}/{name}", "rb", buffering=0) as file:
            content = file.read()
        if MARK in content:
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


class _StampedImpl(CompileResultCacheImpl):
    """Lies where numba would put it; the stamp that makes an entry valid is `sources_checksum`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._locator.get_source_stamp = sources_checksum


class _StampedCache(FunctionCache):
    _impl_class = _StampedImpl


def njit(*functions: Callable[..., Any], cache: bool = False, **options: Any) -> Any:
    """As `numba.njit`, with or without options; with `cache`, the cache described above."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if cache and dispatcher is not function:  # it is where NUMBA_DISABLE_JIT is set
            dispatcher._cache = _StampedCache(function)
        return dispatcher

    return compiled(*functions) if functions else compiled
