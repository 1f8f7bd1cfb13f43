"""Copy documents from any format to any other, all or chosen ones, and prove that the copy holds them."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.io.files import PathLike, written_together
from nanoset_ref.io.paths import BucketPath, located
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder
from nanoset_ref.tokens.ds import DatatroveWriter
from nanoset_ref.tokens.interface import Block, Tokens, content_hash
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.npy_writer import TokenFileWriter
from nanoset_ref.tokens.opening import open_tokens

Chosen = Sequence[NDArray[np.int64]] | None  # for each source, the numbers of documents; None: all


def convert(
    sources: Sequence[Tokens], target: PathLike, *, chosen: Chosen = None, **options: Any
) -> Tokens:
    """Write documents, from one source or several one after another, into a .npy, .bin or .ds file, and prove it.

    Args:
        sources: what is copied, in this order.
        target: the file to write; its suffix says the format (.bin writes .idx too).
        chosen: for each source, the numbers of the documents to copy, int64, ascending; default: all.
        dtype: of the ids in the target; default: of the first source.
        overwrite: whether an existing target may be replaced.
        facts: what is known about the ids (see `Tokens.facts`) where the sources do not say it.

    Returns:
        The target, opened.

    Raises:
        ValueError: no source, an unknown suffix, a target that is a source, ids that do not fit the dtype, sources of
            different vocabularies or windows, nothing to write, a source whose content has changed.
        FileExistsError: the target exists and `overwrite` is False.
    """
    return convert_parts(sources, {target: chosen}, **options)[0]


def convert_parts(
    sources: Sequence[Tokens],
    parts: Mapping[PathLike, Chosen],
    *,
    dtype: DTypeLike | None = None,
    overwrite: bool = False,
    facts: dict[str, Any] | None = None,
) -> list[Tokens]:
    """As `convert`, into several targets, {target: chosen}: they appear, or are replaced, as one set."""
    if not sources:
        raise ValueError("there is nothing to convert: give at least one source")
    width = np.dtype(dtype or sources[0].dtype)
    if width.kind not in "iu":
        raise ValueError(f"ids are integers, so dtype must be one of integers, got {width.name}")
    for source in sources:
        source.check_content()
    description = (facts or {}) | agreed_facts(sources)
    targets = [located(target) for target in parts]
    for target, chosen in zip(targets, parts.values(), strict=True):
        _refuse(target, chosen, sources, description.get("row_length"))
    with written_together(), contextlib.ExitStack() as stack:
        options = description | {"dtype": width, "overwrite": overwrite}
        writers = [
            stack.enter_context(WRITERS[target.suffix](target, **options)) for target in targets
        ]
        written = [
            content_hash(_copied(sources, *it)) for it in zip(parts.values(), writers, strict=True)
        ]
    try:
        copies = [open_tokens(target) for target in targets]
        if [copy.content_hash() for copy in copies] != written:
            raise TokenFileError(
                f"{targets} do not hold what was written: the disk or the memory is faulty"
            )
    except Exception:
        for target in targets:  # without its ids, what is left of a set is unfinished
            target.unlink(missing_ok=True)
            if target.suffix == ".bin":
                target.with_suffix(".idx").unlink(missing_ok=True)
        raise
    return copies


def _refuse(
    target: Path, chosen: Chosen, sources: Sequence[Tokens], row_length: int | None
) -> None:
    if isinstance(target, BucketPath):
        raise ValueError(
            f"{target}: only preprocess writes into a bucket; write a file here and upload it"
        )
    if target.suffix not in WRITERS:
        raise ValueError(
            f"the target's suffix must be one of {sorted(WRITERS)}, got {target.name!r}"
        )
    if target.exists() and any(target.samefile(source.path) for source in sources):
        raise ValueError(
            f"{target} is read and cannot be written at the same time; give the target another name"
        )
    if (
        chosen is not None
        and row_length
        and any(np.any(it.known_documents() % row_length) for it in sources)
    ):
        raise ValueError(
            f"a choice of documents would tear rows of {row_length} tokens apart: choose among the texts"
        )


def _copied(sources: Sequence[Tokens], chosen: Chosen, sink: Any) -> Iterator[Block]:
    """Write the documents, and hand on what was written."""
    for source, documents in zip(sources, chosen or itertools.repeat(None), strict=False):
        for ids, lengths in source.blocks(documents):
            sink.write(ids, lengths)
            yield ids, lengths


def agreed_facts(sources: Sequence[Tokens]) -> dict[str, Any]:
    """What the sources say about their ids, checksums aside; None and silence agree with everything.

    Raises:
        ValueError: two sources contradict each other.
    """
    agreed: dict[str, Any] = {}
    for source in sources:
        for name, value in source.facts.items():
            if name == "checksum" or value is None:
                continue
            if agreed.setdefault(name, value) != value:
                both = f"{source.path} has {name}={value!r}, the others {agreed[name]!r}"
                raise ValueError(f"one file cannot hold both: {both}")
    return agreed


def split(
    source: Tokens, held_out: float | int, *, seed: int = 1234
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    documents = len(source.known_documents()) - 1
    if isinstance(held_out, float) and not 0 < held_out < 1:
        raise ValueError(
            f"a share held out lies between 0 and 1, got {held_out}; or give a whole number"
        )
    count = round(held_out * documents) if isinstance(held_out, float) else held_out
    if not 0 < count < documents:
        raise ValueError(
            f"of {documents} documents, 1 to {documents - 1} can be held out; {held_out} asks for {count}"
        )
    chosen = np.zeros(documents, dtype=np.bool_)
    chosen[np.random.default_rng(seed).choice(documents, count, replace=False)] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


# ---- one writer per format: a context whose `write` takes documents


def _megatron(
    path: Path, *, dtype: np.dtype[Any], overwrite: bool, **facts: Any
) -> MMapIndexedDatasetBuilder:
    return MMapIndexedDatasetBuilder(path, dtype, overwrite=overwrite)


WRITERS: dict[str, Any] = {".npy": TokenFileWriter, ".bin": _megatron, ".ds": DatatroveWriter}
