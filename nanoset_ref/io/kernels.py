"""`njit` for the kernels of this package: run by Python while they have little to do, and compiled by numba after that.

Importing numba takes half a second, compiling an order 6 seconds, and a question about a few rows
a millisecond in plain Python. So a kernel that is told how to count its `work` begins in Python, and
is compiled once it was given MOST_PLAIN units in all: whatever it is asked for, it takes at most
twice as long as if its future had been known. Every other kernel is compiled at its first call.

numba keeps what it compiled until the file of a function changes. But a kernel has functions of other
files inlined (`permutation.derive` in `windows.locate`), and goes on running their old code. Here every
cached kernel is keyed on the content of all files of the package that hold kernels, so that a change of
one compiles all of them again. Time stamps decide nothing, and numba's settings stay as they are.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from glob import glob
from types import FunctionType
from typing import Any

import numpy as np
import xxhash

PACKAGE = os.path.dirname(os.path.dirname(__file__))
MARK = b"nanoset_ref.io.kernels import njit"  # a file that holds kernels has this line
MOST_PLAIN = 1_000_000  # units of work, of about half a microsecond each


class Kernel:
    """A function in the part of Python that numba compiles; both give the same results, bit for bit.

    Args:
        function: what to compile.
        cache: whether to keep it on disk, as described above.
        work: the units of work, given the arguments: operations on single numbers. None: never
            run it plainly, unless a kernel that is run plainly calls it.
        options: of `numba.njit`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        cache: bool,
        work: Callable[..., int] | None,
        options: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func: Any = function
        self._cache = cache
        self._work = work
        self._options = options
        self._plain_work = 0  # units done so far
        self._plain: Any = None
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is not None:
            return self._compiled(*arguments)
        if self._work is not None:
            self._plain_work += self._work(*arguments)
            if self._plain_work <= MOST_PLAIN:
                with np.errstate(over="ignore"):  # words wrap around
                    found = self.plain(*arguments)
                return found.item() if isinstance(found, np.generic) else found
        return self.compiled(*arguments)

    @property
    def plain(self) -> Any:
        """The function as Python runs it, together with the kernels that it calls."""
        if self._plain is None:
            made = _with_own_scopes(self, lambda kernel, function: function)
            for kernel, function in made.items():
                kernel._plain = function
        return self._plain

    @property
    def compiled(self) -> Any:
        """The function as numba compiles it at its first call."""
        if self._compiled is None:
            from nanoset_ref.io.compilation import compiled  # imports numba

            def prepared(kernel: Kernel, function: Any) -> Any:
                return kernel._compiled or compiled(function, kernel._cache, kernel._options)

            with _compiling:  # a kernel has one dispatcher in all threads
                for kernel, dispatcher in _with_own_scopes(self, prepared).items():
                    kernel._compiled = dispatcher
        return self._compiled


_compiling = threading.Lock()


def _with_own_scopes(first: Kernel, prepared: Callable[[Kernel, Any], Any]) -> dict[Kernel, Any]:
    """What is prepared of a kernel and of all that it may call, which find each other by their global names."""
    made: dict[Kernel, Any] = {}
    scopes = []
    found = [first]
    while found:
        kernel = found.pop()
        if kernel in made:
            continue
        source = kernel.py_func
        scope = dict(source.__globals__)
        function = FunctionType(source.__code__, scope, source.__name__, source.__defaults__)
        made[kernel] = prepared(kernel, functools.update_wrapper(function, source))
        scopes.append(scope)
        found += [value for value in scope.values() if isinstance(value, Kernel)]
    for scope in scopes:
        for name, value in scope.items():
            if isinstance(value, Kernel):
                scope[name] = made[value]
    return made


def njit(
    *functions: Callable[..., Any],
    cache: bool = False,
    work: Callable[..., int] | None = None,
    **options: Any,
) -> Any:
    """As `numba.njit`, with or without options; `cache` and `work` as of `Kernel`."""

    def made(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, cache, work, options)

    return made(*functions) if functions else made


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
