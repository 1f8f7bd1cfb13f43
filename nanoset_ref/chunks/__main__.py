"""python -m nanoset_ref.chunks"""

import sys

from nanoset_ref.cli.startup import begin_command

if __name__ == "__main__":
    begin_command()  # before the import, so that Ctrl-C during it gives one line
    from nanoset_ref.chunks.commands import main

    sys.exit(main())
