"""Copy the tokens of many rows out of token files in a bucket, by one round of requests."""

from collections.abc import Sequence

import numpy as np

from nanoset_ref.io.bucket_ranges import BucketIds, fetch
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.types import Int32Array, Int64Array
from nanoset_ref.load.gather import refuse_wide_ids
from nanoset_ref.tokens import Tokens


class BucketGatherer:
    """Like `PageCacheGatherer`, but some files are in buckets.

    The rows of a call are read at the same time.

    Raises (when it is called):
        StorageError: an object cannot be read, or was replaced since it was opened.
        OSError: a local file was truncated since it was opened.
    """

    block_factor = 4

    def __init__(self, files: Sequence[Tokens]) -> None:
        refuse_wide_ids(files)
        self._files = files

    def __call__(
        self, sources: Int64Array, first_tokens: Int64Array, out: Int32Array
    ) -> None:
        length = out.shape[1]
        extents = []
        rows = []
        for source in np.unique(sources).tolist():
            ids = self._files[source].tokens
            check_not_truncated(ids)
            for row in np.flatnonzero(sources == source).tolist():
                start = int(first_tokens[row])
                if isinstance(ids, BucketIds):
                    size = ids.dtype.itemsize
                    extents.append((ids, start * size, (start + length) * size))
                    rows.append(row)
                else:
                    out[row] = ids[start : start + length]
        for (ids, _, _), row, data in zip(extents, rows, fetch(extents), strict=True):
            out[row] = np.frombuffer(data, ids.dtype)
