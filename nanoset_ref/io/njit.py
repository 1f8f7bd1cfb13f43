"""`njit` for the package's kernels: run by Python at first, and compiled by numba after that.

Importing numba and loading a compiled order take a second, compiling it 8 seconds. Plain Python
answers a question about a few rows in a millisecond. So a kernel that can count its `work` starts
in Python. It is compiled once it has done PLAIN_WORK units of work, so the total is at most twice
that of the better choice made in advance. Every other kernel is compiled at its first call.

numba reuses a compiled function until the function's file changes. But kernels inline functions
from other files (`windows.locate` inlines `permutation.derive`), and numba would continue to run
their old code. Here every kernel is cached on disk under a checksum of all files of the package
that define kernels: when one of them changes, all kernels are compiled again. Time stamps play no
role, and numba's settings stay as they are.
"""

import functools
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

PLAIN_WORK = 4_000_000  # units of work, of about a quarter of a microsecond each


class Kernel:
    """A function that Python and numba both run, with the same results, bit for bit.

    Args:
        function: the function to compile.
        work: counts the units of work of a call from its arguments; a unit is an operation on a
            single number. None compiles the kernel at its first call, unless another kernel that
            Python runs calls it.
        options: passed to `numba.njit`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        work: Callable[..., int] | None,
        options: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func: Any = function
        self._work = work
        self._options = options
        self._plain_work = 0  # units done so far
        self._plain: Any = None
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is not None:
            try:
                return self._compiled(*arguments)
            except OverflowError:
                # numba takes every int for an int64 once it has met one that is
                return self._compiled(*map(_as_word, arguments))
        if self._work is not None:
            self._plain_work += self._work(*arguments)
            if self._plain_work <= PLAIN_WORK:
                with np.errstate(over="ignore"):  # words wrap around
                    result = self.plain(*arguments)
                return result.item() if isinstance(result, np.generic) else result
        return self.compiled(*arguments)

    @property
    def plain(self) -> Any:
        """The function for Python, which calls the plain form of other kernels."""
        if self._plain is None:
            functions = _prepare_reachable(self, lambda kernel, function: function)
            for kernel, function in functions.items():
                kernel._plain = function
        return self._plain

    @property
    def compiled(self) -> Any:
        """The numba dispatcher, which compiles the function at its first call."""
        if self._compiled is None:
            from nanoset_ref.io.compilation import make_dispatcher  # imports numba

            def prepare(kernel: Kernel, function: Any) -> Any:
                if kernel._compiled is not None:
                    return kernel._compiled
                return make_dispatcher(function, kernel._options)

            with _compiling:  # all threads share one dispatcher per kernel
                for kernel, dispatcher in _prepare_reachable(self, prepare).items():
                    kernel._compiled = dispatcher
        return self._compiled


def _as_word(argument: Any) -> Any:
    """An int of 2**63 .. 2**64 - 1 as a uint64; anything else as it is."""
    if isinstance(argument, int) and argument >= 2**63:
        return np.uint64(argument)
    return argument


_compiling = threading.Lock()


def _prepare_reachable(
    first: Kernel, prepare: Callable[[Kernel, Any], Any]
) -> dict[Kernel, Any]:
    """Prepare a kernel and every kernel reachable from it.

    Their globals are rebound to the prepared versions.

    Args:
        first: the kernel.
        prepare: called with a kernel and a copy of its function; returns the prepared version.

    Returns:
        {kernel: its prepared version}.
    """
    made: dict[Kernel, Any] = {}
    scopes = []
    remaining = [first]
    while remaining:
        kernel = remaining.pop()
        if kernel in made:
            continue
        source = kernel.py_func
        scope = dict(source.__globals__)
        function = FunctionType(
            source.__code__, scope, source.__name__, source.__defaults__
        )
        made[kernel] = prepare(kernel, functools.update_wrapper(function, source))
        scopes.append(scope)
        remaining += [value for value in scope.values() if isinstance(value, Kernel)]
    for scope in scopes:
        for name, value in scope.items():
            if isinstance(value, Kernel):
                scope[name] = made[value]
    return made


def njit(
    *functions: Callable[..., Any],
    work: Callable[..., int] | None = None,
    **options: Any,
) -> Any:
    """Decorate like `numba.njit(cache=True, nogil=True)`; for `work` and `options` see `Kernel`."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, work, options)

    return decorate(*functions) if functions else decorate
