"""Copy documents from any format to any other, all or chosen ones, and prove that the copy holds them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.formats.documents import PIECE, Documents, Ragged, open_documents
from nanoset_ref.formats.writers import WRITERS, remove
from nanoset_ref.tokens import TokenFileError


def convert(
    sources: Sequence[Documents],
    target: str | os.PathLike[str],
    *,
    dtype: DTypeLike | None = None,
    chosen: Sequence[NDArray[np.int64]] | None = None,
    overwrite: bool = False,
) -> Documents:
    """Write documents, from one source or several one after another, into a .npy, .bin or .ds file, and prove it.

    Args:
        sources: what is copied, in this order.
        target: the file to write; its suffix says the format (.bin writes .idx too).
        dtype: of the ids in the target; default: of the first source.
        chosen: for each source, the numbers of the documents to copy, ascending; default: all.
        overwrite: whether an existing target may be replaced.

    Returns:
        The target, opened.

    Raises:
        ValueError: no source, an unknown suffix, a target that is a source, ids that do not fit the dtype, sources of
            different vocabularies or windows, nothing to write, a source whose content has changed.
        FileExistsError: the target exists and `overwrite` is False.
    """
    if not sources:
        raise ValueError("there is nothing to convert: give at least one source")
    target = check_target(target, sources, overwrite=overwrite)
    if dtype is not None and np.dtype(dtype).kind not in "iu":
        raise ValueError(f"ids are integers, so dtype must be one of integers, got {np.dtype(dtype).name}")
    if dtype is not None and target.suffix == ".ds" and np.dtype(dtype).itemsize not in (2, 4):
        raise ValueError(f"an id of a .ds file takes 2 or 4 bytes: uint16 or uint32, not {np.dtype(dtype).name}")
    for source in sources:
        source.check_content()
    description = _agreed(sources)
    if (
        chosen is not None
        and (row := description.get("row_length"))
        and any(np.any(np.diff(s.offsets) % row) for s in sources)
    ):
        raise ValueError(
            f"the source was cut into rows of {row} tokens, which a choice of documents would tear apart: "
            "choose among its texts instead"
        )
    digest, edges = xxhash.xxh3_128(), [np.zeros(1, dtype=np.int64)]

    def noted() -> Iterator[Ragged]:
        for number, source in enumerate(sources):
            for ids, lengths in source.pieces(None if chosen is None else chosen[number]):
                for start in range(0, len(ids), PIECE):
                    digest.update(ids[start : start + PIECE].astype("<i8").data)
                edges.append(np.cumsum(lengths) + edges[-1][-1])
                yield ids, lengths

    WRITERS[target.suffix](target, noted(), np.dtype(dtype or sources[0].tokens.dtype), description)
    digest.update(np.concatenate(edges).astype("<i8").data)
    try:
        written = open_documents(target)
        if written.content_hash() != digest.hexdigest():
            raise TokenFileError(f"{target} does not hold what was written into it: the disk or the memory is faulty")
    except BaseException:
        remove(target)
        raise
    return written


def check_target(target: str | os.PathLike[str], sources: Sequence[Documents], *, overwrite: bool = False) -> Path:
    """The target as a Path, if `convert` may write it: a known suffix, not there yet or to be replaced, and none of the
    sources, which are still read while it is written.

    Raises:
        ValueError, FileExistsError: as `convert`.
    """
    target = Path(target)
    if target.suffix not in WRITERS:
        raise ValueError(f"the target's suffix must be one of {sorted(WRITERS)}, got {target.name!r}")
    if target.exists():
        if any(target.samefile(source.path) for source in sources):
            raise ValueError(f"{target} is read and cannot be written at the same time; give the target another name")
        if not overwrite:
            raise FileExistsError(f"{target} exists; remove it, or ask for overwriting")
    return target


def _agreed(sources: Sequence[Documents]) -> dict[str, Any]:
    """What the sources say of their ids; None and silence agree with everything."""
    description: dict[str, Any] = {}
    for source in sources:
        for name, value in source.description.items():
            if value is None:
                continue
            if description.setdefault(name, value) != value:
                raise ValueError(
                    f"{source.path} has {name}={value!r}, the sources before it "
                    f"{description[name]!r}: they do not belong into one file"
                )
    return description


def split(source: Documents, held_out: float | int, *, seed: int = 1234) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose documents to hold out.

    Args:
        source: the documents.
        held_out: a share of the documents in (0, 1), or their number.
        seed: of the choice (numpy's PCG64).

    Returns:
        (rest, held out): numbers of documents, ascending, int64; `convert(..., chosen=[...])` writes them.

    Raises:
        ValueError: one of the two would be empty.
    """
    if isinstance(held_out, float) and not 0 < held_out < 1:
        raise ValueError(f"a share held out lies between 0 and 1, got {held_out}; give a whole number of documents")
    count = round(held_out * source.num_documents) if isinstance(held_out, float) else held_out
    if not 0 < count < source.num_documents:
        raise ValueError(
            f"of {source.num_documents} documents, 1 to {source.num_documents - 1} can be held out; "
            f"{held_out} asks for {count}"
        )
    chosen = np.zeros(source.num_documents, dtype=np.bool_)
    chosen[np.random.default_rng(seed).choice(source.num_documents, count, replace=False)] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
