"""Make commands from functions: options from the signature, help from the docstring.

Every error is reported in one line.

    def split(source: str, train: Path, /, *, held_out: float, overwrite: bool = False): ...

becomes `split SOURCE TRAIN --held-out HELD_OUT [--overwrite]`: positional-only parameters are
arguments, the others are options; those without a default are required. `--held_out` is understood
as `--held-out`. Only the parser of the chosen command is built. The library is argparse, because
every --help has to work in an install of five packages.

An unexpected error says so in its line; NANOSET_REF_TRACEBACK=1 prints the traceback of any error.
"""

import argparse
import contextlib
import dataclasses
import dis
import inspect
import io
import logging
import os
import signal
import sys
import threading
import traceback
import typing
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from nanoset_ref.cli.launcher import end_with_launcher, interrupts_raise
from nanoset_ref.io.error_text import one_line, shorten
from nanoset_ref.io.torchrun import is_main_rank, under_torchrun

WEIGHT_CHARACTERS = set("+-.0123456789e")

_ended = threading.Event()  # the command has ended


class UsageError(Exception):
    """The command line is wrong (exit code 2), although each option by itself is valid."""


class _Terminated(SystemExit):
    """SIGTERM, which torchrun sends to the other ranks when one has died."""

    code = 1


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line that names --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


class _StoreOnce(argparse.Action):
    """Stores a list of values, once: argparse would silently keep only the second list."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, flag: Any = None
    ) -> None:
        if hasattr(namespace, self.dest):
            parser.error(f"{flag} is given twice; give it once, with all its values")
        setattr(namespace, self.dest, values)


def run(
    function: Callable[..., Any],
    arguments: Sequence[str] | None,
    prog: str,
    *,
    report: Callable[..., int | None] | None = None,
    log_level: int = logging.WARNING,
    interrupted: str = "no file is half written",
) -> int:
    """Run a function as a command.

    A parameter Annotated[type, parse] is parsed by `parse`. A parameter whose type is a dataclass
    stands for the options in the dataclass's fields; one with a default keeps it if none of them
    is given. An option may be a field of two dataclasses: its help then comes from the second.

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

    def parse_and_run() -> int:
        _prepare_process(prog, log_level)
        call = _parse(function, words, prog)
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


def at_least(minimum: int) -> Callable[[str], int]:
    """A parser for whole numbers of at least `minimum`, and below 2**63."""

    def number(text: str) -> int:
        with contextlib.suppress(ValueError):
            if minimum <= int(text) < 2**63:
                return int(text)
        rule = f"an integer of at least {minimum}"
        if len(text) > 18:
            rule += " and below 2**63"
        raise argparse.ArgumentTypeError(f"must be {rule}, got {text!r}")

    return number


def share_or_count(text: str) -> float:
    """Parse a number: only one without a point is a count."""
    with contextlib.suppress(ValueError):
        return int(text) if text.isdecimal() else float(text)
    raise argparse.ArgumentTypeError(
        f"must be a share such as 0.01 or a number of documents, got {text!r}"
    )


NotNegative = Annotated[int, at_least(0)]
Positive = Annotated[int, at_least(1)]


def paths_and_weights(items: Sequence[str]) -> tuple[list[str], list[float] | None]:
    """["a=0.8", "b=0.2"] -> (["a", "b"], [0.8, 0.2]); ["a", "x=1/b"] -> (["a", "x=1/b"], None).

    A number after the last "=" is a weight, unless the whole item is a file: `data/crawl=2024` is
    one if it exists.

    Raises:
        ValueError: some items have a weight and some have none; the item and the path before "="
            are both files; a weight is no number.
    """
    parts = [_path_and_weight(item) for item in items]
    paths = [path for path, _ in parts]
    weights = [weight for _, weight in parts if weight is not None]
    if weights and len(weights) < len(paths):
        raise ValueError(f"give every file a weight or none, got {list(items)}")
    return paths, weights or None


def _path_and_weight(item: str) -> tuple[str, float | None]:
    path, equals, text = item.rpartition("=")
    looks_like_number = text[:1] != "e" and WEIGHT_CHARACTERS.issuperset(text)
    if not equals or not text or not looks_like_number:
        return item, None
    if "://" in item:
        last_field = item.partition("?")[2].rpartition("&")[2]
        if last_field.count("=") == 1:  # of a query, as in ...?Expires=3600
            return item, None
    elif _exists(item):
        if _exists(path):
            raise ValueError(
                f"{item} and {path} both exist: write {item}=1 for the first with the weight 1, or "
                f"{path}={float(text)} for the second with this weight"
            )
        return item, None
    try:
        return path, float(text)
    except ValueError as error:
        raise ValueError(f"{item}: a weight is a number, got {text!r}") from error


