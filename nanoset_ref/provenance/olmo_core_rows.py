"""Rows that OLMo-core packs, such as those of OLMo 3's long-context stage, read from its files.

The order "olmo_core_packed" of a card names them. `packed_instances` computes which documents a row
holds, one group of files at a time; ``order="olmo_core"`` computes when a row is read.
"""

import bisect
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.load.document_spans import document_spans
from nanoset_ref.load.joined_rows import JoinedRows
from nanoset_ref.load.rows import Origin, SourceUse
from nanoset_ref.orders import build_order
from nanoset_ref.orders.base import NO_POSITIONS
from nanoset_ref.orders.others import packed_instances
from nanoset_ref.orders.plans import describe_file
from nanoset_ref.tokens import Tokens


class PackedSpan(NamedTuple):
    """A `Span` of a row that holds documents of several files.

    Attributes:
        document, start, stop, first_byte, end_byte: as in `Span`.
        source: the number of its file.
        candidates: documents of this length in the group of files. If there are several, which one
            is here depends on NumPy's version and on the CPU of the run.
    """

    document: int
    start: int
    stop: int
    first_byte: int
    end_byte: int
    source: int
    candidates: int


class OLMoCorePackedRows(JoinedRows):
    """The packed rows of files whose documents are known, in the order of a run.

    Args:
        files: in the order of the run's config.
        row_length: the run's sequence_length, in tokens.
        num_samples: rows of the run.
        random_seed: of the data loader.
        options: of the order in the card. batch_size: rows in a global batch; group_size: files
            that are packed together (source_group_size); permutation_seed: files are shuffled
            before (source_permutation_seed), or None; fragment: whether long_doc_strategy is
            "fragment"; pad_token_id: fills the end of a row.

    Raises:
        ValueError: a document has no tokens.
    """

    padded = True
    share_period = None

    def __init__(
        self,
        files: Sequence[Tokens],
        row_length: int,
        num_samples: int,
        random_seed: int,
        options: Mapping[str, Any],
    ) -> None:
        self._files = list(files)
        self.pad_id = options["pad_token_id"]
        self.row_length = row_length
        self.sequence_length = row_length - 1
        numbers = list(range(len(files)))
        if options["permutation_seed"] is not None:
            random.Random(options["permutation_seed"]).shuffle(numbers)
        size = options["group_size"]
        # the numbers of the files that are packed together
        self._groups = [numbers[i : i + size] for i in range(0, len(files), size)]
        self._group_of = {}  # of each file
        self._firsts = {}  # the first token of each file in its group
        for group, members in enumerate(self._groups):
            first = 0
            for number in members:
                self._group_of[number] = group
                self._firsts[number] = first
                first += files[number].num_tokens
        # of each group: row, start, stop, candidates
        self._documents = []
        for members in self._groups:
            spans = np.concatenate(list(map(self._ended_documents, members)))
            documents = packed_instances(
                spans, row_length, fragment=options["fragment"]
            )
            self._documents.append(documents)
        # rows of each group, whose numbers ascend from 0
        lengths = [int(packed[:, 0].max(initial=-1)) + 1 for packed in self._documents]
        name = f"olmo_core:batch_size={options['batch_size']}"
        self.order = build_order(name, lengths, None, num_samples, random_seed)

    def _ended_documents(self, number: int) -> Int64Array:
        """(start, stop) in its group of each document of a file, without an unclosed last one."""
        file = self._files[number]
        offsets = file.require_document_offsets()
        stop = len(offsets)
        if file.num_tokens and not file.facts.get("appended_eod"):
            stop -= 1
        spans = np.stack([offsets[: stop - 1], offsets[1:stop]], axis=1)
        empty = np.flatnonzero(spans[:, 0] == spans[:, 1])
        if empty.size:
            raise ValueError(
                f"{file.path}: document {empty[0]} has no tokens, but every document of OLMo-core "
                "has at least its EOS: write the file without it"
            )
        return self._firsts[number] + spans

    @property
    def files(self) -> Sequence[Tokens]:
        """See `Rows.files`."""
        return self._files

    def __len__(self) -> int:
        return len(self.order)

    def _row(self, position: int) -> list[tuple[int, int, int, int]]:
        """(file, first token in it, stop, candidates) of the pieces of a row, in order."""
        group, row = self.order[position]
        documents = self._documents[group]
        in_row = slice(*np.searchsorted(documents[:, 0], [row, row + 1]))
        members = self._groups[group]
        firsts = [self._firsts[number] for number in members]
        pieces = []
        for _, start, stop, candidates in documents[in_row].tolist():
            index = bisect.bisect_right(firsts, start) - 1
            first = firsts[index]
            pieces.append((members[index], start - first, stop - first, candidates))
        return pieces

    def pieces(self, positions: Int64Array) -> Iterator[tuple[Tokens, Int64Array]]:
        """See `JoinedRows.pieces`."""
        pieces_of = defaultdict(list)  # {file: its pieces}
        for row, position in enumerate(positions.tolist()):
            column = 0
            for number, start, stop, _ in self._row(position):
                pieces_of[number].append([row, start, stop, column])
                column += stop - start
        for number, pieces in pieces_of.items():
            yield self._files[number], np.array(pieces)

    def origin(self, position: int) -> Origin:
        """The file of the row's first document, and the number of the row in its group."""
        _, row = self.order[position]
        first_piece = self._row(position)[0]
        return Origin(first_piece[0], row, self.order.epoch_of(position))

    def spans(self, position: int) -> list[Any]:
        """A `PackedSpan` for each document in the row."""
        return [
            PackedSpan(span.document or 0, *span[1:], number, candidates)
            for number, start, stop, candidates in self._row(position)
            for span in document_spans(self._files[number], start, stop)
        ]

    def positions_of(
        self,
        source: int,
        document: int,
        tokens: tuple[int, int] | None = None,
        until: int | None = None,
    ) -> Int64Array:
        """See `Rows.positions_of`."""
        in_file = self.token_range(source, document, tokens)
        start, stop = np.add(in_file, self._firsts[source])
        group = self._group_of[source]
        rows, starts, stops, _ = self._documents[group].T
        holds = np.maximum(starts, start) < np.minimum(stops, stop)
        positions = [NO_POSITIONS]
        for row in np.unique(rows[holds]).tolist():
            positions.append(self.order.positions(group, row, until))
        return np.sort(np.concatenate(positions))

    def usage(self, start: int, stop: int) -> list[SourceUse]:
        """How positions [start, stop) use each group, which has the name of its first file."""
        reads = self.order.counts(stop) - self.order.counts(start)
        uses = []
        for group, (distinct, most_reads) in enumerate(self.order.coverage(stop)):
            members = self._groups[group]
            tokens = sum(self._files[number].num_tokens for number in members)
            _, starts, stops, _ = self._documents[group].T
            packed = int((stops - starts).sum())
            rows = int(self.order.dataset_lengths[group])
            use = SourceUse(
                path=str(self._files[members[0]].path),
                weight=float(self.order.dataset_weights[group]),
                num_samples=rows,
                read=int(reads[group]),
                epochs=int(reads[group]) / max(rows, 1),
                distinct=distinct,
                most_reads=most_reads,
                tokens=tokens,
                tail_tokens=tokens - packed,
            )
            uses.append(use)
        return uses

    def _plan_without_probes(self) -> Json:
        """See `Rows._plan_without_probes`."""
        rows = {
            "row_length": self.row_length,
            "packing": "olmo_core",
            "pad_id": self.pad_id,
        }
        files = [describe_file(file) for file in self._files]
        return {"order": self.order.identity, "rows": rows, "files": files}
