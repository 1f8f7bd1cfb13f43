"""The command `python -m nanoset_ref.megatron.index`; see `build_indexes`."""

import sys

from nanoset_ref.megatron.build_indexes import main

if __name__ == "__main__":
    sys.exit(main())
