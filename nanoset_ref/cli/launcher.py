"""Who started this process: torchrun, as one rank of several, or somebody else.

A rank has no use without its launcher: nobody would end it when another rank fails. `end_with_launcher` lets Linux end
it the moment the launcher dies, even while the rank imports torch or waits for a connection. `begin_command` is the
first thing that a process does which was started as a command of this package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


def under_torchrun() -> bool:
    """Whether this process is one of several ranks."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main_rank() -> bool:
    """Whether this process is rank 0, or no rank at all."""
    return int(os.environ.get("RANK", "0")) == 0


def begin_command() -> None:
    """Until `interrupts_raise`, while modules are imported, Ctrl-C ends this process at once, with one line."""
    end_with_launcher()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interrupts_raise() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, which the command reports."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: Any) -> None:
    if is_main_rank():
        os.write(2, b"nanoset_ref: error: interrupted before it began; nothing was written\n")
    os._exit(1)


def end_with_launcher() -> None:
    """Under torchrun, end this process by SIGKILL when its launcher dies, and at once if it is dead already.

    A dead launcher's processes belong to process 1 or to systemd. A container may run torchrun itself as process 1.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.getppid()
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    if (parent == 1 or b"systemd" in command) and b"python" not in command:
        sys.exit(1)
