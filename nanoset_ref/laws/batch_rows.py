"""The rows in a batch of any form: arrays, tensors, dicts, texts, pairs of inputs and labels.

Row numbers are returned unchanged. Tokens name their row (see `nanoset_ref.laws.corpora`): text or
an array of whole rows is converted to their numbers; anything else is described by its tokens, as
in "tokens 12..19".
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nanoset_ref.io.types import Array
from nanoset_ref.laws.corpora import ROW_LENGTH, tokens_of_rows

# fields that may hold the rows
FIELD_NAMES = "input_ids", "tokens", "text", "txt", "inputs", "ids", "row", "index"
CONTAINERS = (list, tuple)
NUMBERS = (int, np.integer)


def rows_in(batch: Any, format: str) -> tuple[Any, ...]:
    """The rows of a batch in order, as numbers, or as text if tokens are not whole rows."""
    rows = []
    arrays = list(_arrays(batch))
    shapes = [array.shape for array in arrays]
    alike = len(shapes) > 1 and len(shapes[0]) == 1 and len(set(shapes)) == 1
    if format == "rows" and alike:
        raise TypeError("it is unclear which of its arrays holds the rows")
    for array in arrays:
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"it has values of {array.dtype.name}, not integers")
        if format == "rows":
            rows += array.ravel().tolist()
        else:
            width = array.shape[-1] if array.size else 1
            for line in array.reshape(-1, width):
                rows += _rows_of_line(line)
    return tuple(rows)


def _arrays(batch: Any) -> Iterator[Array]:
    """Yield the arrays of a batch that identify its rows."""
    if isinstance(batch, Mapping):
        known = [name for name in FIELD_NAMES if name in batch]
        if not known and len(batch) > 1:
            raise TypeError(f"it is unclear which of {list(batch)} holds the rows")
        name = known[0] if known else next(iter(batch))
        yield from _arrays(batch[name])
    elif isinstance(batch, (str, bytes)):
        yield np.array(batch.split(), dtype=np.int64)
    elif (
        not isinstance(batch, CONTAINERS) or not batch or isinstance(batch[0], NUMBERS)
    ):
        yield np.asarray(batch)
    elif np.ndim(batch[0]) > 1:
        if len(batch) > 1 and not _are_labels(batch[1], batch[0]):
            raise TypeError("its second array is not the labels of its first one")
        yield from _arrays(batch[0])  # (inputs, labels)
    else:
        for item in batch:
            yield from _arrays(item)


def _are_labels(labels: Any, inputs: Any) -> bool:
    """Whether labels are inputs, or inputs shifted by one; a negative label is a masked one."""
    labels = np.asarray(labels)
    inputs = np.asarray(inputs)
    if labels.shape != inputs.shape:
        return False
    is_masked = labels < 0
    is_shifted = (labels[..., :-1] == inputs[..., 1:]) | is_masked[..., :-1]
    is_same = (labels == inputs) | is_masked
    return bool(is_same.all() or (is_shifted.size and is_shifted.all()))


def _rows_of_line(line: Array) -> list[Any]:
    """The numbers of whole rows in a line of tokens, or else the tokens as text."""
    tokens = line[: len(line) - len(line) % ROW_LENGTH]
    tokens = tokens[tokens >= ROW_LENGTH]
    rows = tokens[::ROW_LENGTH] // ROW_LENGTH - 1
    if np.array_equal(tokens, tokens_of_rows(rows).ravel()):
        return rows.tolist()
    return [f"tokens {line[0]}..{line[-1]}"]


def mask_fault(batch: Any, name: str) -> str:
    """Describe where a mask is false at a token or true at padding; "" if it is right."""
    tokens = np.stack(list(_arrays(batch))).ravel()
    mask = np.asarray(batch[name]).ravel().astype(bool)
    if len(mask) != len(tokens):
        return f"{name} has {len(mask)} values for {len(tokens)} tokens"
    wrong = np.flatnonzero(mask != (tokens >= ROW_LENGTH))
    if len(wrong) == 0:
        return ""
    index = wrong[0]
    return f"{name} is {mask[index]} at token {tokens[index]}"


def overwrite(batch: Any) -> None:
    """Overwrite all arrays of a batch, as its receiver may; read-only arrays stay."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, CONTAINERS):
        for item in batch:
            overwrite(item)
        return
    with contextlib.suppress(ValueError, TypeError, RuntimeError):
        np.asarray(batch)[...] = 1
