"""python -m nanoset_ref.megatron.index"""

import sys

from nanoset_ref.megatron.index.index_command import main

if __name__ == "__main__":
    sys.exit(main())
