"""Threads: calls at the same time, and a pool closed from a generator that may be left open."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")
MAX_TASKS = 1024  # each takes some memory


def thread_map(
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
