"""Three file formats of tokenised documents, one view: convert, merge and split between all of them.

    <name>.npy                raw ids with a manifest            `tokens`      Nanotron
    <name>.bin, <name>.idx    ids and their index                `megatron`    Megatron-LM
    <name>.ds, .ds.index      ids and the documents' ends        `datatrove`   datatrove, today's Nanotron

All three hold the ids back to back, so a copy is one pass in pieces of a few million ids, with memory for one piece.
What was written is read again, and its ids and boundaries are hashed against the source's: `convert` proves itself, or
removes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from nanoset_ref.datatrove import DatatroveFile
from nanoset_ref.files import atomic_write, checksum
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset, bin_path, idx_path
from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder
from nanoset_ref.tokens import TokenFile, TokenFileError, TokenFileWriter, documents_path, manifest_path

PIECE = 1 << 22  # ids that are handled at once
Ragged = tuple[NDArray[Any], NDArray[np.int64]]  # ids back to back, tokens per document


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenised documents in any of the formats.

    Attributes:
        path: the file (.npy, .bin or .ds).
        tokens: integers [num_tokens], mapped.
        offsets: int64 [num_documents + 1]: document d is tokens[offsets[d]:offsets[d + 1]].
        description: what is known of the ids: the fields of a token file's manifest that are kept on conversion.
        checksum: of the file's bytes, as its manifest says; None: nothing says it.
    """

    path: Path
    tokens: NDArray[Any]
    offsets: NDArray[np.int64]
    description: dict[str, Any]
    checksum: str | None = None

    @property
    def num_documents(self) -> int:
        return len(self.offsets) - 1

    def pieces(self, chosen: NDArray[np.int64] | None = None) -> Iterator[Ragged]:
        """The documents (or the chosen ones, ascending), in order, in pieces of about PIECE ids."""
        documents = np.arange(self.num_documents) if chosen is None else chosen
        lengths = np.diff(self.offsets)[documents]
        ends = np.cumsum(lengths)
        first = 0
        while first < len(documents):
            stop = max(first + 1, int(np.searchsorted(ends, (ends[first - 1] if first else 0) + PIECE, side="right")))
            part = documents[first:stop]
            if part[-1] - part[0] == len(part) - 1:
                ids = self.tokens[self.offsets[part[0]] : self.offsets[part[-1] + 1]]
            else:
                ids = np.concatenate([self.tokens[self.offsets[d] : self.offsets[d + 1]] for d in part])
            yield ids, lengths[first:stop]
            first = stop

    def check_content(self) -> None:
        """Hold the file's bytes against the checksum, if one is known.

        Raises:
            TokenFileError: they differ.
        """
        if self.checksum is not None and checksum(self.path) != self.checksum:
            raise TokenFileError(f"{self.path}: the content has changed since its manifest was written; copy it again")

    def content_hash(self) -> str:
        """xxh3_128 of the ids as int64 and of the boundaries: equal for equal documents, whatever the format and
        dtype.
        """
        digest = xxhash.xxh3_128()
        for start in range(0, len(self.tokens), PIECE):
            digest.update(self.tokens[start : start + PIECE].astype("<i8").data)
        digest.update(np.ascontiguousarray(self.offsets, dtype="<i8").data)
        return digest.hexdigest()


def open_documents(
    path: str | os.PathLike[str], token_dtype: DTypeLike | None = None, eos_token_id: int | None = None
) -> Documents:
    """Open a .npy, .bin/.idx (by either name or their common prefix) or .ds file.

    Args:
        path: the file.
        token_dtype: of a .npy or .ds file that does not say it itself.
        eos_token_id: documents end with this id, in a .npy file without a manifest.

    Raises:
        FileNotFoundError, TokenFileError, IndexedDatasetError: as the format's reader; also for boundaries that are not
            known or decrease.
    """
    path = Path(path)
    if path.suffix == ".ds":
        documents = _open_datatrove(path, token_dtype)
    elif path.suffix in (".bin", ".idx") or MMapIndexedDataset.exists(path):
        documents = _open_megatron(path)
    else:
        documents = _open_token_file(path, token_dtype, eos_token_id)
    if np.any(np.diff(documents.offsets) < 0):
        raise TokenFileError(f"{path}: the document boundaries must not decrease; write the file again")
    return documents


def _open_datatrove(path: Path, token_dtype: DTypeLike | None) -> Documents:
    file = DatatroveFile(path, token_size=None if token_dtype is None else np.dtype(token_dtype).itemsize)
    known = {} if file.tokenizer is None else {"tokenizer": file.tokenizer}
    return Documents(path, file.tokens, file.document_offsets, known)


