"""The message of an error, on one line."""

MAX_CHARACTERS = 300


def one_line(error: object) -> str:
    """The message on one line; if the error is about a file, the file comes first."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"{error.filename}: {error.strerror}"
        return error.strerror
    return " ".join(str(error).split())


def shorten(error: object) -> str:
    """The first 300 characters of the message, on one line."""
    return one_line(error)[:MAX_CHARACTERS].rstrip()
