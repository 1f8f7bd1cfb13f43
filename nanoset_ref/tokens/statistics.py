"""Statistics of a file of tokenized documents.

`describe` makes one pass over the ids. It compares documents by a 128-bit hash of their ids, which
takes 16 bytes per document, the only memory that grows with the corpus.
"""

import numpy as np
import xxhash

from nanoset_ref.io.types import Array, Int64Array, Json
from nanoset_ref.tokens.document_blocks import document_blocks, without_padding
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.manifest import TokenFileError

MAX_ID = 1 << 24  # larger values are no ids: the counts take an array up to the largest


def describe(file: Tokens, eos_token_id: int | None = None) -> Json:
    """Statistics of the documents in a file; `eos_token_id` defaults to the file's own.

    Returns:
        A dict of

        - path: the file
        - dtype: the ids' dtype
        - num_tokens, num_documents: counts
        - padding_tokens: padding in rows, which is in no document and in none of the figures below
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
    offsets = file.require_document_offsets()
    documents = without_padding(file, np.arange(len(offsets) - 1))
    lengths = np.diff(offsets)[documents]
    if not len(lengths):
        raise TokenFileError(f"{file.path} holds no documents, or only padding")
    counts = np.zeros(0, dtype=np.int64)
    ending_in_eos = 0
    hashes = set()
    duplicate_lengths = []
    for ids, sizes in document_blocks(file, documents):
        counts = _add_counts(counts, ids, file)
        ends = np.cumsum(sizes)
        last_ids = ids[ends[sizes > 0] - 1]  # of each document with tokens
        ending_in_eos += int(np.count_nonzero(last_ids == eos))
        for document in np.split(ids, ends[:-1]):
            key = xxhash.xxh3_128_digest(document.data)
            if len(document) and key in hashes:
                duplicate_lengths.append(len(document))
            hashes.add(key)
    num_ids = int(lengths.sum())
    eos_share = None
    if eos is not None:
        eos_share = int(counts[eos : eos + 1].sum()) / max(num_ids, 1)
    return {
        "path": str(file.path),
        "dtype": file.dtype.name,
        "num_tokens": file.num_tokens,
        "padding_tokens": file.num_tokens - num_ids,
        **_length_statistics(lengths),
        "distinct_ids": int(np.count_nonzero(counts)),
        "largest_id": len(counts) - 1,
        "eos_token_id": eos,
        "eos_share": eos_share,
        "documents_ending_in_eos": None if eos is None else ending_in_eos,
        "duplicate_documents": len(duplicate_lengths),
        "duplicate_tokens": sum(duplicate_lengths),
    }


def _length_statistics(lengths: Int64Array) -> Json:
    """The statistics of the lengths of documents."""
    return {
        "num_documents": len(lengths),
        "empty_documents": int(np.count_nonzero(lengths == 0)),
        "shortest": int(lengths.min()),
        "median": float(np.median(lengths)),
        "mean": float(lengths.mean()),
        "longest": int(lengths.max()),
        "length_histogram": _histogram(lengths),
    }


def _add_counts(counts: Int64Array, ids: Array, file: Tokens) -> Int64Array:
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


SUMMARY = """\
{path}: {num_tokens:,} tokens ({dtype}) in {num_documents:,} documents{padding}
  document length: shortest {shortest:,}, median {median:,.1f}, mean {mean:,.1f}, \
longest {longest:,}; {empty_documents:,} empty
  vocabulary: {distinct_ids:,} different ids, the largest is {largest_id:,}{eos}
  duplicates: {duplicate_documents:,} documents, {duplicate_tokens:,} tokens"""
EOS_SUMMARY = """
  EOS (id {eos_token_id}): {eos_share:.4%} of the tokens, \
at the end of {documents_ending_in_eos:,} documents"""


def as_text(statistics: Json) -> str:
    """Format the statistics of `describe`."""
    eos = "" if statistics["eos_share"] is None else EOS_SUMMARY.format(**statistics)
    padding = ""
    if statistics["padding_tokens"]:
        padding = " and {padding_tokens:,} tokens of padding".format(**statistics)
    lines = [SUMMARY.format(**statistics, eos=eos, padding=padding)]
    highest = max(count for _, _, count in statistics["length_histogram"])
    for first, last, count in statistics["length_histogram"]:
        bar = "#" * (count * 40 // highest) or ("." if count else "")
        lines.append(f"  {first:>9,} - {last:<9,} {count:>9,} {bar}")
    return "\n".join(lines)


def _histogram(lengths: Int64Array) -> list[tuple[int, int, int]]:
    """Ranges 0-0, 1-1, 2-3, 4-7, ... from the shortest to the longest length."""
    bins = np.frexp(lengths)[1]  # 0 -> 0, 1 -> 1, 2..3 -> 2, 4..7 -> 3
    counts = np.bincount(bins).tolist()
    ranges = []
    for number in range(int(bins.min()), len(counts)):
        first = 1 << number >> 1
        last = (1 << number) - 1
        ranges.append((first, last, counts[number]))
    return ranges


def tail_tokens(num_tokens: int, num_samples: int, row_length: int, stride: int) -> int:
    """The tokens after the last sample of a file; negative if padding fills that sample."""
    if num_samples == 0:
        return num_tokens
    return num_tokens - (num_samples - 1) * stride - row_length
