"""The same items, made a little ahead of time by a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], depth: int) -> Iterator[T]:
    """The same items in the same order, up to `depth` of them, at least 1, made before they are asked for.

    A reader that releases the interpreter's lock (`gather`, file access, copies) runs beside the training loop. An
    exception is raised at the item that it came instead of. A generator that is closed or collected waits for the item
    under way and starts no other.
    """
    end = object()
    iterator = iter(items)
    thread = ThreadPoolExecutor(1, thread_name_prefix="nanoset_ref-ahead")
    coming = deque(thread.submit(next, iterator, end) for _ in range(depth))
    try:
        while (item := coming.popleft().result()) is not end:
            coming.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        for future in coming:
            future.cancel()
        thread.shutdown()  # its own way to cancel fails where a program ends with the generator half read
