"""python -m nanoset_ref.cli: the command nanoset-ref."""

import sys

from nanoset_ref.cli import main

sys.exit(main())
