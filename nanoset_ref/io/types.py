"""The types of most arrays (positions, samples, offsets) and of what is stored as JSON."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Json = dict[str, Any]  # an object of JSON
