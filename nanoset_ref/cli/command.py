"""Commands made from functions: options from the signature, help from the docstring, every error in one line.

    def split(source: str, train: Path, /, *, held_out: float, seed: int = 1234, overwrite: bool = False): ...

becomes `split SOURCE TRAIN --held-out HELD_OUT [--seed SEED] [--overwrite]`: positional-only parameters are arguments,
the others are options, required without a default. `--held_out` is understood as `--held-out`. This is the only module
that knows the command-line library; only the parser of the command that was asked for is built.

An error that nobody foresaw says so in its line; NANOSET_REF_TRACEBACK=1 prints the traceback of any error.
"""

import argparse
import contextlib
import dataclasses
import dis
import inspect
import logging
import os
import re
import signal
import sys
import threading
import traceback
import typing
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from nanoset_ref.cli.launcher import (
    end_with_launcher,
    interrupts_raise,
    is_main_rank,
    under_torchrun,
)

MOST_SAID = 300  # characters of an unexpected error

_over = threading.Event()  # the command has ended


class UsageError(Exception):
    """The command line is wrong (exit code 2), though each of its options is right."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, and where the usage is."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def run(
    function: Callable[..., Any],
    arguments: Sequence[str] | None,
    prog: str,
    *,
    report: Callable[..., int | None] | None = None,
    says: int = logging.WARNING,
    interrupted: str = "no file is half written",
) -> int:
    """Run a function as a command.

    An Annotated[type, parse] in its signature calls `parse` on the text; a parameter whose type is a dataclass stands
    for the options in the dataclass's fields.

    Args:
        arguments: the command line; None: of this process.
        prog: what the command is called in help and errors.
        report: called with the function's result, and its arguments by name, it prints what was done; without it, the
            result is the exit code or None.
        says: the logging level from which messages of the main rank are shown.
        interrupted: what Ctrl-C and SIGTERM leave behind.

    Returns:
        The exit code: 0 done, 1 the input is at fault, 2 the command line is; another one if `report` says so.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(function, words, prog, report, says, interrupted)
        _over.set()
        return code
    except _Terminated:  # while another error was being reported, or since
        return 1


def _run(
    function: Any, words: Sequence[str], prog: str, report: Any, says: int, interrupted: str
) -> int:
    code, problem = 1, ""
    try:
        interrupts_raise()
        _prepare(prog, says)
        call = _parse(function, words, prog)
        result = function(*call.args, **call.kwargs)
        if report:
            result = report(result, **call.arguments)
        sys.stdout.flush()  # here, where an error can still be reported
        return int(result or 0)
    except BrokenPipeError:  # `| head` has seen enough
        code = 0
    except UsageError as error:
        code, problem = 2, f"{error}; see {prog} --help"
    except (KeyboardInterrupt, _Terminated) as end:
        problem = f"{str(end) or 'interrupted'}; {interrupted}" if is_main_rank() else ""
    except SystemExit as end:  # what argparse has printed and decided
        code = int(end.code or 0)
    except Exception as error:
        problem = one_line(error) if _foreseen(error) else _unforeseen(error)
        if os.environ.get("NANOSET_REF_TRACEBACK") == "1":
            traceback.print_exc()
    if problem:
        print(f"{prog}: error: {problem}", file=sys.stderr)
    _mute()
    return code


def at_least(least: int) -> Callable[[str], int]:
    """Parses a whole number from `least` on."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[-+]?\d+", text) or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} on, got {text!r}"
            )
        return int(text)

    return number


def paths_and_weights(items: Sequence[str]) -> tuple[list[str], list[float] | None]:
    """["a=0.8", "b=0.2"] -> (["a", "b"], [0.8, 0.2]); ["a", "x=1/b"] -> (["a", "x=1/b"], None).

    A number behind the last "=" is a weight, unless the whole is a file: `data/crawl=2024` is one if it is there.

    Raises:
        ValueError: some have a weight and some have none; both readings are files; a weight that is no number.
    """
    parts = [_path_and_weight(item) for item in items]
    paths = [path for path, _ in parts]
    weights = [weight for _, weight in parts if weight is not None]
    if weights and len(weights) < len(paths):
        raise ValueError(f"give every file a weight or none, got {list(items)}")
    return paths, weights or None


def _path_and_weight(item: str) -> tuple[str, float | None]:
    path, equals, text = item.rpartition("=")
    if not equals or not re.fullmatch(r"[-+.\d][-+.\de]*", text):
        return item, None
    if "://" in item:
        pair = item.partition("?")[2].rpartition("&")[2]
        if pair.count("=") == 1:  # the last field of a query, as in ...?Expires=3600
            return item, None
    elif _is_there(item):
        if _is_there(path):
            way = f"{item}=1 is the first with the weight 1, {path}={float(text)} the second with this weight"
            raise ValueError(f"{item} and {path} are both there: {way}")
        return item, None
    try:
        return path, float(text)
    except ValueError as error:
        raise ValueError(f"{item}: a weight is a number, got {text!r}") from error


def _is_there(path: str) -> bool:
    """Whether this is a file or folder, or the prefix of a .bin/.idx pair."""
    return os.path.exists(path) or os.path.exists(f"{path}.idx")


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def _foreseen(error: Exception) -> bool:
    """Whether an error is about the input: of a kind that says so, or raised by a `raise` of this package."""
    if isinstance(error, (ValueError, OSError, ImportError)):
        return not type(error).__module__.startswith("numba")
    module, is_raise = _origin(error)
    return is_raise and module.startswith("nanoset_ref")


def _origin(error: Exception) -> tuple[str, bool]:
    """The module that an error comes from, and whether a `raise` made it (another operation did otherwise)."""
    where = error.__traceback__
    while where and where.tb_next:
        where = where.tb_next
    if where is None:
        return "", False
    operation = where.tb_frame.f_code.co_code[where.tb_lasti]
    return where.tb_frame.f_globals.get("__name__", ""), operation == dis.opmap["RAISE_VARARGS"]


def _unforeseen(error: Exception) -> str:
    """What to say about an error of ours, or of a library that nobody expected it from."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_SAID].rstrip(": ")
    if isinstance(error, MemoryError) or "out of memory" in said:
        return f"there is not enough memory ({said})"
    if _origin(error)[0].startswith("torch.distributed"):
        return f"another rank has probably failed, and says why ({said})"
    what = "unexpected, and probably a bug of nanoset_ref; please report it"
    return f"{what} ({said}): NANOSET_REF_TRACEBACK=1 shows where"


