"""Statistics of a file of tokenized documents, and checks of it.

`describe` makes one pass over the ids. It compares documents by a 128-bit hash of their ids, which
takes 16 bytes per document, the only memory that grows with the corpus. `verify` compares a file
with the facts recorded beside it.
"""

import json
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.files import atomic_write
from nanoset_ref.io.paths import PathLike
from nanoset_ref.tokens.content import document_blocks
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.opening import open_tokens

MAX_ID = 1 << 24  # ids are counted one by one, up to the largest
MIN_DOCUMENTS = 8  # with this many, an id that occurs once per document is not a coincidence


def describe(file: Tokens, eos_token_id: int | None = None) -> dict[str, Any]:
    """Statistics of the documents in a file; `eos_token_id` defaults to the file's own.

    Returns:
        A dict of

        - path: the file
        - dtype: the ids' dtype
        - num_tokens, num_documents: counts
        - empty_documents: documents of no tokens
        - shortest, median, mean, longest: tokens per document
        - length_histogram: [(first length, last length, documents), ...]; every range is twice as
          long as the one before
        - distinct_ids, largest_id: the number of different ids, and the largest one
        - eos_token_id: the given id, else the file's; None if unknown
        - eos_share: EOS ids per token; None without an EOS id
        - documents_ending_in_eos: documents whose last id is EOS; None without an EOS id
        - duplicate_documents: documents equal to an earlier one, without empty ones
        - duplicate_tokens: the tokens in duplicate documents

    Raises:
        TokenFileError: the document boundaries are unknown, or a value is not a token id.
    """
    eos = file.facts.get("eos_token_id") if eos_token_id is None else eos_token_id
    lengths = np.diff(file.known_documents())
    if not len(lengths):
        raise TokenFileError(f"{file.path} holds no documents")
    counts = np.zeros(0, dtype=np.int64)
    closed = 0
    seen: set[bytes] = set()
    repeated = []
    for ids, sizes in document_blocks(file):
        counts = _add_counts(counts, ids, file)
        ends = np.cumsum(sizes)
        lasts = ids[ends[sizes > 0] - 1]  # the last id of each document with tokens
        closed += int(np.count_nonzero(lasts == eos))
        for document in np.split(ids, ends[:-1]):
            key = xxhash.xxh3_128_digest(document.data)
            if len(document) and key in seen:
                repeated.append(len(document))
            seen.add(key)
    found = {
        "path": str(file.path),
        "dtype": file.dtype.name,
        "num_tokens": file.num_tokens,
        "num_documents": len(lengths),
        "empty_documents": int(np.count_nonzero(lengths == 0)),
        "shortest": int(lengths.min()),
        "median": float(np.median(lengths)),
        "mean": float(lengths.mean()),
        "longest": int(lengths.max()),
        "length_histogram": _histogram(lengths),
        "distinct_ids": int(np.count_nonzero(counts)),
        "largest_id": len(counts) - 1,
        "eos_token_id": eos,
        "eos_share": None,
        "documents_ending_in_eos": None,
        "duplicate_documents": len(repeated),
        "duplicate_tokens": sum(repeated),
    }
    if eos is not None:
        found["eos_share"] = int(counts[eos : eos + 1].sum()) / file.num_tokens
        found["documents_ending_in_eos"] = closed
    return found


def _add_counts(counts: NDArray[np.int64], ids: NDArray[Any], file: Tokens) -> NDArray[np.int64]:
    """Add the count of each id, int64 [largest id + 1]."""
    lowest = int(ids.min(initial=0))
    largest = int(ids.max(initial=0))
    if lowest < 0 or largest >= MAX_ID:
        raise TokenFileError(
            f"{file.path} holds values {lowest} to {largest}, which are not token ids; "
            "does it have another dtype?"
        )
    added = np.bincount(ids, minlength=len(counts))
    added[: len(counts)] += counts
    return added


FIGURES = """\
{path}: {num_tokens:,} tokens ({dtype}) in {num_documents:,} documents
  document length: shortest {shortest:,}, median {median:,.1f}, mean {mean:,.1f}, \
longest {longest:,}; {empty_documents:,} empty
  vocabulary: {distinct_ids:,} different ids, the largest is {largest_id:,}{eos}
  duplicates: {duplicate_documents:,} documents, {duplicate_tokens:,} tokens"""
