"""Who started this process: torchrun, as one rank of several, or somebody else.

A rank has no use without its launcher: nobody would end it when another rank fails. `end_with_launcher` lets Linux end
it the moment the launcher dies, even while the rank imports torch or waits for a connection.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def under_torchrun() -> bool:
    """Whether this process is one of several ranks."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main_rank() -> bool:
    """Whether this process is rank 0, or no rank at all."""
    return int(os.environ.get("RANK", "0")) == 0


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
