"""python -m corpus_generator FILE"""

import sys
from pathlib import Path

from corpus_generator import pack

pack(Path(sys.argv[1]))
