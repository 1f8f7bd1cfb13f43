"""The text of messages: errors on one line, URLs without their secrets, short paths, plurals."""

import os
import re
import reprlib

MAX_CHARACTERS = 300
MAX_PATH_CHARACTERS = 40  # in a table
URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
URL_IN_TEXT = re.compile(rf"{URL.pattern}[^\s\"')]*[^\s\"'):;,]")
# a URL that went through pathlib
LOST_SLASH = re.compile("(s3|gs|gcs|az|https?):/(?=[^/])")


def one_line(error: object) -> str:
    """The message on one line, its URLs redacted; a file that it is about comes first."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"{redact(str(error.filename))}: {error.strerror}"
        if isinstance(error, FileNotFoundError):  # of os.getcwd()
            return (
                f"{error.strerror}: if the working directory was deleted, go to another"
            )
        return error.strerror
    return " ".join(redact_all(str(error)).split())


def shorten(error: object) -> str:
    """The first 300 characters of the message, on one line."""
    return one_line(error)[:MAX_CHARACTERS].rstrip()


def shorten_paths(paths: list[str]) -> list[str]:
    """Cut paths of more than MAX_PATH_CHARACTERS from the left, never within the file's name."""
    cut = []
    for path in paths:
        if len(path) > MAX_PATH_CHARACTERS:
            name = path.rpartition("/")[2]
            length = max(MAX_PATH_CHARACTERS - len("..."), len(name))
            path = f"...{path[-length:]}"
        cut.append(path)
    return cut


def pluralize(number: int, noun: str) -> str:
    """(1, "file") -> "1 file"; (2,000, "file") -> "2,000 files"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def redact(path: str | os.PathLike[str]) -> str:
    """A path or URL for messages, without its password and its query, which may be signed."""
    text = os.fspath(path)
    scheme = URL.match(text) or LOST_SLASH.match(text)
    if scheme is None:
        return text
    host, slash, key = text[scheme.end() :].partition("/")
    shown = f"{scheme[0]}{host.rpartition('@')[2]}{slash}{key}"
    if text.lower().startswith("http"):
        shown, mark, _ = shown.partition("?")
        if mark:
            shown += "?..."
    return shown


def redact_all(text: str) -> str:
    """A message with all its URLs redacted."""
    return URL_IN_TEXT.sub(lambda url: redact(url[0]), text)


class _RedactedRepr(reprlib.Repr):
    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(redact(x), level)


# like `reprlib.repr`, for values of a user that may hold URLs
short_repr = _RedactedRepr().repr
