"""`njit` for the package's kernels: run by Python at first, and later compiled by numba.

Importing numba and loading a compiled order take a second, compiling it 8 seconds. Plain Python
answers a question about a few rows in a millisecond. So a kernel that can count its `work` starts
in Python. It is compiled once it has done PYTHON_WORK units of work, so it costs at most twice as
much as the better of the two. Every other kernel is compiled at its first call.

numba reuses a compiled function until the function's file changes. But kernels inline functions
from other files (`interleaving.source_at` inlines `permutation.derive`), and numba would continue
to run their old code. Here every kernel is cached on disk under a checksum of all files of the
package that define kernels: when one of them changes, all kernels are compiled again. Time stamps
play no role, and numba's settings stay as they are.
"""

import functools
import inspect
import logging  # noqa: F401 (a fork takes its lock, which imports need, after `numba_lock`)
import os
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

PYTHON_WORK = 4_000_000  # units of work, of about a quarter of a microsecond each

# held by a thread that imports numba or compiles; a fork waits for it, since the child would wait
# forever for a lock or a module of that thread
numba_lock = threading.RLock()


def _acquire_before_fork() -> None:
    """Acquire `numba_lock`, also after Ctrl-C: Python drops that here, and forks."""
    # only a fork needs it
    from nanoset_ref.io.signals import deferred_signals

    with deferred_signals():
        numba_lock.acquire()


os.register_at_fork(
    before=_acquire_before_fork,
    after_in_parent=numba_lock.release,
    after_in_child=numba_lock.release,
)


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
        self._python_work = 0  # units done so far
        self._python: Any = None
        self._compiled: Any = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if named:
            arguments = inspect.signature(self.py_func).bind(*arguments, **named).args
        if self._compiled is not None:
            try:
                return self._compiled(*arguments)
            except OverflowError:
                # once compiled for int64, numba passes every int as one
                return self._compiled(*map(_as_uint64, arguments))
        if self._work is not None:
            self._python_work += self._work(*arguments)
            if self._python_work <= PYTHON_WORK:
                with np.errstate(over="ignore"):  # words wrap around
                    result = self.python(*arguments)
                return result.item() if isinstance(result, np.generic) else result
        return self.compiled(*arguments)

    @property
    def python(self) -> Any:
        """The function for Python, which calls the Python form of other kernels."""
        if self._python is None:
            copies = _copy_reachable(self)
            _rebind(copies, copies)
            for kernel, function in copies.items():
                kernel._python = function
        return self._python

    @property
    def compiled(self) -> Any:
        """The numba dispatcher, which compiles the function at its first call."""
        if self._compiled is None:
            with numba_lock:  # all threads share one dispatcher per kernel
                # only compiling needs it
                from nanoset_ref.io.signals import deferred_signals

                # after half an import numba could not be imported again
                with deferred_signals():
                    from nanoset_ref.io.compilation import make_dispatcher

                copies = _copy_reachable(self)
                dispatchers = {}
                for kernel, function in copies.items():
                    dispatcher = kernel._compiled
                    if dispatcher is None:
                        dispatcher = make_dispatcher(function, kernel._options)
                    dispatchers[kernel] = dispatcher
                _rebind(copies, dispatchers)
                for kernel, dispatcher in dispatchers.items():
                    kernel._compiled = dispatcher
        return self._compiled


def _as_uint64(argument: Any) -> Any:
    """An int of 2**63 .. 2**64 - 1 as a uint64; anything else as it is."""
    if isinstance(argument, int) and argument >= 2**63:
        return np.uint64(argument)
    return argument


def _copy_reachable(first: Kernel) -> dict[Kernel, Any]:
    """Copy the function of a kernel, and of every kernel that it calls, directly or not.

    Returns:
        {kernel: a copy of its function}. Each copy has a module's globals of its own, which
        `_rebind` may change.
    """
    copies = {}
    remaining = [first]
    while remaining:
        kernel = remaining.pop()
        if kernel in copies:
            continue
        original = kernel.py_func
        own_globals = dict(original.__globals__)
        copy = FunctionType(original.__code__, own_globals)
        copy.__defaults__ = original.__defaults__
        copies[kernel] = functools.update_wrapper(copy, original)
        values = own_globals.values()
        remaining += [value for value in values if isinstance(value, Kernel)]
    return copies


def _rebind(copies: dict[Kernel, Any], functions: dict[Kernel, Any]) -> None:
    """Let every copy call functions (for Python or compiled) where it names kernels."""
    for copy in copies.values():
        for name, value in copy.__globals__.items():
            if isinstance(value, Kernel):
                copy.__globals__[name] = functions[value]


def njit(
    *functions: Callable[..., Any],
    work: Callable[..., int] | None = None,
    **options: Any,
) -> Any:
    """Decorate like `numba.njit(cache=True, nogil=True)`; for `work` and `options` see `Kernel`."""
    decorate = functools.partial(Kernel, work=work, options=options)
    return decorate(*functions) if functions else decorate
