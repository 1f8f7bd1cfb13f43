"""The type of most arrays: positions, samples, offsets."""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
