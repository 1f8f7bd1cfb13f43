"""Which documents and samples lie in a range of a file's tokens."""

from typing import Any

import numpy as np

from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.rows import Span
from nanoset_ref.tokens import Tokens
from nanoset_ref.tokens.document_blocks import without_padding


def concatenated_ranges(firsts: Int64Array, counts: Int64Array) -> Int64Array:
    """Ranges firsts[i] .. firsts[i] + counts[i] - 1, one after another, int64 [sum of counts].

    >>> concatenated_ranges(np.array([7, 3]), np.array([2, 3]))
    array([7, 8, 3, 4, 5])
    """
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(firsts - before, counts)


def document_spans(file: Tokens, start: int, stop: int) -> list[Span]:
    """The document spans in tokens [start, stop) of a file, without padding."""
    offsets = file.document_offsets

    def byte(token: int) -> int:
        return file.first_byte + token * file.dtype.itemsize

    if offsets is None:
        return [Span(None, start, stop, byte(start), byte(stop))]
    spans = []
    first_document = int(np.searchsorted(offsets, start, side="right")) - 1
    documents = np.arange(first_document, np.searchsorted(offsets, stop))
    for document in without_padding(file, documents).tolist():
        document_start = int(offsets[document])
        span_start = max(document_start, start)
        span_stop = min(int(offsets[document + 1]), stop)
        if span_start < span_stop:
            tokens = span_start - document_start, span_stop - document_start
            spans.append(Span(document, *tokens, byte(span_start), byte(span_stop)))
    return spans


def samples_holding(
    start: Any, stop: Any, num_samples: int, *, stride: int, row_length: int
) -> tuple[Any, Any]:
    """The range of a file's samples that hold one of its tokens [start, stop), start < stop.

    Sample j holds tokens j * stride .. j * stride + row_length - 1.

    Args:
        start, stop: integers, or int64 [n] for n answers at once.

    Returns:
        The first sample, and the one after the last.
    """
    first_sample = np.clip(-(-(start - row_length + 1) // stride), 0, num_samples)
    stop_sample = np.clip(-(-stop // stride), first_sample, num_samples)
    return first_sample, stop_sample
