"""Read a YAML 1.2 file as plain values.

ruamel.yaml refuses a key that is used twice, and reads `1e-4` as a number. Size, depth and aliases
are limited before any value is built, so a hostile file fails as fast as a valid one loads. Errors
print at most 300 characters of a value.
"""

from pathlib import Path
from typing import Any

from nanoset_ref.io.error_text import shorten
from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import PathLike, file_size

with extra("train", "reading YAML"):
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

MAX_CHARACTERS = 1 << 19
MAX_DEPTH = 32
MAX_ALIASES = 16  # aliases within aliases multiply: 16 expand at most 400 times


class ConfigError(ValueError):
    """A config is wrong; the message gives the path within the YAML file."""


def read_yaml(path: PathLike) -> Any:
    """Read the dicts, lists and scalars of a YAML file.

    Raises:
        FileNotFoundError: the file does not exist.
        ConfigError: the file is not YAML, or exceeds a limit; the message names it.
    """
    file_size(path)  # refuses pipes, folders and devices
    parser = YAML(typ="safe", pure=True)
    try:
        text = Path(path).read_text(encoding="utf-8")
        if len(text) > MAX_CHARACTERS:
            raise ConfigError(
                f"has more than {MAX_CHARACTERS:,} characters; "
                "a config names files; it does not contain data"
            )
        _check_limits(parser.parse(text))
        return parser.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}: line {line}: {shorten(error.problem)}") from error
    except TypeError as error:  # unhashable
        raise ConfigError(
            f"{path}: a key is a mapping or a list: {shorten(error)}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: save it as UTF-8: {shorten(error)}") from error
    except (YAMLError, KeyError, OverflowError, ValueError) as error:
        raise ConfigError(f"{path}: {shorten(error)}") from error


def _check_limits(events: Any) -> None:
    """Raise ConfigError if the events of a YAML file exceed MAX_DEPTH or MAX_ALIASES."""
    depth = 0
    aliases = 0
    for event in events:
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        elif isinstance(event, AliasEvent):
            aliases += 1
        if depth > MAX_DEPTH or aliases > MAX_ALIASES:
            raise ConfigError(
                f"nested more than {MAX_DEPTH} deep, "
                f"or with more than {MAX_ALIASES} aliases (*name)"
            )
