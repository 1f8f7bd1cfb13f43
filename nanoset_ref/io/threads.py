"""Concurrent calls of a function, in threads."""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

from nanoset_ref.io.signals import deferred_signals

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@functools.cache
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """This process's threads; a forked process does not inherit its parent's."""
    return ThreadPoolExecutor(count, thread_name_prefix="nanoset_ref-pool")


def thread_map(
    call: Callable[[Argument], Result], arguments: Sequence[Argument], threads: int = 16
) -> list[Result]:
    """Call an I/O-bound function for each argument, in threads; results keep the arguments' order.

    Ctrl-C, or the first exception of a call, raises at once, even if another call never ends. (In
    `Executor.map` Ctrl-C can leave a lock taken, for which every later call waits.)
    """
    remaining = deque(range(len(arguments)))
    finished: SimpleQueue[tuple[int, Any, list[BaseException]]] = SimpleQueue()

    def work() -> None:
        while remaining:
            try:
                index = remaining.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                finished.put((index, call(arguments[index]), []))
            except BaseException as error:
                finished.put((index, None, [error]))

    pool = _pool(threads, os.getpid())
    results: list[Any] = [None] * len(arguments)
    try:
        try:
            with deferred_signals():
                for _ in range(min(threads, len(arguments))):
                    pool.submit(work)
        except RuntimeError:  # Python ends all pools when the main thread ends
            work()
        for _ in arguments:
            index, result, errors = finished.get()
            if errors:
                raise errors.pop()  # its traceback holds this frame, which must not hold it
            results[index] = result
    finally:
        remaining.clear()
    return results


def map_ahead(
    call: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    threads: int,
    ahead: int,
) -> Iterator[Result]:
    """Call a function for each argument, in threads; yield the results in order.

    Args:
        call: the function.
        arguments: prefetched.
        threads: how many calls run at once.
        ahead: how many calls are begun before the first result is yielded.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for argument in arguments:
            with deferred_signals():
                pending.append(pool.submit(call, argument))
            if len(pending) > ahead:
                yield pending.popleft().result()
        for future in pending:
            yield future.result()
    finally:
        # waits for the running calls only; `shutdown(cancel_futures=True)` would fail if the
        # interpreter exits while this generator is open
        for future in pending:
            future.cancel()
        pool.shutdown()
