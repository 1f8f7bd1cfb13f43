"""python -m nanoset_ref.preprocess"""

import sys

from nanoset_ref.preprocess.token_file import main

if __name__ == "__main__":
    sys.exit(main())
