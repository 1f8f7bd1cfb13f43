"""The start of a command, as one rank of torchrun or as a process of its own.

Without torchrun, nothing would stop this rank when another fails. `end_with_launcher` makes Linux
kill the rank as soon as its launcher dies, even while the rank imports torch or waits for a
connection. A command calls `begin_command` before it imports numpy or torch.
"""

import contextlib
import os
import signal
import sys
from typing import Any

from nanoset_ref.io.torchrun import is_main_rank

PR_SET_PDEATHSIG = 1


def begin_command() -> None:
    """Let Ctrl-C end this process at once, with one line, until `restore_interrupts` is called.

    In between, the command imports its modules.
    """
    end_with_launcher()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _exit_at_once)


def restore_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again; the command reports it."""
    if signal.getsignal(signal.SIGINT) is _exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_at_once(*_: Any) -> None:
    """Handle Ctrl-C while modules are imported: one line from rank 0, and no traceback."""
    if is_main_rank():
        os.write(
            2, b"nanoset_ref: error: interrupted before it began; nothing was written\n"
        )
    os._exit(1)


def end_with_launcher() -> None:
    """Under torchrun, kill this process when its launcher dies, and now if it is dead already.

    Processes of a dead launcher belong to process 1 or to systemd. In a container, torchrun itself
    may be process 1.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or sys.platform != "linux":
        return
    import ctypes  # only a rank of torchrun needs it

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.getppid()
    with open(f"/proc/{parent}/cmdline", "rb") as file:
        command = file.read()
    if (parent == 1 or b"systemd" in command) and b"python" not in command:
        sys.exit(1)
