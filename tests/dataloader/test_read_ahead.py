"""Reading ahead by a thread or by workers: so far and no further, and none outlives the program."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from nanoset_ref.load.prefetch import prefetch_in_thread


def test_ahead_is_so_far_ahead_and_no_further():
    made = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    iterator = prefetch_in_thread(items(), 3)
    assert made == []
    for number in range(5):
        assert next(iterator) == number
        while len(made) < number + 4:
            time.sleep(0.001)
        time.sleep(0.01)  # for one that would be too many
        assert len(made) == number + 4


def test_ahead_leaves_no_thread_behind():
    # those of earlier tests may still be ending
    before = {*threading.enumerate()}

    def threads():
        return [
            thread
            for thread in threading.enumerate()
            if thread.name.startswith("nanoset_ref-read-ahead") and thread not in before
        ]

    iterator = prefetch_in_thread(itertools.count(), 4)
    assert next(iterator) == 0 and len(threads()) == 1
    iterator.close()
    assert threads() == []
    for depth in (1, 2, 3, 5):
        assert list(prefetch_in_thread(range(3), depth)) == [0, 1, 2]
    assert threads() == []


ENDS = """
import time
from nanoset_ref.load.prefetch import prefetch_in_thread

def read():
    yield 0
    time.sleep(0.5)
    print("read")

items = prefetch_in_thread(read(), 2)
next(items)
"""


def test_a_program_ends_after_the_item_in_progress():
    """The thread's buffers would go while it fills them."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("read\n", "")


HALF_READ = """
import nanoset_ref  # it outlives the names of the script
from nanoset_ref import Nanoset, build_nanoset_dataloader
from nanoset_ref.io import njit
njit.PYTHON_WORK = -1  # also a worker's first batch needs a compiled kernel
rows = Nanoset("x.npy", None, 9, None)
batches = iter(build_nanoset_dataloader(rows, micro_batch_size=2, OPTIONS))
print(len(next(batches)["input_ids"]))
"""


@pytest.mark.parametrize("options", ["read_ahead=2", "num_loading_workers=2"])
def test_a_program_may_end_with_a_loader_half_read(tmp_path, options):
    """Python ends workers by SIGTERM and waits for them, so they have to obey it."""
    np.arange(999, dtype=np.uint16).tofile(tmp_path / "x.npy")
    # torch warns where there are fewer cores than workers
    quiet = ["-W", "ignore:This DataLoader will create"]
    done = subprocess.run(
        [sys.executable, *quiet, "-c", HALF_READ.replace("OPTIONS", options)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("2\n", "")


OUTLIVES = """
import threading, time
from nanoset_ref import Nanoset, build_nanoset_dataloader
from nanoset_ref.io.files import write_text
from nanoset_ref.io.threads import thread_map

rows = Nanoset("x.npy", None, 9, 90)
batches = iter(build_nanoset_dataloader(rows, micro_batch_size=2, read_ahead=2))

def train():
    next(batches)
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print(1 + len(list(batches)), thread_map(str, range(3)))
    write_text("written", "by a thread")

threading.Thread(target=train).start()
"""


def test_a_thread_that_outlives_the_main_thread_gets_all_batches(tmp_path):
    """Python ends its pools of threads then: those that ask a bucket, or rename a file."""
    np.arange(999, dtype=np.uint16).tofile(tmp_path / "x.npy")
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("45 ['0', '1', '2']\n", "")
    assert (tmp_path / "written").read_text() == "by a thread"


KILLED = """
import time
from nanoset_ref import Nanoset, build_nanoset_dataloader

if __name__ == "__main__":
    options = {"num_loading_workers": 2, "multiprocessing_context": "forkserver"}
    rows = Nanoset("x.npy", None, 9, 90)
    batches = iter(build_nanoset_dataloader(rows, micro_batch_size=2, **options))
    next(batches)
    print("reads", flush=True)
    time.sleep(100)
"""


READS_ON_AT_EXIT = """
import atexit, faulthandler
from nanoset_ref.load.prefetch import prefetch_in_thread

faulthandler.dump_traceback_later(60, exit=True)
atexit.register(lambda: print(*items))  # before the thread's own
items = prefetch_in_thread(range(9), 2)
next(items)
"""


def test_a_program_may_read_on_in_a_callback_at_its_exit():
    done = subprocess.run(
        [sys.executable, "-c", READS_ON_AT_EXIT], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1 2 3 4 5 6 7 8\n", "")


def test_items_are_made_where_no_thread_can_start(monkeypatch):
    """As from Python 3.12 on in a thread that outlives the main thread."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert list(prefetch_in_thread(range(9), 2)) == [*range(9)]


def test_workers_of_a_fork_server_end_with_a_trainer_that_is_killed(tmp_path):
    """torch's wait for the fork server, and it for them."""
    np.arange(999, dtype=np.uint16).tofile(tmp_path / "x.npy")
    (tmp_path / "killed.py").write_text(KILLED)
    trainer = subprocess.Popen(
        [sys.executable, "killed.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert trainer.stdout.readline() == "reads\n"
        trainer.kill()
        # the end of its output, which the workers have, too
        trainer.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(trainer.pid, signal.SIGKILL)
        trainer.stdout.close()
