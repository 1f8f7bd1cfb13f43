"""The types of arrays (positions, samples and offsets are int64), and of what is stored as JSON."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]
Float64Array = NDArray[np.float64]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
IntegerArray = NDArray[np.integer]
Uint8Array = NDArray[np.uint8]
Json = dict[str, Any]  # an object of JSON
