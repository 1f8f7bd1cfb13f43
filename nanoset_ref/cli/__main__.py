"""The command nanoset-ref; also python -m nanoset_ref.cli."""

import sys

from nanoset_ref.cli.startup import begin_command


def main() -> int:
    """Run the command line; return the exit code."""
    begin_command()  # before the import, so that Ctrl-C during it gives one line
    from nanoset_ref import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
