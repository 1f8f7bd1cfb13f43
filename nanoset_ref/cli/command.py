"""Run a function as a command: its start, its exit code, and every error in one line.

An unexpected error says so in its line; NANOSET_REF_TRACEBACK=1 prints the traceback of any error.
"""

import contextlib
import dis
import io
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from nanoset_ref.cli.arguments import UsageError, parse_arguments
from nanoset_ref.cli.startup import end_with_launcher, restore_interrupts
from nanoset_ref.io.error_text import one_line, shorten
from nanoset_ref.io.torchrun import is_main_rank, under_torchrun

_ended = threading.Event()  # the command has ended


class _Terminated(SystemExit):
    """SIGTERM, which torchrun sends to the other ranks when one has died."""

    code = 1


def run(
    function: Callable[..., Any],
    arguments: Sequence[str] | None,
    prog: str,
    *,
    report: Callable[..., int | None] | None = None,
    log_level: int = logging.WARNING,
    interrupted: str = "no file is half written",
) -> int:
    """Run a function as a command, whose arguments and options are those of `parse_arguments`.

    Args:
        function: the function.
        arguments: the command line; None takes this process's own.
        prog: the name of the command in help and errors.
        report: prints a summary; called with the function's result and its arguments by name.
            Without it, the result is the exit code or None.
        log_level: the lowest logging level that is shown on the main rank.
        interrupted: the state that Ctrl-C and SIGTERM leave behind, for the error message.

    Returns:
        The exit code: 0 done, 1 the input is wrong, 2 the command line is wrong; or the code
        that `report` returns.
    """
    words = command_line(arguments)
    handler = signal.getsignal(signal.SIGTERM)

    def parse_and_run() -> int:
        _prepare_process(prog, log_level)
        call = parse_arguments(function, words, prog)
        result = function(*call.args, **call.kwargs)
        if report:
            result = report(result, **call.arguments)
        sys.stdout.flush()  # here, where an error can still be reported
        return int(result or 0)

    try:
        code, problem = _run_and_explain(parse_and_run, prog, interrupted)
        if problem:
            print(f"{prog}: error: {problem}", file=sys.stderr)
        _discard_output()
        _ended.set()
        return code
    except _Terminated:  # while another error was being reported, or after that
        return 1
    finally:
        if handler not in (None, signal.SIG_DFL):  # a program's, which has called this
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGTERM, handler)


def command_line(arguments: Sequence[str] | None) -> list[str]:
    """The words of a command line; None: of this process."""
    return list(sys.argv[1:] if arguments is None else arguments)


def _run_and_explain(
    command: Callable[[], int], prog: str, interrupted: str
) -> tuple[int, str]:
    """Run a command; return its exit code, and its error in one line or ""."""
    try:
        return command(), ""
    except BrokenPipeError:  # `| head` has seen enough
        return 0, ""
    except UsageError as error:
        return 2, f"{one_line(error)}; see {prog} --help"
    except (KeyboardInterrupt, _Terminated) as end:
        what = str(end) or "interrupted"
        return 1, f"{what}; {interrupted}" if is_main_rank() else ""
    except SystemExit as end:  # argparse has printed help or an error
        return int(end.code or 0), ""
    except Exception as error:
        if os.environ.get("NANOSET_REF_TRACEBACK") == "1":
            traceback.print_exc()
        return 1, one_line(error) if _is_expected(error) else _unexpected(error)


def _is_expected(error: Exception) -> bool:
    """Whether an error is about the input: by its type, or because this package raised it."""
    if isinstance(error, (ValueError, OSError, ImportError)):
        return not type(error).__module__.startswith("numba")
    module, is_raise = _origin(error)
    return is_raise and module.startswith("nanoset_ref")


def _origin(error: Exception) -> tuple[str, bool]:
    """The module of the innermost frame of an error, and whether a `raise` statement raised it."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    if last is None:
        return "", False
    module = last.tb_frame.f_globals.get("__name__", "")
    operation = last.tb_frame.f_code.co_code[last.tb_lasti]
    return module, operation == dis.opmap["RAISE_VARARGS"]


def _unexpected(error: Exception) -> str:
    """The message for a bug of this package, or for a library's unexpected error."""
    said = shorten(f"{type(error).__name__}: {error}").rstrip(": ")
    if isinstance(error, MemoryError) or "out of memory" in said:
        return f"there is not enough memory ({said})"
    module, _ = _origin(error)
    has_lost_peer = "gloo/transport" in said
    if has_lost_peer or module.startswith("torch.distributed"):
        return f"another rank has probably failed, and says why ({said})"
    return (
        f"unexpected, and probably a bug of nanoset_ref; please report it ({said}): "
        "NANOSET_REF_TRACEBACK=1 shows where"
    )


def _prepare_process(prog: str, level: int) -> None:
    """Set up output and logging, and make Ctrl-C and SIGTERM raise."""
    _ended.clear()
    _prepare_output()
    restore_interrupts()
    end_with_launcher()
    logging.basicConfig(
        level=level if is_main_rank() else logging.ERROR,
        format=f"{prog}: %(levelname)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminate)


def _prepare_output() -> None:
    """Replace closed standard streams, and escape characters that their encoding does not have."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # or the next file gets its descriptor
            null = open(os.devnull, "w")  # noqa: SIM115 (used to the end)
            setattr(sys, name, null)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _terminate(*_: Any) -> None:
    """Handle SIGTERM: raise, so that the command reports it and removes its temporaries."""
    if _ended.is_set():  # nothing is left to report
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    # torch would raise for loading workers that SIGTERM has ended as well (and with SIG_DFL,
    # Python would report a signal that came before)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    why = ""
    if under_torchrun():
        why = " (torchrun ends all ranks when one dies, and reports which)"
    raise _Terminated(f"ended by SIGTERM{why}")


def _discard_output() -> None:
    """Flush standard output; drop its buffer if that fails, so that the interpreter can end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
