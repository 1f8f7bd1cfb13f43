"""Best-fit packing: rows of whole documents, each in the row that it fills best, and padding.

The rows of a Nanoset cut most documents. Here, only documents longer than a row are cut:

    1. a document of more than R = S + 1 tokens is cut into full rows and a rest; every other
       document is one piece
    2. pieces are sorted, longest first; equal ones keep the order of the file
    3. each piece goes to the row with the fewest free tokens that still has enough (of several, the
       last one to reach that number); if there is none, it begins a row
    4. free tokens at the end of a row become padding

    documents of 14, 7, 5, 2, 3 tokens, R = 8:   aaaaaaaa   bbbbbbb.   aaaaaadd   ccccceee

A row holds R tokens, not S, because it gives S inputs and S labels: a document of R tokens keeps
all of its predictions. Step 3 searches a binary tree over the numbers of free tokens, 1 to S, in
n log S. Documents share a row only because their lengths fit, so a model must know where they
begin.

The index takes 12 bytes per piece and 8 per row. Building it takes about 60 bytes per piece; one
core packs 6 million documents per second (measured with 2 million of 666 tokens on average, S =
2,048; 3 million per second where S is above 65,535). It is cached on disk and mapped (see
`index_cache`), so ranks and workers share it. Rows are read through mappings of the files, as
Megatron's are.

Source: Ding and others, Fewer Truncations Improve Language Modeling, 2024,
https://arxiv.org/abs/2404.10830
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.index_cache import Arrays, load_or_build
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.njit import njit
from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.types import Float64Array, Int64Array, Json
from nanoset_ref.load.document_spans import concatenated_ranges
from nanoset_ref.load.joined_rows import JoinedRows
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders import Order
from nanoset_ref.tokens import TokenFileError, Tokens
from nanoset_ref.tokens.companions import DAMAGED_BOUNDARIES

ARRAY_NAMES = ("row_offsets", "piece_starts", "piece_lengths")


def pack_documents(document_offsets: Int64Array, row_length: int) -> Arrays:
    """Pack documents into rows of at most `row_length` tokens, by the steps above.

    Args:
        document_offsets: int64 [documents + 1], ascending, in tokens (`Tokens.document_offsets`).
        row_length: R, in tokens.

    Returns:
        Three arrays. Row j consists of the pieces row_offsets[j] : row_offsets[j + 1].

            row_offsets     int64 [rows + 1]
            piece_starts    int64 [pieces], the first token of each, counted in the file
            piece_lengths   int32 [pieces], in tokens

    Raises:
        ValueError: a row_length below 1; offsets that do not ascend.
    """
    row_length = whole_number(row_length, "row_length", 1)
    offsets = np.asarray(document_offsets, dtype=np.int64)
    lengths = np.diff(offsets)
    if (lengths < 0).any():
        raise ValueError(DAMAGED_BOUNDARIES)
    # 1. e.g. lengths 5 0 2, R = 3
    counts = -(-lengths // row_length)  # pieces of each document: 2 0 1
    # pieces of the same document before each: 0 1 0
    earlier = concatenated_ranges(np.zeros_like(counts), counts)
    piece_starts = np.repeat(offsets[:-1], counts) + earlier * row_length  # 0 3 5
    document_ends = np.repeat(offsets[1:], counts)  # 5 5 7
    piece_lengths = np.minimum(document_ends - piece_starts, row_length)  # 3 2 2
    # 2.
    narrow = np.min_scalar_type(row_length)  # NumPy sorts 16 bits fastest
    order = np.argsort((row_length - piece_lengths).astype(narrow), kind="stable")
    # 3.
    num_leaves = 1 << row_length.bit_length()
    rows = _place_pieces(piece_lengths[order], row_length, num_leaves)
    order = order[np.argsort(rows, kind="stable")]
    row_offsets = np.append(0, np.cumsum(np.bincount(rows)))
    return row_offsets, piece_starts[order], piece_lengths[order].astype(np.int32)


@njit
def _place_pieces(piece_lengths, row_length, num_leaves):
    """Choose the row of each piece, int64 [pieces], by step 3.

    A binary tree counts rows by their free tokens. Leaf number `num_leaves + f` counts the rows
    with f free tokens, and a node counts the rows of all leaves below it.

    Args:
        piece_lengths: int64 [pieces], in tokens, in 1 .. row_length, not increasing.
        row_length: int64, in tokens.
        num_leaves: int64, a power of two above row_length.
    """
    tree = np.zeros(2 * num_leaves, dtype=np.int64)
    # the rows with f free tokens are a stack: newest[f] on top, and below[row] under each row
    newest = np.zeros(num_leaves, dtype=np.int64)
    below = np.zeros(len(piece_lengths), dtype=np.int64)
    rows = np.empty(len(piece_lengths), dtype=np.int64)
    num_rows = 0
    for piece in range(len(piece_lengths)):
        leaf = _first_leaf_with_rows(tree, num_leaves + piece_lengths[piece])
        if leaf:
            free = leaf - num_leaves
            row = newest[free]
            newest[free] = below[row]
            _add_along_path(tree, leaf, -1)
        else:
            free = row_length
            row = num_rows
            num_rows += 1
        rows[piece] = row
        free -= piece_lengths[piece]
        if free:
            below[row] = newest[free]
            newest[free] = row
            _add_along_path(tree, num_leaves + free, 1)
    return rows


@njit
def _first_leaf_with_rows(tree, leaf):
    """Find the first leaf at or after `leaf` that counts a row; 0 if there is none.

    Args:
        tree: int64 [2 * num_leaves]; node 1 is the root, node n has the children 2n and 2n + 1.
        leaf: int64, in num_leaves .. 2 * num_leaves - 1.
    """
    node = leaf
    # up and to the right
    while node and not tree[node]:
        # a right child or the root: its parent has no leaf further right
        while node & 1:
            node >>= 1
        if node:
            node += 1
    if node == 0:
        return 0
    # down, to the left if possible
    while 2 * node < len(tree):
        node *= 2
        if not tree[node]:
            node += 1
    return node


@njit
def _add_along_path(tree, leaf, change):
    """Add `change` (int64) to a leaf and to every node between it and the root.

    Args:
        tree: see `_first_leaf_with_rows`; written to.
        leaf: int64.
    """
    node = leaf
    while node:
        tree[node] += change
        node >>= 1


class PackedNanoset(JoinedRows, Nanoset):
    """Rows of whole documents, packed by best fit file by file, in the order of a run.

    Args:
        dataset_paths, dataset_weights, sequence_length, random_seed, order: see Nanoset. A sample
            is a packed row, so the packing determines the samples of an epoch. Document boundaries
            must be known: from a manifest, a .idx, a .ds index, or
            open_tokens(path, eos_token_id=...). order="identity" reads long documents first.
        train_split_num_samples: N = len(self), in samples; None: as in `Nanoset`.
        pad_id: the id that fills the end of a row, such as the EOS id. It must be in the model's
            vocabulary; no loss counts it. MegatronCollator recognizes padding by this id alone,
            so with it no document may contain the id.
        path_to_cache: folder of the index; None: every process builds it in memory.

    Every token of the files is in exactly one row, and every document in as few rows as its length
    allows. `starts` marks the first token of each row and document and every padding token, so
    position ids and masks never cross documents, and `label_mask` is False at padding, whatever its
    id. (`build_nanoset_dataloader` always asks for that mask; another collator must recognize
    padding by itself.) `usage` counts padding as negative tail_tokens.

    Raises:
        TokenFileError: a file's document boundaries are not known, or it is cut into rows already.
        ValueError: pad_id is not a token id; see also Nanoset.
    """

    padded = True

    def __init__(
        self,
        dataset_paths: PathLike | Tokens | Sequence[PathLike | Tokens],
        dataset_weights: Sequence[float] | Float64Array | None,
        sequence_length: int,
        train_split_num_samples: int | None = None,
        random_seed: int = 1234,
        *,
        pad_id: int,
        order: str | Order = "nanotron",
        path_to_cache: PathLike | None = None,
    ) -> None:
        self.pad_id = whole_number(
            pad_id, "pad_id (for example the EOS id)", 0, bits=31
        )
        self._path_to_cache = path_to_cache
        super().__init__(
            dataset_paths,
            dataset_weights,
            sequence_length,
            train_split_num_samples,
            random_seed,
            order=order,
        )

    def _lengths_and_strides(self, disjoint: bool) -> tuple[list[int], list[int]]:
        """See `Nanoset._lengths_and_strides`: packed rows, which share no token."""
        for file in self.files:
            if file.row_length is not None:
                raise TokenFileError(
                    f"{file.path} is cut into rows of {file.row_length} tokens already, and "
                    "packing would tear them: read it with "
                    f"Nanoset(sequence_length={file.row_length - 1})"
                )
            file.require_document_offsets()  # raises now, before any packing is built
        samples = [len(row_offsets) - 1 for row_offsets, _, _ in self.packings]
        return samples, [self.row_length] * len(samples)

    @functools.cached_property
    def packings(self) -> list[Arrays]:
        """For each file the arrays of `pack_documents`, mapped from the cache."""
        packings = []
        for file in self.files:
            description = {
                "index": "best-fit",
                "documents": file.documents_checksum,
                "row_length": self.row_length,
            }
            build = functools.partial(
                pack_documents, file.require_document_offsets(), self.row_length
            )
            packing = load_or_build(
                self._path_to_cache, description, ARRAY_NAMES, build
            )
            packings.append(packing)
        return packings

    def __getstate__(self) -> dict[str, Any]:
        """Without the index: a worker process maps it again or, without a cache, builds it."""
        state = self.__dict__.copy()
        state.pop("packings", None)
        return state

    def pieces(self, positions: Int64Array) -> Iterator[tuple[Tokens, Int64Array]]:
        """See `JoinedRows.pieces`."""
        sources, samples = self.order.lookup(positions)
        for source in np.unique(sources).tolist():
            rows = np.flatnonzero(sources == source)
            row_offsets, piece_starts, piece_lengths = self.packings[source]
            check_not_truncated(row_offsets, piece_starts, piece_lengths)
            first_pieces = row_offsets[samples[rows]]
            counts = row_offsets[samples[rows] + 1] - first_pieces  # pieces of each row
            pieces = concatenated_ranges(first_pieces, counts)
            starts = piece_starts[pieces]
            lengths = piece_lengths[pieces].astype(np.int64)
            earlier = np.cumsum(lengths) - lengths  # tokens of all pieces before
            # tokens of all rows before
            earlier_rows = earlier[np.cumsum(counts) - counts]
            columns = earlier - np.repeat(earlier_rows, counts)
            rows = np.repeat(rows, counts)
            fields = [rows, starts, starts + lengths, columns]
            yield self.files[source], np.stack(fields, axis=1)

    def _samples_holding(self, source: int, start: int, stop: int) -> Sequence[int]:
        """See `Nanoset._samples_holding`. Scans the index."""
        row_offsets, starts, lengths = self.packings[source]
        near = np.flatnonzero((starts > start - self.row_length) & (starts < stop))
        pieces = near[starts[near] + lengths[near] > start]
        rows = np.searchsorted(row_offsets, pieces, side="right") - 1
        return np.unique(rows).tolist()

    def _plan_without_probes(self) -> Json:
        """See `Rows._plan_without_probes`; with the boundaries that decide the packing."""
        description = super()._plan_without_probes()
        description["rows"] |= {"packing": "best-fit", "pad_id": self._pad_id_in_rows()}
        for facts, file in zip(description["files"], self.files, strict=True):
            facts |= {"windows": "best-fit", "documents": file.documents_checksum}
        return description

    def _pad_id_in_rows(self) -> int | None:
        """The pad_id; None if every row of every file is full, and none holds it."""
        capacity = sum(self.dataset_lengths) * self.row_length
        tokens = sum(file.num_tokens for file in self.files)
        return self.pad_id if tokens < capacity else None
