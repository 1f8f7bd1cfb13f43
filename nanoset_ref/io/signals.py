"""Ctrl-C and SIGTERM, deferred while a process forks or a lock is held."""

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM at the end of this context, not inside it.

    Python discards an exception that a signal raises while the hooks of a fork run. A forked
    process never leaves this context, so it ignores both. (Forking in another thread is no
    way out: the child would delete the main thread's objects, such as torch's process groups.)

    A worker of torch's DataLoader leaves SIGTERM alone: torch handles it in C, and Python could not
    set that handler again. The trainer would wait forever for the worker's end.
    """
    pending = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        numbers.remove(signal.SIGTERM)
    with ExitStack() as handlers:
        with suppress(ValueError):  # outside the main thread
            for number in numbers:
                before = signal.signal(number, lambda signum, _: pending.append(signum))
                # None: a handler that Python has not set, and cannot set again
                handlers.callback(signal.signal, number, before or signal.SIG_DFL)
        yield
    for signum in pending:
        signal.raise_signal(signum)
