"""The dtype of a token file, from the size of the vocabulary."""

from typing import Any

import numpy as np


def token_dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The smaller dtype of Nanotron's readers that fits every id below `vocab_size`.

    This is uint16 up to 65,536 ids, else int32.
    """
    if not 1 <= vocab_size <= 2**31:
        raise ValueError(f"vocab_size must be in [1, 2**31], got {vocab_size}")
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")
