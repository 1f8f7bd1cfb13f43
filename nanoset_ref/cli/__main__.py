import sys

from nanoset_ref.cli import main

sys.exit(main())