def _exists(path: str) -> bool:
    """Whether this is a file or folder, or the prefix of a .bin/.idx pair."""
    return os.path.exists(path) or os.path.exists(f"{path}.idx")


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
    is_raised = operation == dis.opmap["RAISE_VARARGS"]
    return module, is_raised


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
    interrupts_raise()
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


def _do_nothing(*_: Any) -> None:
    """A handler. (With SIG_DFL instead, Python would report a signal that came before.)"""


def _terminate(*_: Any) -> None:
    if _ended.is_set():  # nothing is left to report
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    # torch would raise for loading workers that SIGTERM has ended as well
    signal.signal(signal.SIGCHLD, _do_nothing)
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


def _parse(
    function: Callable[..., Any], words: Sequence[str], prog: str
) -> inspect.BoundArguments:
    """Parse a command line into the arguments of a call."""
    description = (inspect.getdoc(function) or "").split("\n\nArgs:")[0]
    layout = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog=prog,
        description=description,
        formatter_class=layout,
        conflict_handler="resolve",
    )
    groups = _add_options(parser, function)
    values = vars(parser.parse_args([_with_dashes(word) for word in words]))
    signature = inspect.signature(function)
    for name, group in groups.items():
        names = [field.name for field in dataclasses.fields(group)]
        fields = {field: values[field] for field in names if field in values}
        is_required = signature.parameters[name].default is inspect.Parameter.empty
        if fields or is_required:
            values[name] = group(**fields)
    call = inspect.BoundArguments(signature, OrderedDict(values))
    call.apply_defaults()
    return call


def _with_dashes(word: str) -> str:
    """--num_workers=a_b -> --num-workers=a_b"""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _add_options(parser: argparse.ArgumentParser, function: Any) -> dict[str, Any]:
    """Add the options of a function or a dataclass.

    Returns:
        {parameter: its type} of the parameters that are dataclasses.
    """
    helps = _argument_helps(function)
    annotations = typing.get_type_hints(function, include_extras=True)
    groups = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = annotations[name]
        parts = get_args(annotation) or [annotation]  # of `X | None`
        group = next(filter(dataclasses.is_dataclass, parts), None)
        if group:
            _add_options(parser, group)
            groups[name] = group
        else:
            _add_option(
                parser, parameter, annotation, helps.get(name, "").replace("%", "%%")
            )
    return groups


def _add_option(
    parser: argparse.ArgumentParser,
    parameter: inspect.Parameter,
    annotation: Any,
    help: str,
) -> None:
    options = _options_of(annotation)
    default = parameter.default
    if parameter.kind is parameter.VAR_POSITIONAL:
        options["nargs"] = "+"
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
        if default is not parameter.empty:
            options |= {"nargs": "?", "default": default}
        parser.add_argument(parameter.name, help=help, **options)
        return
    action: Any = _StoreOnce if "nargs" in options else "store"
    if default is parameter.empty:
        options["required"] = True
    elif options.get("type") is bool:
        action = "store_true"
        if default is None:
            action = argparse.BooleanOptionalAction
        options = {}
    elif default not in (None, "", ()):
        help += f" (default: {default})"
    flag = f"--{parameter.name.replace('_', '-')}"
    parser.add_argument(
        flag,
        dest=parameter.name,
        action=action,
        default=argparse.SUPPRESS,  # an option left out keeps the function's default
        help=help,
        **options,
    )


def _options_of(annotation: Any) -> dict[str, Any]:
    """The keyword arguments of argparse's add_argument for a type annotation."""
    origin = get_origin(annotation)
    inner = get_args(annotation)
    if origin is Annotated:
        return _options_of(inner[0]) | {"type": inner[1]}
    # `X | None`; of `float | str` the first type parses
    if origin in (Union, UnionType):
        return _options_of(next(one for one in inner if one is not NoneType))
    if origin is Literal:
        return {"choices": inner}
    if origin is tuple:
        return _options_of(inner[0]) | {"nargs": len(inner)}
    if origin in (list, Sequence):
        return _options_of(inner[0]) | {"nargs": "+"}
    return {"type": annotation}


def _argument_helps(function: Any) -> dict[str, str]:
    """{argument: its text in the docstring's `Args:`}; a dataclass has those of its bases, too.

    In that section, a line indented by four spaces is `name: text` or `name, name: text`, and a
    deeper line continues it.
    """
    helps: dict[str, str] = {}
    for documented in reversed(getattr(function, "__mro__", [function])):
        docstring = inspect.cleandoc(documented.__doc__ or "")
        names: list[str] = []
        for line in docstring.partition("\nArgs:\n")[2].split("\n"):
            if not line.startswith("    "):
                break  # the section has ended
            text = line.strip()
            if line[4] != " ":
                before, _, text = text.partition(": ")
                names = before.split(", ")
                helps.update(dict.fromkeys(names, ""))
            for name in names:
                helps[name] = f"{helps[name]} {text}".strip()
    return helps
