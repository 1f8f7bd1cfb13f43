"""Ctrl-C while a loader reads ahead, fills a queue or makes its buffers: nothing is lost, nothing is left."""

import itertools
import os
import signal
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from dataloader_helpers import expected_rows

from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.prefetch import prefetch_in_thread


def reading_threads():
    return [it for it in threading.enumerate() if "read-ahead" in it.name]


def test_interrupted_while_its_thread_starts_a_loader_does_not_count_what_the_thread_reads(
    nanoset, monkeypatch
):
    """The thread takes batches from the sampler, and the next iteration must not lack them."""
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, read_ahead=2)
    start = threading.Thread.start

    def start_and_interrupt(thread):
        start(thread)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    for thread in reading_threads():
        thread.join()
    assert loader.consumed_train_samples == 0
    np.testing.assert_array_equal(
        next(iter(loader))["input_ids"], expected_rows(nanoset, 0)[:, :-1]
    )


@pytest.mark.usefixtures("two_batches_per_block")
def test_interrupted_within_a_queue_persistent_workers_do_not_stop_the_next_iteration(
    nanoset, monkeypatch
):
    """CPython's queue then loses the next item: torch would wait for its workers for ever."""
    options = {"num_loading_workers": 1, "persistent_workers": True}
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, **options)
    batches = iter(loader)
    next(batches)

    thread = threading.get_ident()
    notify_of_python = threading.Condition.notify

    def notify(condition, count=1):
        """Interrupted in its middle: the waiter has woken up, and still stands in the list."""
        if threading.get_ident() != thread:  # pytest-xdist's, which would end for good
            notify_of_python(condition, count)
        elif condition._waiters:
            condition._waiters[0].release()
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Condition, "notify", notify)
    with pytest.raises(KeyboardInterrupt):
        for _ in batches:
            pass
    delivered = loader.consumed_train_samples // 8
    assert 1 <= delivered < 300
    for number, batch in enumerate(loader, delivered):
        rows = expected_rows(nanoset, number)
        np.testing.assert_array_equal(batch["input_ids"], rows[:, :-1])


def test_interrupted_while_its_buffers_are_made_a_loader_leaves_no_file_in_shared_memory(
    nanoset, monkeypatch
):
    made = []
    make = tempfile.mkstemp

    def make_and_interrupt(*arguments, **options):
        made.append(make(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return made[-1]

    monkeypatch.setattr(tempfile, "mkstemp", make_and_interrupt)
    loader = build_nanoset_dataloader(
        nanoset, micro_batch_size=8, num_loading_workers=1
    )
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    assert made and not any(os.path.exists(path) for _, path in made)


def test_a_traceback_that_is_kept_does_not_let_the_thread_go_on(nanoset):
    """Python keeps the last one; the thread of the old iteration would take batches of the next one."""
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, read_ahead=2)

    def split(block):
        yield block
        raise RuntimeError("no second batch")

    loader.collate_fn.split = split
    before = reading_threads()  # of earlier tests, which may still be ending
    with pytest.raises(RuntimeError, match="no second batch") as kept:
        for _ in loader:
            pass
    assert kept.traceback
    assert set(before).issuperset(reading_threads())


def interrupt_before(number):
    """A trace function: Ctrl-C before an instruction of `prefetch_in_thread`, by its number."""
    remaining = iter(range(number))

    def trace(frame, event, argument):
        if frame.f_code is prefetch_in_thread.__code__:
            frame.f_trace_opcodes = True
            if event == "opcode" and next(remaining, None) is None:
                raise KeyboardInterrupt
            return trace

    return trace


def test_interrupted_anywhere_a_thread_that_reads_ahead_ends():
    before = {*reading_threads()}
    for number in itertools.count():
        items = prefetch_in_thread(itertools.count(), 2)
        taken = []
        sys.settrace(interrupt_before(number))
        try:
            taken += [next(items), next(items), next(items)]
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        items.close()
        for thread in {*reading_threads()} - before:
            thread.join(60)
            assert not thread.is_alive(), number
        if taken:
            break
    assert taken == [0, 1, 2] and number > 100


def test_ctrl_c_does_not_wait_for_rows_that_do_not_come(nanoset, monkeypatch):
    loader = build_nanoset_dataloader(nanoset, micro_batch_size=8, read_ahead=2)
    stalled = threading.Event()
    fill = type(nanoset).fill

    def stall(*arguments):
        # Python misses a signal between its last look and the call that waits
        time.sleep(0.5)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        stalled.wait()
        fill(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(type(nanoset), "fill", stall)
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    left = reading_threads()
    assert left
    first = next(iter(loader))
    stalled.set()
    for thread in left:
        thread.join()  # a later test may look for threads
    np.testing.assert_array_equal(first["input_ids"], expected_rows(nanoset, 0)[:, :-1])
    for number, batch in enumerate(loader, 1):
        rows = expected_rows(nanoset, number)
        np.testing.assert_array_equal(batch["input_ids"], rows[:, :-1])
