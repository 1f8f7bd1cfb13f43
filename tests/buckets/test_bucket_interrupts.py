"""Ctrl-C does not wait for a server, and leaves no lock or call behind."""

import contextlib
import signal
import threading
import time

import pytest
import torch
from bucket_helpers import batches_of, dataset, loader_of

from nanoset_ref.io import threads


@pytest.mark.parametrize("read_ahead", [0, 2])
def test_ctrl_c_does_not_wait_for_a_server_that_stalls(
    bucket, folder, server, read_ahead, monkeypatch
):
    """A request is given up after some seconds, and nobody should wait for that after Ctrl-C."""
    monkeypatch.setenv("NANOSET_REF_TIMEOUT", "60")
    loader = loader_of(dataset(bucket), read_ahead=read_ahead)
    server.faults += ["stall"] * 100_000

    ended = threading.Event()

    def interrupt_the_first_request():
        while not (server.stalled or ended.is_set()):
            time.sleep(0.01)
        if not ended.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt_the_first_request, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    finally:
        ended.set()
    assert server.stalled, "every request was given up before Ctrl-C came through"
    assert loader.consumed_train_samples == 0
    server.faults.clear()
    server.cut_stalled()
    expected = batches_of(loader_of(dataset(folder)))
    assert torch.equal(torch.stack(batches_of(loader)), torch.stack(expected))


def test_ctrl_c_does_not_wait_for_a_call_and_later_calls_are_answered():
    """In `Executor.map` a lock could stay taken, for which every later call waited."""
    main = threading.main_thread().ident
    waiting = threading.Event()

    def call(number):
        if number == 7:
            signal.pthread_kill(main, signal.SIGINT)
            waiting.wait()
        return -number

    with pytest.raises(KeyboardInterrupt):
        threads.thread_map(call, range(100), 4)
    assert threads.thread_map(abs, range(-100, 0), 4) == [*range(100, 0, -1)]
    waiting.set()
    with pytest.raises(ZeroDivisionError):
        threads.thread_map(lambda number: 1 // number, [1, 0, 2], 4)


def test_ctrl_c_while_calls_are_handed_out_leaves_none_behind(monkeypatch):
    called = []

    @contextlib.contextmanager
    def interrupted():
        yield
        raise KeyboardInterrupt

    def call(number):
        called.append(number)
        hold.wait()

    hold = threading.Event()
    monkeypatch.setattr(threads, "deferred_signals", interrupted)
    with pytest.raises(KeyboardInterrupt):
        threads.thread_map(call, range(100), 4)
    hold.set()
    monkeypatch.undo()
    assert threads.thread_map(abs, range(-100, 0), 4) == [*range(100, 0, -1)]
    assert len(called) <= 4
