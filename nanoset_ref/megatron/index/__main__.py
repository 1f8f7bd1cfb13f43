"""python -m nanoset_ref.megatron.index"""

import sys

from nanoset_ref.megatron.index.build_index import main

if __name__ == "__main__":
    sys.exit(main())
