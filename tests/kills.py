"""Stop a command at every change of the file system it makes, by every means.

A nursery imports the package once and forks a child for every trial. The child counts what it changes below one folder:
files opened to be written, each write, truncation, rename, link, removal, folder made or removed. At change number `at`

    kill        it dies by SIGKILL, a write half done
    group       so does its whole process group
    launcher    the process that started the ranks dies instead
    int         it gets SIGINT, once
    full        this and every later change that needs room fails: no space left on device
    warm        nothing: the command runs in the nursery first, whose forks then have what numba compiled

Python's audit hook reports all but the writes; those are seen by a FileIO of our own under every file that is opened to
be written. Nothing is synced: a trial is about processes that die, not about power cuts.
"""

import builtins
import contextlib
import errno
import io
import json
import mmap
import os
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

from numpy.lib import format as numpy_format

from nanoset_ref.cli import command

CHANGES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
SLOW_TO_IMPORT = """
nanoset_ref.chunks.subset_tokenization nanoset_ref.chunks.mixing nanoset_ref.chunks.chunk_conversion
nanoset_ref.chunks.downloads nanoset_ref.cli.run_commands nanoset_ref.tokens.conversion nanoset_ref.provenance.auditing
nanoset_ref.train.run transformers:AutoTokenizer transformers:PreTrainedTokenizerFast nanoset_ref.io.compilation
transformers:GPT2LMHeadModel torch._dynamo
""".split()
GRACE = 60.0  # seconds for what a killed process leaves behind: it may have to wait for a core


class Counter:
    """Counts the changes below a folder in a cell that outlives this process, and acts at number `at` (never at 0)."""

    def __init__(self, job, cells, rank):
        self.root, self.how, self.cells, self.rank = (
            job["root"],
            job["how"],
            cells,
            rank,
        )
        self.at = job["at"] if rank == job["rank"] else 0

    def __call__(self, path, grows, half=lambda: None):
        if not os.fsdecode(path).startswith(self.root):
            return
        self.cells[self.rank] += 1
        count = self.cells[self.rank]
        if self.how == "full" and grows and 0 < self.at <= count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if count == self.at and self.how == "int":
            os.kill(os.getpid(), signal.SIGINT)
        elif count == self.at and self.how != "full":
            half()
            victim = {"kill": os.getpid(), "group": 0, "launcher": os.getppid()}[
                self.how
            ]
            os.kill(victim, signal.SIGKILL)
            time.sleep(GRACE)

    def audit(self, event, arguments):
        if (
            event == "open"
            and isinstance(arguments[0], (str, bytes))
            and arguments[2] & WRITES
        ):
            self(arguments[0], True)
        elif event in CHANGES:
            relative = arguments[-1] not in (-1, None) and event in (
                "os.remove",
                "os.rmdir",
            )  # to an open folder
            self(self.root if relative else arguments[0], event == "os.mkdir")


def watch(changed):
    """Let `changed` hear of everything that this process does to files from now on."""
    plain_open = io.open

    class Watched(io.FileIO):
        def write(self, data):
            view = memoryview(data).cast("B")
            changed(
                self.name,
                True,
                lambda: super(Watched, self).write(view[: len(view) // 2]),
            )
            return super().write(view)

    def watched_open(
        file,
        mode="r",
        buffering=-1,
        encoding=None,
        errors=None,
        newline=None,
        closefd=True,
        opener=None,
    ):
        if isinstance(file, int) or opener or not set(mode) & set("wax+"):
            return plain_open(
                file, mode, buffering, encoding, errors, newline, closefd, opener
            )
        raw = Watched(os.fspath(file), mode.replace("b", "").replace("t", ""))
        file = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return (
            file
            if "b" in mode
            else io.TextIOWrapper(file, encoding, errors, newline, buffering == 1)
        )

    builtins.open = io.open = watched_open
    os.fsync = lambda file: None
    getattr(numpy_format, "_format_impl", numpy_format).isfileobj = lambda file: (
        False
    )  # so that np.save calls `write`
    sys.addaudithook(changed.audit)


# ---- in the nursery


def function(words):
    """A command for what has none: module:function and its words."""
    return command.run(pkgutil.resolve_name(words[0]), words[1:], words[0])


def call(job, cells, rank=0):
    """Run a command in this process, and end it."""
    watch(Counter(job, cells, rank))
    try:
        code = pkgutil.resolve_name(job["main"])(job["words"]) or 0
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stderr.flush()
    os._exit(code)


def launch(job, cells):
    """As torchrun's agent: hold the store, start the ranks, end all when one fails."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(job["ranks"]),
    }
    os.environ |= {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "kills",
    }
    pids, codes = [], [0]
    for rank in range(job["ranks"]):
        pids.append(os.fork())
        if not pids[-1]:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            call(job, cells, rank)
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        codes.append(abs(os.waitstatus_to_exitcode(status)))
        for other in pids if codes[-1] else ():
            os.kill(other, signal.SIGTERM)
    os._exit(max(codes))


def gone(group):
    """Whether no process of the group is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return False
    return True


def within(seconds, holds):
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.001)
    return found


def trial(job):
    """Fork a child for a job: how it ended, its changes by rank, and whether it left processes."""
    cells = memoryview(mmap.mmap(-1, 64)).cast("q")
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in enumerate([os.devnull, os.devnull, job["errors"]]):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        launch(job, cells) if job["ranks"] else call(job, cells)
    ended = within(
        job["seconds"], lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG)
    )
    code = ended and ended.si_status * (1 if ended.si_code == os.CLD_EXITED else -1)
    orphans = not within(GRACE if ended else 0, lambda: gone(child))
    if orphans:
        os.killpg(child, signal.SIGKILL)
    return {
        "code": code,
        "hangs": not ended,
        "orphans": orphans,
        "changes": list(cells),
    }


def main():
    """Import everything once, then answer requests, one JSON line each."""
    for name in SLOW_TO_IMPORT:
        pkgutil.resolve_name(name)
    for job in map(json.loads, sys.stdin):
        if job["how"] == "warm":
            with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(Exception):
                pkgutil.resolve_name(job["main"])(job["words"])
        sys.stdout.write(json.dumps(trial(job)) + "\n")
        sys.stdout.flush()


# ---- in the tests


class Nursery:
    """A process that runs commands in forks of itself; a context manager."""

    def __enter__(self):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": "1",
        }
        environment |= {
            "HF_HUB_OFFLINE": "0",
            "no_proxy": "127.0.0.1",
            "MPLBACKEND": "agg",
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=environment, **pipes
        )
        return self

    def __exit__(self, *error):
        self._process.communicate()

    def run(self, words, folder, how="kill", at=0, *, ranks=0, rank=0, seconds=600.0):
        """Run a command and stop it at change number `at` below `folder` (0: never), of rank `rank`.

        Args:
            words: of `nanoset-ref`, or module:function and its words.
        """
        if ":" not in words[0]:
            words = ["nanoset_ref.cli:main", *words]
        main, *rest = map(str, words)
        errors = Path(f"{folder}.errors")
        job = {"main": main, "words": rest, "root": f"{folder}/", "errors": str(errors)}
        job |= {"how": how, "at": at, "ranks": ranks, "rank": rank, "seconds": seconds}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        found = json.loads(self._process.stdout.readline())
        return SimpleNamespace(**found, errors=errors.read_text(errors="replace"))


if __name__ == "__main__":
    main()