def _open_megatron(path: Path) -> Documents:
    corpus = MMapIndexedDataset(path.with_suffix("") if path.suffix in (".bin", ".idx") else path)
    if corpus.tokens is None or not np.issubdtype(corpus.dtype, np.integer):
        raise TokenFileError(f"{path} holds {corpus.dtype.name} values, not token ids")
    ends = np.append(corpus.sequence_pointers // corpus.dtype.itemsize, corpus.num_tokens)
    return Documents(bin_path(corpus.path_prefix), corpus.tokens, ends[corpus.document_indices], {})


def _open_token_file(path: Path, token_dtype: DTypeLike | None, eos_token_id: int | None) -> Documents:
    if path.name.endswith(".documents.npy"):
        tokens = path.name.removesuffix(".documents.npy") + ".npy"
        raise TokenFileError(f"{path} holds the document boundaries of {tokens}; name that file instead")
    file = TokenFile(path, token_dtype)
    if file.manifest is None:
        if eos_token_id is None:
            raise TokenFileError(
                f"{path} has no manifest beside it, so its document boundaries are not known; "
                "give the end-of-document id, and it is cut behind each of them"
            )
        ends = np.flatnonzero(file.tokens == eos_token_id) + 1
        closed = len(ends) > 0 and int(ends[-1]) == file.num_tokens
        offsets = np.concatenate([[0], ends, [] if closed else [file.num_tokens]]).astype(np.int64)
        return Documents(path, file.tokens, offsets, {"eos_token_id": eos_token_id, "appended_eod": closed})
    offsets = cast(NDArray[np.int64], file.document_offsets)  # there is a manifest
    kept = ("tokenizer", "vocab_size", "eos_token_id", "appended_eod", "added_special_tokens", "windows", "row_length")
    description = {name: getattr(file.manifest, name) for name in kept}
    return Documents(path, file.tokens, offsets, description, file.manifest.checksum)


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

    _WRITERS[target.suffix](target, noted(), np.dtype(dtype or sources[0].tokens.dtype), description)
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
    if target.suffix not in _WRITERS:
        raise ValueError(f"the target's suffix must be one of {sorted(_WRITERS)}, got {target.name!r}")
    if target.exists():
        if any(target.samefile(source.path) for source in sources):
            raise ValueError(f"{target} is read and cannot be written at the same time; give the target another name")
        if not overwrite:
            raise FileExistsError(f"{target} exists; remove it, or ask for overwriting")
    return target


def remove(target: Path) -> None:
    """Remove what `convert` wrote: the ids first, so that no reader takes the rest for a file."""
    beside = {
        ".npy": [manifest_path(target), documents_path(target)],
        ".bin": [target.with_suffix(".idx")],
        ".ds": [Path(f"{target}.index"), Path(f"{target}.metadata")],
    }
    for path in [target, *beside[target.suffix]]:
        path.unlink(missing_ok=True)


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


def _write_token_file(path: Path, pieces: Iterable[Ragged], dtype: np.dtype[Any], description: dict[str, Any]) -> None:
    with TokenFileWriter(path, dtype=dtype, overwrite=True, **description) as writer:
        for ids, lengths in pieces:
            writer.write(ids, lengths)


def _write_megatron(path: Path, pieces: Iterable[Ragged], dtype: np.dtype[Any], description: dict[str, Any]) -> None:
    with MMapIndexedDatasetBuilder(path, dtype, overwrite=True) as builder:
        for ids, lengths in pieces:
            builder.add_documents(ids, lengths)
        builder.finalize(idx_path(path.with_suffix("")))


def _write_datatrove(path: Path, pieces: Iterable[Ragged], dtype: np.dtype[Any], description: dict[str, Any]) -> None:
    width = np.dtype("<u2" if dtype.itemsize == 2 else "<u4")
    total = 0
    with contextlib.ExitStack() as files:  # closes in reverse: the ids are renamed last
        tokens = files.enter_context(atomic_write(path))
        ends = files.enter_context(atomic_write(f"{path}.index"))
        metadata = files.enter_context(atomic_write(f"{path}.metadata", "w"))
        for ids, lengths in pieces:
            if ids.size and (int(ids.min()) < 0 or int(ids.max()) > np.iinfo(width).max):
                raise TokenFileError(
                    f"{path}: ids {ids.min()} to {ids.max()} do not fit {width.name}; choose a wider dtype"
                )
            tokens.write(np.ascontiguousarray(ids, dtype=width).data)
            ends.write((np.cumsum(lengths) + total).astype("<u8").tobytes())
            total += int(ids.size)
        if total == 0:
            raise TokenFileError(f"nothing was written to {path}: a token file holds at least one id")
        metadata.write(f"{description.get('tokenizer') or 'unknown'}|{width.itemsize}\n{total}\n{_short(total)}")


def _short(count: float) -> str:
    """2338 -> "2.34 kT", as datatrove writes it."""
    units = iter(["", "k", "M", "G", "T"])
    unit = next(units)
    while count >= 1000:
        count, unit = count / 1000, next(units)
    return f"{count:.2f} {unit}T"


_WRITERS = {".npy": _write_token_file, ".bin": _write_megatron, ".ds": _write_datatrove}
