"""Threads: calls at the same time, a pool closed from a generator that may be left open; forks."""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")
MAX_TASKS = 1024  # each takes some memory


def call_side_by_side(
    call: Callable[[Given], Result], arguments: Sequence[Given]
) -> list[Result]:
    """The results of a function that waits, in the order of its arguments, by 16 threads."""
    step = len(arguments) // MAX_TASKS + 1
    tasks = [
        arguments[first : first + step] for first in range(0, len(arguments), step)
    ]
    results: list[Result] = []
    with ThreadPoolExecutor(16) as threads:
        for part in threads.map(lambda task: [*map(call, task)], tasks):
            results += part
    return results


def close_pool(pool: Executor, futures: Iterable[Future[Any]]) -> None:
    """Cancel the tasks that have not begun, and wait for those in progress.

    `shutdown(cancel_futures=True)` fails if the interpreter exits while a generator is open.

    Args:
        pool: starts no task afterwards.
        futures: its tasks without a result yet.
    """
    for future in futures:
        future.cancel()
    pool.shutdown()


@contextmanager
def signals_held() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM at the end of this context, not in it.

    Python discards an exception that a signal raises while the hooks of a fork run. A forked
    process never leaves this context, so it ignores both. (A fork in another thread would delete
    what the main thread keeps, such as torch's process groups, in the forked process.)
    """
    came: list[int] = []
    with ExitStack() as handlers:
        with suppress(ValueError):  # outside the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(number, lambda held, _: came.append(held))
                # None: a handler that Python has not set, and cannot set again
                handlers.callback(signal.signal, number, before or signal.SIG_DFL)
        yield
    for held in came:
        signal.raise_signal(held)
