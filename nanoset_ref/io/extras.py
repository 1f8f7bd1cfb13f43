"""Optional packages: the core reads token files; an extra installs what a group of features needs.

    with extra("text", "reading Parquet files"):
        from pyarrow import parquet

Every import of an optional package goes into such a block: inside the function that uses the
package, or at the top of a module that only this extra imports. If the package is missing, the
error is one line with the command that installs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

PACKAGE = "nanoset_ref"


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import optional packages in this block.

    Args:
        name: the extra in pyproject.toml that installs the packages.
        purpose: the feature that needs them, as a noun: "reading Parquet files".

    Raises:
        ModuleNotFoundError: a package is not installed; the message names it, the purpose and the
            pip command.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] == PACKAGE:
            raise
        message = (
            f"{purpose} needs the package {missing}, which is not installed: "
            f'pip install "{PACKAGE}[{name}]"'
        )
        raise ModuleNotFoundError(message, name=missing) from None
