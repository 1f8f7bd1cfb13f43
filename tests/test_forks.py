"""Forks beside a thread that reads ahead: a child waits forever for what the thread holds, so a fork waits first."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
from numba.core.caching import Cache
from numba.core.compiler_lock import global_compiler_lock

from nanoset_ref import open_tokens
from nanoset_ref.io import njit as kernels
from nanoset_ref.io.index_cache import load_or_build
from nanoset_ref.io.locks import lock

FORK_BESIDE_AN_IMPORT = """
import sys, threading, time
import numpy as np
from nanoset_ref import Nanoset, build_nanoset_dataloader

begun = threading.Event()


class Slow:
    def find_spec(self, name, path, target=None):
        if name == "numba.core.types.functions":
            sys.meta_path.remove(self)
            begun.set()
            time.sleep(1)  # for the fork


np.arange(9_000, dtype=np.uint16).tofile("x.npy")
rows = Nanoset(["x.npy"], None, 8, 1024)
loader = build_nanoset_dataloader(
    rows, micro_batch_size=512, num_loading_workers=1, timeout=240, multiprocessing_context="fork"
)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=rows.read, args=[np.arange(1024)])
thread.start()
begun.wait()
print(sum(len(batch["input_ids"]) for batch in loader))
thread.join()
"""


def test_a_fork_waits_for_a_thread_that_imports_numba(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_BESIDE_AN_IMPORT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("1024\n", "")


UNGUARDED_IMPORTS = """
import os, sys, threading
from pathlib import Path
import numpy as np
from bucket_server import BucketServer
from nanoset_ref import DocumentOptions, Nanoset, PackedNanoset, build_nanoset_dataloader
from nanoset_ref.io.njit import numba_lock
from nanoset_ref.tokens import TokenFileWriter, convert, open_tokens

ids = np.arange(90_000, dtype=np.uint16)
ids[29::30] = 0
with TokenFileWriter("x.npy", dtype="uint16", eos_token_id=0, appended_eod=True) as writer:
    writer.write(ids, np.full(3000, 30))
convert([open_tokens("x.npy")], Path("x.bin"))


def read(kind):
    path, documents = "x.npy", None
    if kind == "bin":
        path = "x.bin"
    elif kind == "bucket":
        server = BucketServer().started()
        for file in Path().glob("x.*"):
            server.keep(f"/{file}", file.read_bytes())
        path = f"http://127.0.0.1:{server.port}/x.npy"
    elif kind == "direct":
        os.environ["NANOSET_REF_DIRECT"] = "1"
    elif kind == "masked":
        documents = DocumentOptions(reset_position_ids=True, reset_attention_mask=True)
    paths, weights = ([path, path], [0.3, 0.7]) if kind == "blended" else ([path], None)
    if kind == "packed":
        rows = PackedNanoset(paths, weights, 64, 1000, pad_id=0)
    else:
        rows = Nanoset(paths, weights, 8, 10_000)
    loader = build_nanoset_dataloader(
        rows, micro_batch_size=64, read_ahead=2, documents=documents
    )

    class Record:
        def find_spec(self, name, path, target=None):
            of_main_thread = threading.current_thread() is threading.main_thread()
            if not of_main_thread and not numba_lock._is_owned():
                print(kind, name, flush=True)

    sys.meta_path.insert(0, Record())
    num_rows = sum(len(batch["input_ids"]) for batch in loader)
    return num_rows == 64 * (len(rows) // 64)


# what the main thread imports before a loader reads, each child need not import anew
build_nanoset_dataloader(Nanoset(["x.npy"], None, 8, 10_000), micro_batch_size=64, read_ahead=2)
assert "numba" not in sys.modules
for kind in ["plain", "bin", "blended", "masked", "packed", "direct", "bucket"]:
    pid = os.fork()
    if pid == 0:
        os._exit(not read(kind))
    assert os.waitpid(pid, 0)[1] == 0, kind
"""


def test_a_thread_that_reads_imports_only_what_a_fork_waits_for(tmp_path):
    """What a thread is importing while its process forks, the child waits for without end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", UNGUARDED_IMPORTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


def fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        return os.fork()


def test_a_fork_waits_for_a_thread_that_compiles(monkeypatch):
    begun = threading.Event()

    def load_slowly(*arguments):
        """numba looks into its cache, and its lock is held."""
        begun.set()
        time.sleep(0.5)  # for the fork

    monkeypatch.setattr(Cache, "load_overload", load_slowly)
    kernel = kernels.njit(lambda x: x + 1)
    thread = threading.Thread(target=kernel, args=(1,))
    thread.start()
    begun.wait()
    pid = fork()
    if pid == 0:
        is_free = global_compiler_lock._lock.acquire(blocking=False)
        os._exit(not is_free)
    _, status = os.waitpid(pid, 0)
    thread.join()
    assert status == 0


def test_ids_that_a_thread_is_mapping_do_not_stop_a_child(monkeypatch, tmp_path):
    """Python 3.11 holds one lock for the `cached_property` of all files, and a child would wait for it."""
    begun = threading.Event()
    forked = threading.Event()
    files = []
    for name in ("a.npy", "b.npy"):
        np.arange(9, dtype=np.uint16).tofile(tmp_path / name)
        files.append(open_tokens(tmp_path / name))

    def wait_for_the_fork():
        begun.set()
        forked.wait()

    monkeypatch.setattr(files[0], "check_unchanged", wait_for_the_fork)
    thread = threading.Thread(target=lambda: files[0].tokens)
    thread.start()
    begun.wait()
    pid = fork()
    if pid == 0:
        signal.alarm(60)
        os._exit(int(files[1].tokens.sum()))
    forked.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 36 << 8


def test_the_lock_of_an_index_ends_though_a_child_has_its_file(tmp_path):
    begun = threading.Event()
    forked = threading.Event()

    def build():
        begun.set()
        forked.wait()
        return [np.arange(3)]

    thread = threading.Thread(
        target=load_or_build, args=(tmp_path, {"of": "a thread"}, ["x"], build)
    )
    thread.start()
    begun.wait()
    pid = fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    forked.set()
    thread.join()
    try:
        with open(tmp_path / "index.lock", "rb") as file:
            assert lock(file)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


INTERRUPTED_FORK = """
import os, signal, threading
held_at_fork = []
# hooks run in reverse: this one after that of the lock
os.register_at_fork(before=lambda: held_at_fork.append(numba_lock._is_owned()))
from nanoset_ref.io.njit import numba_lock

held, ready, main = threading.Event(), threading.Event(), threading.get_ident()


def hold():
    with numba_lock:
        held.set()
        ready.wait()
        for _ in range(20):
            threading.Event().wait(0.01)
            signal.pthread_kill(main, signal.SIGINT)


signal.signal(signal.SIGINT, lambda *_: held_at_fork or 1 / 0)
thread = threading.Thread(target=hold)
thread.start()
while not held_at_fork:
    try:
        held.wait()
        ready.set()
        if os.fork() == 0:
            os._exit(0)
    except ZeroDivisionError:
        pass  # outside the fork
thread.join()
print(all(held_at_fork), numba_lock._is_owned())
"""


def test_ctrl_c_while_a_fork_waits_does_not_make_it_fork_without_the_lock(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTED_FORK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True False\n" and "un-acquired" not in done.stderr