class _Terminated(SystemExit):
    """SIGTERM, which torchrun sends to the other ranks when one has died."""

    code = 1


def _prepare(prog: str, says: int) -> None:
    """Logging, and SIGTERM as an orderly end."""

    def terminated(*_: Any) -> None:
        if _over.is_set():  # and nothing is left to report
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        why = (
            " (torchrun ends all ranks when one dies, and reports which)"
            if under_torchrun()
            else ""
        )
        raise _Terminated(f"ended by SIGTERM{why}")

    _over.clear()
    end_with_launcher()
    logging.basicConfig(
        level=says if is_main_rank() else logging.ERROR,
        format=f"{prog}: %(levelname)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, terminated)


def _mute() -> None:
    """What is left in the buffer of standard output goes nowhere, and not into an error at the interpreter's end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(function: Callable[..., Any], words: Sequence[str], prog: str) -> inspect.BoundArguments:
    """The arguments of a call; --num_workers=2 is read as --num-workers=2."""
    description = (inspect.getdoc(function) or "").split("\n\nArgs:")[0]
    parser = _Parser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = _add_options(parser, function)
    words = [
        re.sub(r"^--[^=]*", lambda name: name.group().replace("_", "-"), word) for word in words
    ]
    values = vars(parser.parse_args(words))
    for name, kind in groups.items():
        values[name] = kind(
            **{field.name: values.pop(field.name) for field in dataclasses.fields(kind)}
        )
    return inspect.BoundArguments(inspect.signature(function), OrderedDict(values))


def _add_options(parser: argparse.ArgumentParser, function: Any) -> dict[str, Any]:
    """Add the options of a function (or a dataclass); the parameters that are dataclasses are returned."""
    helps, hints = _argument_helps(function), typing.get_type_hints(function, include_extras=True)
    groups = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            _add_options(parser, hints[name])
            groups[name] = hints[name]
        else:
            _add_option(parser, parameter, hints[name], helps.get(name, "").replace("%", "%%"))
    return groups


def _add_option(
    parser: argparse.ArgumentParser, parameter: inspect.Parameter, kind: Any, help: str
) -> None:
    options, default = _how(kind), parameter.default
    if parameter.kind is parameter.VAR_POSITIONAL:
        options["nargs"] = "+"
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
        parser.add_argument(parameter.name, help=help, **options)
        return
    if default is parameter.empty:
        options["required"] = True
    elif options.get("type") is bool:
        options = {
            "action": argparse.BooleanOptionalAction if default is None else "store_true",
            "default": default,
        }
    else:
        options["default"] = default
        help += f" (default: {default})" if default not in (None, "", ()) else ""
    parser.add_argument(
        f"--{parameter.name.replace('_', '-')}", dest=parameter.name, help=help, **options
    )


def _how(kind: Any) -> dict[str, Any]:
    """What argparse has to know about a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _how(inner[0]) | {"type": inner[1]}
    if origin in (Union, UnionType):  # `X | None`, or `float | str`, whose first type is meant
        return _how(next(one for one in inner if one is not NoneType))
    if origin is Literal:
        return {"choices": inner}
    if origin is tuple:
        return _how(inner[0]) | {"nargs": len(inner)}
    if origin in (list, Sequence):
        return _how(inner[0]) | {"nargs": "+"}
    return {"type": kind}


def _argument_helps(function: Any) -> dict[str, str]:
    """The text of each argument in a docstring's `Args:`; a dataclass has those of its bases, too."""
    helps: dict[str, str] = {}
    for documented in reversed(getattr(function, "__mro__", [function])):
        _, _, rest = inspect.cleandoc(documented.__doc__ or "").partition("\nArgs:\n")
        section = re.split(r"\n(?=\S)", rest)[0]
        found = re.findall(
            r"^    (\w+(?:, \w+)*): (.*?)(?=^    \w|\Z)", section, re.MULTILINE | re.DOTALL
        )
        helps |= {
            name: " ".join(text.split()) for names, text in found for name in names.split(", ")
        }
    return helps
