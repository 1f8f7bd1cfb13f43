"""python -m nanoset_ref.train; torchrun -m nanoset_ref.train"""

import sys

from nanoset_ref.train.train_command import main

if __name__ == "__main__":
    sys.exit(main())
