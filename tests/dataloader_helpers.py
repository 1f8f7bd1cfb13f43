"""What the tests of data loaders share: the rows that a batch should have."""

import numpy as np


def expected_rows(nanoset, batch):
    return nanoset.read(np.arange(batch * 8, batch * 8 + 8))
