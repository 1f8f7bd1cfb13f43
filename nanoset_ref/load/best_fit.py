"""Best-fit packing: rows of whole documents, each in the row that it fills best, and padding where nothing fits.

Rows of a Nanoset are cut where they end, so most documents are. Here only those that are longer than a row are cut:

    1. a document of more than R = S + 1 tokens is cut into full rows and a rest; every other one is one piece
    2. pieces are sorted, longest first; of equal length, in the order of the file
    3. each goes to the row with the least room that still takes it (of several, the one that came to this room last),
       or, if there is none, begins a row
    4. what stays free at the end of a row is padding

    documents of 14, 7, 5, 2, 3 tokens, R = 8:   aaaaaaaa   bbbbbbb.   aaaaaadd   ccccceee     1 token of padding

A capacity of R, not S, since a row gives S inputs and S labels: a document of R tokens loses none of its predictions.
Step 3 asks a binary tree over the possible rooms, 1 to S, for the smallest one that is not below the length: n log S.
Documents that share a row are neighbors by their length alone, so tell the model where they begin.

The index takes 12 bytes per piece and 8 per row, and about 60 per piece while it is built, by 6 million documents per
second of one core (2 million documents, 666 tokens on average, S = 2,048; 3 million where S is above 65,535). It lies
in a cache on disk and is mapped (see `index_cache`), so that ranks and workers share it. Rows are read through mappings
of the files, as Megatron's are.

Source: Ding and others, Fewer Truncations Improve Language Modeling, 2024, https://arxiv.org/abs/2404.10830
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.index_cache import Arrays, cached
from nanoset_ref.io.kernels import njit
from nanoset_ref.io.paths import PathLike, in_bucket
from nanoset_ref.load.gather import copy_pieces
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Span, Starts, document_spans
from nanoset_ref.orders import Order
from nanoset_ref.tokens import Tokens


def pack_documents(document_offsets: NDArray[np.int64], row_length: int) -> Arrays:
    """Pack documents into rows of at most `row_length` tokens, by the steps above.

    Args:
        document_offsets: int64 [documents + 1], ascending, in tokens (`Tokens.document_offsets`).
        row_length: R, in tokens.

    Returns:
        Three arrays. Row j is made of the pieces first[j] to first[j + 1], one after another.

            first    int64 [rows + 1]
            begins   int64 [pieces], the first token of each in the file
            sizes    int32 [pieces], in tokens

    Raises:
        ValueError: a row_length below 1; offsets that do not ascend.
    """
    if operator.index(row_length) < 1:
        raise ValueError(f"a row must hold at least 1 token, got row_length={row_length}")
    offsets = np.asarray(document_offsets, dtype=np.int64)
    lengths = np.diff(offsets)
    if (lengths < 0).any():
        raise ValueError(
            "document boundaries do not ascend: their file is damaged, write the token file again"
        )
    # 1.
    counts = -(-lengths // row_length)  # lengths 5 0 2, R = 3: 2 0 1
    ends = np.cumsum(counts)
    before = np.arange(counts.sum()) - np.repeat(
        ends - counts, counts
    )  # pieces of the same document: 0 1 0
    begins = np.repeat(offsets[:-1], counts) + before * row_length  # 0 3 5
    sizes = np.minimum(np.repeat(offsets[1:], counts) - begins, row_length)  # 3 2 2
    # 2.
    missing = (row_length - sizes).astype(
        np.min_scalar_type(row_length)
    )  # NumPy sorts 16 bits fastest
    order = np.argsort(missing, kind="stable")
    # 3.
    rows = _place(sizes[order], row_length, 1 << operator.index(row_length).bit_length())
    order = order[np.argsort(rows, kind="stable")]
    first = np.append(0, np.cumsum(np.bincount(rows)))
    return first, begins[order], sizes[order].astype(np.int32)


@njit(cache=True, nogil=True)
def _place(sizes, row_length, width):
    """The row of each piece, int64 [pieces], for sizes that do not increase.

    Leaf `width + c` of the tree counts the rows with room for c more tokens; a node, those of its leaves. `width`, a
    power of two, is above row_length.
    """
    tree = np.zeros(2 * width, dtype=np.int64)
    last = np.zeros(width, dtype=np.int64)  # of the rows with room for c, the one that came last,
    before = np.zeros(len(sizes), dtype=np.int64)  # and for each row the one that came before it
    rows = np.empty(len(sizes), dtype=np.int64)
    num_rows = 0
    for piece in range(len(sizes)):
        room = _smallest_room(tree, width + sizes[piece]) - width
        if room > 0:
            row = last[room]
            last[room] = before[row]
            _count(tree, width + room, -1)
        else:
            row, room = num_rows, row_length
            num_rows += 1
        rows[piece] = row
        room -= sizes[piece]
        before[row], last[room] = last[room], row
        _count(tree, width + room, 1 if room else 0)
    return rows


@njit(cache=True, nogil=True)
def _smallest_room(tree, node):
    """The first leaf from `node` on that counts a row, or 0. Up and to the right, then down on the left."""
    while node and not tree[node]:
        while node & 1:  # a right child, or the root: nothing more below its parent
            node >>= 1
        node += node > 0
    while 0 < 2 * node < len(tree):
        node = 2 * node + (not tree[2 * node])
    return node


@njit(cache=True, nogil=True)
def _count(tree, node, change):
    while node:
        tree[node] += change
        node >>= 1


class PackedNanoset(Nanoset):
    """Rows of whole documents, packed by best fit file by file, in the order of a run.

    Args:
        dataset_paths, dataset_weights, sequence_length, random_seed, order: as in Nanoset; a sample is a packed row, so
            an epoch has as many as the packing gives. Document boundaries must be known: by a manifest, an .idx, a .ds
            index, or open_tokens(path, eos_token_id=...). order="identity" gives long documents first.
        train_split_num_samples: N = len(self), in samples; None: one epoch.
        pad_id: the id that fills a row's end, such as the EOS id; a model must know it, no loss counts it.
        path_to_cache: folder of the index; None: built in memory by every process.

    Every token of the files is in exactly one row, each document in as few rows as its length allows. `starts` marks a
    row's first token, each document's and every padding token, so that position ids and masks never cross documents and
    `label_mask` is False at padding, whatever its id (`build_nanoset_dataloader` always asks for it; another collator
    has to know padding by itself). `usage` counts padding as negative tail_tokens.

    Raises:
        TokenFileError: a file's document boundaries are not known.
        ValueError: a pad_id that is no token id; as Nanoset.
    """

    padded = True

    def __init__(
        self,
        dataset_paths: PathLike | Tokens | Sequence[PathLike | Tokens],
        dataset_weights: Sequence[float] | NDArray[np.float64] | None,
        sequence_length: int,
        train_split_num_samples: int | None = None,
        random_seed: int = 1234,
        *,
        pad_id: int,
        order: str | Order = "nanotron",
        path_to_cache: PathLike | None = None,
    ) -> None:
        self.pad_id, self._path_to_cache = operator.index(pad_id), path_to_cache
        if not 0 <= self.pad_id < 2**31:
            raise ValueError(
                f"pad_id must be a token id of 0 .. 2**31 - 1, got {pad_id}: the EOS id will do"
            )
        length, count = sequence_length, train_split_num_samples
        super().__init__(dataset_paths, dataset_weights, length, count, random_seed, order=order)

    def _cut(self, disjoint: bool) -> tuple[list[int], list[int]]:
        for file in self.files:
            file.known_documents()
        return [len(packing[0]) - 1 for packing in self.packings], [self.row_length] * len(
            self.files
        )

    @functools.cached_property
    def packings(self) -> list[Arrays]:
        """What `pack_documents` gives for each file, mapped from the cache."""
        packings = []
        for file in self.files:
            description = {
                "index": "best-fit",
                "documents": file.documents_checksum,
                "row_length": self.row_length,
            }
            build = functools.partial(pack_documents, file.known_documents(), self.row_length)
            packings.append(
                cached(self._path_to_cache, description, ("first", "begins", "sizes"), build)
            )
        return packings

    def __getstate__(self) -> dict[str, Any]:
        """A worker process maps the cached index again, or, without a cache, builds its own."""
        return {name: value for name, value in self.__dict__.items() if name != "packings"}

    def _pieces(self, positions: NDArray[np.int64]) -> Iterator[tuple[Tokens, NDArray[np.int64]]]:
        """The files that rows are read from, and the pieces of each as `copy_pieces` takes them."""
        datasets, samples = self.order.lookup(positions)
        for number in np.unique(datasets).tolist():
            places = np.flatnonzero(datasets == number)
            first, begins, sizes = self.packings[number]
            low = first[samples[places]]
            counts = first[samples[places] + 1] - low
            ends = np.cumsum(counts)
            pieces = np.arange(ends[-1]) + np.repeat(low - ends + counts, counts)
            begin, size = begins[pieces], sizes[pieces].astype(np.int64)
            column = np.cumsum(size) - size
            column -= np.repeat(column[ends - counts], counts)
            yield (
                self.files[number],
                np.stack([np.repeat(places, counts), begin, begin + size, column], axis=1),
            )

    def fill(self, positions: NDArray[np.int64], out: NDArray[Any]) -> None:
        out[:] = self.pad_id
        for file, pieces in self._pieces(positions):
            tokens: Any = file.tokens
            if in_bucket(file.path):
                from nanoset_ref.io.bucket_ids import fetch  # only where a URL is met

                extents = (pieces[:, 1:3] * file.dtype.itemsize).tolist()
                parts = fetch([(tokens, begin, end) for begin, end in extents])
                tokens = np.frombuffer(b"".join(parts), file.dtype)
                ends = np.cumsum(pieces[:, 2] - pieces[:, 1])
                shift = pieces[:, 2] - ends  # places in what was fetched, not in the file
                pieces[:, 1:3] -= shift[:, None]
            else:
                file.check_length()
            copy_pieces(tokens, pieces, out)

    def _starts(self, positions: NDArray[np.int64]) -> Starts:
        starts = np.zeros((len(positions), self.row_length), dtype=np.bool_)
        filled = np.zeros((len(positions), 1), dtype=np.int64)
        for _, pieces in self._pieces(positions):
            rows, begins, ends, columns = pieces.T
            starts[rows, columns] = True
            filled[rows, 0] = (
                columns + ends - begins
            )  # the last piece of a row is the last to write
        return starts | (np.arange(self.row_length) >= filled)

    def spans(self, position: int) -> list[Span]:
        ((file, pieces),) = self._pieces(np.array([position]))
        return [
            span
            for _, begin, end, _ in pieces.tolist()
            for span in document_spans(file, begin, end)
        ]

    def _samples_with(self, source: int, begin: int, end: int) -> Sequence[int]:
        """As in Nanoset, in a scan of the index."""
        first, begins, sizes = self.packings[source]
        near = np.flatnonzero((begins > begin - self.row_length) & (begins < end))
        pieces = near[begins[near] + sizes[near] > begin]
        rows: list[int] = np.unique(np.searchsorted(first, pieces, side="right") - 1).tolist()
        return rows

    def _describe(self) -> dict[str, Any]:
        described = super()._describe()
        described["rows"] |= {"packing": "best-fit", "pad_id": self.pad_id}
        for file, read in zip(described["files"], self.files, strict=True):
            file |= {"windows": "best-fit", "documents": read.documents_checksum}
        return described