EOS_FIGURES = """
  EOS (id {eos_token_id}): {eos_share:.4%} of the tokens, \
at the end of {documents_ending_in_eos:,} documents"""


def as_text(found: dict[str, Any]) -> str:
    """Format the statistics of `describe`."""
    eos = "" if found["eos_share"] is None else EOS_FIGURES.format(**found)
    lines = [FIGURES.format(**found, eos=eos)]
    most = max(count for _, _, count in found["length_histogram"])
    for first, last, count in found["length_histogram"]:
        bar = "#" * (count * 40 // most) or ("." if count else "")
        lines.append(f"  {first:>9,} - {last:<9,} {count:>9,} {bar}")
    return "\n".join(lines)


def _histogram(lengths: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Ranges 0-0, 1-1, 2-3, 4-7, ... from the shortest to the longest length."""
    bins = np.frexp(lengths)[1]  # 0 -> 0, 1 -> 1, 2..3 -> 2, 4..7 -> 3
    counts = np.bincount(bins).tolist()
    ranges = []
    for number in range(int(bins.min()), len(counts)):
        first = 1 << number >> 1
        last = (1 << number) - 1
        ranges.append((first, last, counts[number]))
    return ranges


def verify(
    file: PathLike | Tokens, vocab_size: int | None = None, eos_token_id: int | None = None
) -> str:
    """Read a whole file and check every fact known about it.

    1. Open it, which checks sizes, dtype, header and boundaries (see the formats' readers).
    2. Compare its files with the recorded checksums, if there are any.
    3. Check that every id is in [0, vocab_size), if vocab_size is given or in the manifest.
    4. Check that every document ends with the EOS id, if the manifest says so, `eos_token_id` is
       given, or the ids suggest it: the last id of the file occurs once per document.

    Args:
        file: a path, or an opened file.
        vocab_size: default: the manifest's.
        eos_token_id: the id at the end of every document, for a file without a manifest.

    Returns:
        The result in one line.

    Raises:
        FileNotFoundError, TokenFileError: a check failed.
    """
    # 1. open the file
    if not isinstance(file, Tokens):
        file = open_tokens(file)
    # 2. compare the checksums
    checksum = ", checksum as in the manifest" if file.check_content() else ""
    # 3. check the range of the ids
    limit = file.facts.get("vocab_size") if vocab_size is None else vocab_size
    last_id_count = 0
    first = 0
    ends = [file.tokens[:0]]
    for ids, sizes in document_blocks(file):
        is_wrong = ids < 0
        if limit:
            is_wrong |= ids >= limit
        wrong = np.flatnonzero(is_wrong)
        if len(wrong):
            raise TokenFileError(
                f"{file.path}: token {first + wrong[0]} has the id {ids[wrong[0]]}, outside the "
                f"vocabulary of {limit} ids"
            )
        last_id_count += int(np.count_nonzero(ids == file.tokens[-1:]))
        ends.append(ids[np.cumsum(sizes[sizes > 0]) - 1])
        first += len(ids)
    # 4. check the ends of the documents
    offsets = file.known_documents()
    lasts = np.concatenate(ends)
    if "appended_eod" in file.facts:
        eos_token_id = file.facts["eos_token_id"] if file.facts["appended_eod"] else None
    elif eos_token_id is None and last_id_count == len(lasts) >= MIN_DOCUMENTS:
        eos_token_id = int(lasts[-1])
    if eos_token_id is not None and np.any(lasts != eos_token_id):
        wrong = np.unique(offsets[offsets > 0])[lasts != eos_token_id]
        raise TokenFileError(
            f"{file.path}: the document that ends at {wrong[0]} has no EOS id {eos_token_id} "
            "there: a boundary or an id has changed"
        )
    checked = "ids not negative (no vocabulary size known: give --vocab-size)"
    if limit:
        checked = f"ids below {limit:,}"
    return f"{file.num_tokens:,} tokens in {len(offsets) - 1:,} documents, {checked}{checksum}"


def keep_seal(file: Tokens) -> bool:
    """Write the checksum beside a file unless one is recorded; return whether it did."""
    if file.checksum is not None:
        return False
    with atomic_write(file.seal_path, "w") as written:
        json.dump(file.content_checksum(), written)
    return True
