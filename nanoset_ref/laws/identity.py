"""Which rows a batch holds, whatever its form: arrays, tensors, dicts, texts, pairs of inputs and labels.

Row numbers are taken as they are. Tokens name their row (see `nanoset_ref.laws.corpora`): a piece of text or an array
that is made of whole rows stands for their numbers; anything else is named by its tokens, as in "tokens 12..19".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.laws.corpora import S

NAMES = ("input_ids", "tokens", "text", "txt", "inputs", "ids", "row", "index")  # of fields
CONTAINERS = (list, tuple)


def rows_in(batch: Any, form: str) -> tuple[Any, ...]:
    """The rows of a batch in its order, as numbers, or as text where tokens are not whole rows."""
    arrays = list(_arrays(batch))
    if form == "rows":
        return tuple(number for array in arrays for number in array.ravel().tolist())
    return tuple(row for array in arrays for line in _lines(array) for row in _rows_of_line(line))


def _arrays(batch: Any) -> Iterator[NDArray[Any]]:
    """The arrays in a batch that say which rows it holds."""
    if isinstance(batch, Mapping):
        known = [name for name in NAMES if name in batch]
        name = known[0] if known else next(iter(batch))
        yield from _arrays(batch[name])
    elif isinstance(batch, (str, bytes)):
        yield np.array(batch.split(), dtype=np.int64)
    elif isinstance(batch, CONTAINERS) and batch and np.ndim(batch[0]) > 1:
        yield from _arrays(batch[0])  # (inputs, labels)
    elif (isinstance(batch, CONTAINERS) and batch and not np.isscalar(batch[0])) or (
        isinstance(batch, CONTAINERS) and batch and isinstance(batch[0], (str, bytes))
    ):
        for item in batch:
            yield from _arrays(item)
    else:
        yield np.asarray(batch)


def _lines(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(-1, array.shape[-1] if array.size else 1)


def _rows_of_line(line: NDArray[Any]) -> list[Any]:
    whole = line[: len(line) - len(line) % S]
    tokens = whole[whole >= S]
    if len(tokens) % S == 0:
        blocks = tokens.reshape(-1, S)
        places = np.arange(S)
        if np.array_equal(blocks % S, np.broadcast_to(places, blocks.shape)):
            rows = blocks // S - 1
            if (rows == rows[:, :1]).all():
                return rows[:, 0].tolist()
    return [f"tokens {line[0]}..{line[-1]}"]


def wrong_mask(batch: Any, name: str) -> str:
    """Where a mask is false at a token, or true at padding; empty if it is right."""
    tokens = np.stack([np.asarray(array) for array in _arrays(batch)]).reshape(-1)
    mask = np.asarray(batch[name]).reshape(-1).astype(bool)
    if len(mask) != len(tokens):
        return f"{name} has {len(mask)} places for {len(tokens)} tokens"
    wrong = np.flatnonzero(mask != (tokens >= S))
    if len(wrong) == 0:
        return ""
    place = wrong[0]
    return f"{name} is {mask[place]} at token {tokens[place]}"


def write_into(batch: Any) -> None:
    """Overwrite all arrays of a batch, as its receiver may; what refuses to be written into stays."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, CONTAINERS):
        for item in batch:
            write_into(item)
        return
    with contextlib.suppress(ValueError, TypeError, RuntimeError):
        np.asarray(batch)[...] = 1
