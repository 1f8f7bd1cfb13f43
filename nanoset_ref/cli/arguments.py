"""The command line of a function: options from its signature, help from its docstring.

    def split(source: str, train: Path, /, *, held_out: float, overwrite: bool = False): ...

becomes `split SOURCE TRAIN --held-out HELD_OUT [--overwrite]`: positional-only parameters are
arguments, the others are options; those without a default are required. `--held_out` is understood
as `--held-out`. Only the parser of the chosen command is built. The library is argparse, because
every --help has to work in an install of five packages.

Here are also the types of options, such as `Positive` and `paths_and_weights`.
"""

import argparse
import contextlib
import dataclasses
import inspect
import os
import re
import typing
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

WEIGHT_CHARACTERS = set("+-.0123456789e")


class UsageError(Exception):
    """The command line is wrong (exit code 2), although each option by itself is valid."""


def parse_arguments(
    function: Callable[..., Any], words: Sequence[str], prog: str
) -> inspect.BoundArguments:
    """Parse a command line into the arguments of a call.

    A parameter Annotated[type, parse] is parsed by `parse`. A parameter whose type is a dataclass
    stands for the options in the dataclass's fields; one with a default keeps it if none of them
    is given. So does a field of a dataclass. An option may be a field of two dataclasses: its help
    then comes from the second.
    """
    description = (inspect.getdoc(function) or "").split("\n\nArgs:")[0]
    formatter = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog=prog,
        description=description,
        formatter_class=formatter,
        conflict_handler="resolve",
    )
    groups = _add_options(parser, function)
    values = vars(parser.parse_args([_with_dashes(word) for word in words]))
    for name, (group, is_required) in groups.items():
        names = [field.name for field in dataclasses.fields(group)]
        fields = {field: values[field] for field in names if field in values}
        if fields or is_required:
            values[name] = group(**fields)
    call = inspect.BoundArguments(inspect.signature(function), OrderedDict(values))
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
        {parameter: (its type, whether it is required)} of the parameters that are dataclasses,
        each after those of its own fields.
    """
    helps = _argument_helps(function)
    annotations = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = annotations[name]
        parts = get_args(annotation) or [annotation]  # of `X | None`
        group = next(filter(dataclasses.is_dataclass, parts), None)
        if group:
            groups |= _add_options(parser, group)
            groups[name] = group, parameter.default is parameter.empty
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
    """Add one parameter of a function, or one field of a dataclass."""
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
    return {"type": integer if annotation is int else annotation}


def _argument_helps(function: Any) -> dict[str, str]:
    """{argument: its text in the docstring's `Args:`}; a dataclass has those of its bases, too.

    In that section, a line indented by four spaces is `name: text` or `name, name: text`, and a
    deeper line continues it.
    """
    helps = {}
    for documented in reversed(getattr(function, "__mro__", [function])):
        docstring = inspect.cleandoc(documented.__doc__ or "")
        names = []
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


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line that names --help."""

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse would ignore that the disk is full."""
        print(self.format_help(), end="", flush=True)

    def error(self, message: str) -> NoReturn:
        """Print one line on standard error, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


class _StoreOnce(argparse.Action):
    """Stores a list of values, once: argparse would silently keep only the second list."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, flag: Any = None
    ) -> None:
        if hasattr(namespace, self.dest):
            parser.error(f"{flag} is given twice; give it once, with all its values")
        setattr(namespace, self.dest, values)


def integer(text: str) -> int:
    """Parse a whole number, also with commas: 41,007."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    return int(text)


def at_least(minimum: int) -> Callable[[str], int]:
    """A parser for whole numbers of at least `minimum`, and below 2**63."""

    def number(text: str) -> int:
        with contextlib.suppress(ValueError):
            if minimum <= integer(text) < 2**63:
                return integer(text)
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
    """One item of `paths_and_weights`: its path, and its weight or None."""
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
