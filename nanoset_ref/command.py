"""Commands made from functions: options from the signature, help from the docstring, every error in one line.

    def split(source: str, train: Path, /, *, held_out: float, seed: int = 1234, overwrite: bool = False): ...

becomes `split SOURCE TRAIN --held-out HELD_OUT [--seed SEED] [--overwrite]`: positional-only parameters are arguments,
the others are options, required without a default. `--held_out` is understood as `--held-out`. This is the only module
that knows the command-line library; only the parser of the command that was asked for is built.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import json
import logging
import os
import re
import signal
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from nanoset_ref.launcher import end_with_launcher, is_main_rank, under_torchrun


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
    interrupted: str = "nothing was written",
) -> int:
    """Run a function as a command.

    Any Annotated[type, parse] in its signature calls `parse` on the text;
    a parameter whose type is a dataclass stands for the options in the dataclass's fields.

    Args:
        arguments: the command line; None: of this process.
        prog: what the command is called in help and errors.
        report: called with the function's result, and the options by name, it prints what was done; without it, the
            result is the exit code or None.
        says: the logging level from which messages of the main rank are shown.
        interrupted: what Ctrl-C and SIGTERM leave behind.

    An error whose `reported_elsewhere` is true is not printed: another rank has done it.

    Returns:
        The exit code: 0 done, 1 the input is at fault, 2 the command line is.
    """
    try:
        with _orderly_end(prog, says, interrupted):
            words = sys.argv[1:] if arguments is None else arguments
            positional, options = _parse(function, _hyphened(words), prog)
            result = function(*positional, **options)
            code = int((report(result, **options) if report else result) or 0)
            sys.stdout.flush()  # here, where an error can still be reported
            return code
    except SystemExit as end:  # what argparse has printed and decided
        return int(end.code or 0)
    except BrokenPipeError:  # `| head` has seen enough
        code = 0
    except UsageError as error:
        print(f"{prog}: error: {error}; see {prog} --help", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        if is_main_rank():
            print(f"{prog}: error: interrupted; {interrupted}", file=sys.stderr)
        code = 1
    except (ValueError, OSError, IndexError, RuntimeError) as error:
        if not getattr(error, "reported_elsewhere", False):
            print(f"{prog}: error: {_one_line(error)}", file=sys.stderr)
        code = 1
    _mute()
    return code


def show(value: Any, text: str, *, as_json: bool) -> None:
    """Print a result as text, or as JSON."""
    print(json.dumps(value, indent=1, ensure_ascii=False) if as_json else text)


def at_least(least: int) -> Callable[[str], int]:
    """Parses a whole number from `least` on."""

    def number(text: str) -> int:
        if not re.fullmatch(r"\s*[-+]?\d+\s*", text) or int(text) < least:
            raise ValueError(f"must be a whole number from {least} on, got {text!r}")
        return int(text)

    return number


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


@contextlib.contextmanager
def _orderly_end(prog: str, says: int, interrupted: str) -> Iterator[None]:
    """Logging, and SIGTERM, which torchrun sends to the other ranks when one has died, as an orderly end."""

    def terminated(number: int, frame: FrameType | None) -> None:
        why = " (torchrun ends all ranks when one dies, and reports which)" if under_torchrun() else ""
        if is_main_rank():
            print(f"{prog}: error: ended by SIGTERM{why}; {interrupted}", file=sys.stderr)
        raise SystemExit(1)

    end_with_launcher()
    logging.basicConfig(level=says if is_main_rank() else logging.ERROR, format=f"{prog}: %(levelname)s: %(message)s")
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, terminated)
    yield


def _mute() -> None:
    """What is left in the buffer of standard output goes nowhere, and not into an error at the interpreter's end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _hyphened(arguments: Sequence[str]) -> list[str]:
    """--num_workers=2 as --num-workers=2; values stay."""
    return [re.sub(r"^--[^=]*", lambda name: name.group().replace("_", "-"), argument) for argument in arguments]


def _parse(function: Callable[..., Any], words: Sequence[str], prog: str) -> tuple[list[Any], dict[str, Any]]:
    """The positional arguments and the options of a call."""
    description = (inspect.getdoc(function) or "").split("\n\nArgs:")[0]
    parser = _Parser(prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = _add_options(parser, function)
    options = vars(parser.parse_args(words))
    for name, kind in groups.items():
        options[name] = kind(**{field.name: options.pop(field.name) for field in dataclasses.fields(kind)})
    positional = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(options.pop(parameter.name))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += options.pop(parameter.name)
    return positional, options


def _add_options(parser: argparse.ArgumentParser, function: Any) -> dict[str, Any]:
    """Add the options of a function (or a dataclass); the parameters that are dataclasses are returned."""
    helps, hints = _argument_helps(function), typing.get_type_hints(function, include_extras=True)
    groups = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if dataclasses.is_dataclass(kind):
            _add_options(parser, kind)
            groups[parameter.name] = kind
        else:
            _add_option(parser, parameter, kind, helps.get(parameter.name, ""))
    return groups


def _add_option(parser: argparse.ArgumentParser, parameter: inspect.Parameter, kind: Any, help: str) -> None:
    options, help = _how(kind), help.replace("%", "%%")
    if parameter.kind is parameter.VAR_POSITIONAL:
        options["nargs"] = "+"
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
        parser.add_argument(parameter.name, help=help, **options)
        return
    flag, required = f"--{parameter.name.replace('_', '-')}", parameter.default is parameter.empty
    default = None if required else parameter.default
    if options.get("type") is bool:
        options = {"action": argparse.BooleanOptionalAction if default is None else "store_true"}
    elif default not in (None, "", ()):
        help += f" (default: {default})"
    parser.add_argument(flag, dest=parameter.name, required=required, default=default, help=help, **options)


def _how(kind: Any) -> dict[str, Any]:
    """What argparse has to know about a type."""
    if get_origin(kind) is Annotated:
        kind, parse = get_args(kind)
        return _how(kind) | {"type": _reporting(parse)}
    if get_origin(kind) in (Union, UnionType):  # `X | None`, or `float | str`, whose first type is meant
        return _how(next(one for one in get_args(kind) if one is not NoneType))
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is tuple:
        return _how(get_args(kind)[0]) | {"nargs": len(get_args(kind))}
    if get_origin(kind) in (list, Sequence):
        return _how(get_args(kind)[0]) | {"nargs": "+"}
    return {"type": kind}


def _reporting(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """`parse` with its ValueErrors as argparse wants them, message included."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _argument_helps(function: Any) -> dict[str, str]:
    """The text of each argument in a docstring's `Args:`; a dataclass has those of its bases, too."""
    helps: dict[str, str] = {}
    for documented in reversed(getattr(function, "__mro__", [function])):
        _, _, rest = inspect.cleandoc(documented.__doc__ or "").partition("\nArgs:\n")
        section = re.split(r"\n(?=\S)", rest)[0]
        found = re.findall(r"^    (\w+(?:, \w+)*): (.*?)(?=^    \w|\Z)", section, re.MULTILINE | re.DOTALL)
        helps |= {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}
    return helps
