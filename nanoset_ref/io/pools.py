"""Close a pool of threads from a generator that may be left open."""

from collections.abc import Iterable
from concurrent.futures import Executor, Future
from typing import Any


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
