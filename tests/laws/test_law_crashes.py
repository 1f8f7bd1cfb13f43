"""A loader that hangs, crashes or raises: the report says where, in one line."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

from nanoset_ref.laws import Case, judge


def test_a_hang_and_a_crash_say_where() -> None:
    def make(data: Any, *, seed: int, **place: Any) -> Any:
        if seed == 0:
            sleep(60)
        if seed == 1:
            signal.raise_signal(signal.SIGSEGV)  # in this thread, as a real one
        if seed == 2:
            sys.exit("no data")
        json.loads([])

    here = Path(__file__).name
    first = make.__code__.co_firstlineno
    for seed, line, words in (
        (0, 2, "hang: no answer in 4 s"),
        (1, 4, "crash: the process died: exit code -11"),
        (2, 6, "crash: SystemExit: no data"),
        (
            3,
            7,
            "crash: TypeError: the JSON object must be str, bytes or bytearray, not list",
        ),
    ):
        limit = 60.0 if seed else 4.0
        found = judge(make, "repeat", Case(seed=seed), limit=limit)
        assert str(found) == f"{words}, in make ({here}:{first + line})"


def test_a_crash_says_where_though_a_library_has_replaced_the_handlers(
    tmp_path: Path,
) -> None:
    (tmp_path / "crash.py").write_text(
        "import faulthandler, signal\n"
        "from nanoset_ref.laws import Case, judge\n"
        "def make(data, **place):\n"
        "    signal.raise_signal(signal.SIGSEGV)\n"
        "faulthandler.enable()\n"
        "signal.signal(signal.SIGSEGV, signal.SIG_DFL)\n"
        "print(judge(make, 'repeat', Case(), limit=60.0))\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "crash.py"], capture_output=True, text=True
    )
    assert (
        done.stdout == "crash: the process died: exit code -11, in make (crash.py:4)\n"
    )


def test_the_traceback_of_a_worker_is_one_line_with_its_innermost_frame() -> None:
    def make(data: Any, **place: Any) -> Any:
        worker = (
            "Caught IndexError in DataLoader worker process 0.\nOriginal Traceback (most recent "
            'call last):\n  File "/a/rows.py", line 7, in fetch\nIndexError: list index out of range\n'
        )
        raise IndexError(worker)

    assert str(judge(make, "repeat", Case(rows=9))) == (
        "crash: IndexError: Caught IndexError in DataLoader worker process 0. ... "
        "IndexError: list index out of range, in fetch (rows.py:7)"
    )
