"""Pydantic's validation errors as messages of this package."""

from collections.abc import Collection
from typing import Any

from nanoset_ref.io.checks import unknown_key_problem
from nanoset_ref.io.error_text import redact, short_repr


def problems_of(error: Any, keys: Collection[str] = ()) -> list[str]:
    """One line per problem that pydantic found.

    For example "data_stages[1].data.seed: should be a valid integer, got '7'".

    Args:
        error: pydantic's ValidationError. The ValueErrors of a model's own validator already name
            the path in each line; those of its sections do not.
        keys: the known keys, to suggest one for a misspelled key.
    """
    problems = []
    for details in error.errors(include_url=False):
        parts = [
            f"[{part}]" if isinstance(part, int) else f".{redact(part)}"
            for part in details["loc"]
        ]
        if details["type"] == "extra_forbidden":
            message = unknown_key_problem(str(details["loc"][-1]), keys)
        elif details["type"] == "missing":
            message = "is missing"
        elif details["type"] == "value_error":
            message = str(details["ctx"]["error"])
            if len(parts) == 1:
                parts = []
        else:
            expected = details["msg"].replace("Input should", "should")
            message = f"{expected}, got {short_repr(details['input'])}"
        where = "".join(parts).removeprefix(".")
        for line in message.splitlines():
            problems.append(f"{where}: {line}" if where else line)
    return problems
