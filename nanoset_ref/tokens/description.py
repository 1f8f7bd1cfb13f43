"""What is in a file of tokenised documents: counts, document lengths, end-of-document ids, duplicates.

`describe` makes one pass over the ids. Documents are compared by a 128-bit hash of their ids, 16 bytes per document:
the one figure here that grows with the corpus. `verify` compares a file with what is recorded beside it.
"""

from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nanoset_ref.io.files import PathLike
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.opening import open_tokens

MAX_ID = 1 << 24  # a count per id is kept up to the largest
FEWEST = 8  # documents from which on an id that occurs once for each is no coincidence


def describe(file: Tokens, eos_token_id: int | None = None) -> dict[str, Any]:
    """Statistics of the documents in a file; `eos_token_id` defaults to what the file says.

    Returns:
        A dict of

        path: the file. dtype: of its ids. num_tokens, num_documents: counts.
        empty_documents: documents of no tokens.
        shortest, median, mean, longest: tokens per document.
        length_histogram: [(first length, last length, documents), ...], each range twice as long as the one before.
        distinct_ids: different ids that occur. largest_id: the largest one.
        eos_token_id: as the file says or as asked; None: not known.
        eos_share: EOS ids per token; None without an EOS id.
        documents_ending_in_eos: documents whose last id is EOS; None without an EOS id.
        duplicate_documents: documents that are equal to an earlier one, empty ones aside.
        duplicate_tokens: the tokens in those.

    Raises:
        TokenFileError: document boundaries that are not known, or values that are no token ids.
    """
    eos = file.facts.get("eos_token_id") if eos_token_id is None else eos_token_id
    offsets = file.known_documents()
    lengths = np.diff(offsets)
    counts, closed = np.zeros(0, dtype=np.int64), 0
    seen: set[bytes] = set()
    repeated = []
    for ids, sizes in file.blocks():
        lowest, largest = int(ids.min(initial=0)), int(ids.max(initial=0))
        if lowest < 0 or largest >= MAX_ID:
            raise TokenFileError(
                f"{file.path} holds values {lowest} to {largest}, which are no token ids: another dtype?"
            )
        counts = np.bincount(ids, minlength=len(counts)) + np.pad(
            counts, (0, max(largest + 1 - len(counts), 0))
        )
        ends = np.cumsum(sizes)
        closed += int(np.count_nonzero(ids[ends[sizes > 0] - 1] == eos))
        for document in np.split(ids, ends[:-1]):
            key = xxhash.xxh3_128_digest(document.data)
            if len(document) and key in seen:
                repeated.append(len(document))
            seen.add(key)
    return {
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
        "eos_share": None if eos is None else int(counts[eos : eos + 1].sum()) / file.num_tokens,
        "documents_ending_in_eos": None if eos is None else closed,
        "duplicate_documents": len(repeated),
        "duplicate_tokens": sum(repeated),
    }


FIGURES = """\
{path}: {num_tokens:,} tokens ({dtype}) in {num_documents:,} documents
  document length: shortest {shortest:,}, median {median:,.1f}, mean {mean:,.1f}, longest {longest:,}; \
{empty_documents:,} empty
  vocabulary: {distinct_ids:,} different ids, the largest is {largest_id:,}{eos}
  duplicates: {duplicate_documents:,} documents, {duplicate_tokens:,} tokens"""
EOS_FIGURES = """
  EOS (id {eos_token_id}): {eos_share:.4%} of the tokens, at the end of {documents_ending_in_eos:,} documents"""


def as_text(found: dict[str, Any]) -> str:
    """What `describe` found, for people to read."""
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
    return [(1 << b >> 1, (1 << b) - 1, counts[b]) for b in range(int(bins.min()), len(counts))]


def verify(
    file: PathLike | Tokens, vocab_size: int | None = None, eos_token_id: int | None = None
) -> str:
    """Read a whole file, by its path or already opened, and check all that is known about it.

    1. It opens: sizes, dtype, header, boundaries (see the readers of the formats).
    2. Its set has the checksums that it holds. A .bin/.idx pair that another tool wrote holds none.
    3. Every id lies in [0, vocab_size), as given or as the manifest says.
    4. Every document ends with the EOS id, if the manifest says so or `eos_token_id` is given, or if the ids show it:
       as many of them as there are documents, the last id among them, are this id.

    Returns:
        What was found, in one line.

    Raises:
        FileNotFoundError, TokenFileError: what does not hold.
    """
    if not isinstance(file, Tokens):
        file = open_tokens(file)
    checksum = ", checksum as in the manifest" if file.check_content() else ""
    limit = file.facts.get("vocab_size") if vocab_size is None else vocab_size
    ids_said = (
        f"ids below {limit:,}"
        if limit
        else "ids not negative (no vocabulary size known: give --vocab-size)"
    )
    of_last_id, first, ends = 0, 0, [file.tokens[:0]]
    for ids, sizes in file.blocks():
        wrong = np.flatnonzero((ids < 0) | (ids >= (limit or 2**63)))
        if len(wrong):
            found = f"token {first + wrong[0]} has the id {ids[wrong[0]]}"
            raise TokenFileError(f"{file.path}: {found}, outside the vocabulary of {limit} ids")
        of_last_id += int(np.count_nonzero(ids == file.tokens[-1:]))
        ends.append(ids[np.cumsum(sizes[sizes > 0]) - 1])
        first += len(ids)
    offsets, lasts = file.known_documents(), np.concatenate(ends)
    if "appended_eod" in file.facts:
        eos_token_id = file.facts["eos_token_id"] if file.facts["appended_eod"] else None
    elif eos_token_id is None and of_last_id == len(lasts) >= FEWEST:
        eos_token_id = int(lasts[-1])
    if eos_token_id is not None and np.any(lasts != eos_token_id):
        wrong = np.unique(offsets[offsets > 0])[lasts != eos_token_id]
        no_eos = f"the document that ends at {wrong[0]} has no EOS id {eos_token_id} there"
        raise TokenFileError(f"{file.path}: {no_eos}: a boundary or an id has changed")
    return f"{file.num_tokens:,} tokens in {len(offsets) - 1:,} documents, {ids_said}{checksum}"
