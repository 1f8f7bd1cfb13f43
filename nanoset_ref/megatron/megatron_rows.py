"""Rows joined from pieces of .bin files: the base of datasets of one corpus and of blends.

Two kernels read a batch: one walks the indexes and finds the pieces of each sample, the other
copies them out of .bin. Neither checks bounds: the indexes were built here or have the right
checksum, and .idx was checked when it was opened. Only the indexes grow with the corpus.

The pseudocode for a query in Megatron-LM's documentation has two errors; we follow the code:

- A sample ends *with* the token at Sa_idx[j + 1], so it has S + 1 tokens, not S.
- A sample within one document (i == i_next) is document[offset : offset_next + 1], not
  document[offset:] + document[:offset_next].

Source: NVIDIA Megatron-LM, megatron/core/datasets/gpt_dataset.py (core_v0.16.1).
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.joined_rows import JoinedRows
from nanoset_ref.load.rows import Origin, SourceUse
from nanoset_ref.megatron.nanoset_config import NanosetConfig, as_shares
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset

if TYPE_CHECKING:
    from nanoset_ref.megatron.dataset import MegatronNanoset

PartSamples = tuple[int, Int64Array, Int64Array]  # see `MegatronRows.samples_by_part`
POSITIONS_AT_ONCE = 1 << 20  # scanned by `positions_of`
ALGORITHM = 1  # version of the indexes and the blend, like `Order.algorithm`


class MegatronRows(JoinedRows):
    """Rows that are joined from pieces of .bin files: the base class of one corpus and of a blend.

    Attributes:
        parts: the datasets of a blend; a single dataset is its own only part.
        dataset_index: int16 [len], the part that each position reads. The i-th position of a part
            reads its sample i.
        shares: each part's share, with any sum.
        config: the parts' configuration.
    """

    dataset_index: NDArray[np.int16]
    shares: Sequence[float] = (1.0,)
    config: NanosetConfig

    @property
    @abstractmethod
    def parts(self) -> "Sequence[MegatronNanoset]":
        """The datasets of single corpora behind these rows."""

    @abstractmethod
    def samples_by_part(self, positions: Int64Array) -> Iterable[PartSamples]:
        """The samples of each part at these positions.

        Args:
            positions: int64 [n].

        Returns:
            For each part with a sample: its number, the rows that read it (indices in `positions`),
            and its samples in these rows.
        """

    def __len__(self) -> int:
        return len(self.dataset_index)

    @property
    def files(self) -> list[MMapIndexedDataset]:
        """See `Rows.files`."""
        return [part.corpus for part in self.parts]

    def pieces(
        self, positions: Int64Array
    ) -> Iterator[tuple[MMapIndexedDataset, Int64Array]]:
        """See `JoinedRows.pieces`; a piece is (a part of) a sequence, Megatron's document."""
        for source, rows, samples in self.samples_by_part(positions):
            part = self.parts[source]
            corpus = part.corpus
            indexes = (part.document_index, part.sample_index, part.shuffle_index)
            check_not_truncated(
                *indexes, corpus.sequence_lengths, corpus.sequence_pointers
            )
            sequences = (
                corpus.sequence_lengths,
                corpus.sequence_pointers,
                corpus.dtype.itemsize,
            )
            extra = self.row_length - self.sequence_length
            yield corpus, _locate(indexes, sequences, rows, samples, extra)

    def origin(self, position: int) -> Origin:
        """See `Rows.origin`; samples and epochs are counted in the stream of shuffled documents."""
        ((source, _, samples),) = self.samples_by_part(np.array([position]))
        part = self.parts[source]
        sample = int(part.shuffle_index[samples[0]])
        return Origin(
            source, sample, sample * self.sequence_length // part.tokens_per_epoch
        )

    def positions_of(
        self,
        source: int,
        document: int,
        tokens: tuple[int, int] | None = None,
        until: int | None = None,
    ) -> Int64Array:
        """See `Rows.positions_of`; found by a scan of all positions of the file."""
        start, stop = self.token_range(source, document, tokens)
        end = len(self.dataset_index) if until is None else max(until, 0)
        positions = np.flatnonzero(self.dataset_index[:end] == source)
        holding = [positions[:0]]
        for block in np.array_split(positions, len(positions) // POSITIONS_AT_ONCE + 1):
            for _, pieces in self.pieces(block):
                holds = np.maximum(pieces[:, 1], start) < np.minimum(pieces[:, 2], stop)
                holding.append(block[np.unique(pieces[holds, 0])])
        return np.concatenate(holding)

    def usage(self, start: int, stop: int) -> list[SourceUse]:
        """See `Rows.usage`. Samples are read once, but their documents once per epoch."""
        # samples of each part up to both ends
        before, after = [
            np.bincount(self.dataset_index[:end], minlength=len(self.parts)).tolist()
            for end in (start, stop)
        ]
        uses = []
        for source, (part, share) in enumerate(self._weighted_parts()):
            read = after[source] - before[source]
            epochs = part.epochs.num_epochs
            use = SourceUse(
                path=str(part.corpus.path),
                weight=share,
                num_samples=part.samples_per_epoch,
                read=read,
                epochs=read * self.sequence_length / max(part.tokens_per_epoch, 1),
                distinct=min(after[source], len(part)),
                most_reads=epochs,
                tokens=part.tokens_per_epoch * epochs,
                tail_tokens=part.tail_tokens,
            )
            uses.append(use)
        return uses

    def _weighted_parts(self) -> "list[tuple[MegatronNanoset, float]]":
        """The parts, each with its share of the sum."""
        return list(zip(self.parts, as_shares(self.shares), strict=True))

    def plot(self) -> Any:
        """Plot each part's share along the positions and how often it is read; see `Order.plot`."""
        from nanoset_ref.orders.plots import draw_sources  # only notebooks need it

        return draw_sources(
            lambda positions: self.dataset_index[positions],
            range(len(self)),
            [part.corpus.path.stem for part in self.parts],
            np.array([part.samples_per_epoch for part in self.parts]),
            np.array(as_shares(self.shares)),
            f"Megatron's {self.parts[0].split} split, seed {self.config.random_seed}",
        )

    def _repr_html_(self) -> str:
        from nanoset_ref.io.html_table import html_table  # only notebooks need it

        facts = {
            "split": self.parts[0].split,
            "samples": len(self),
            "sequence length": self.sequence_length,
            "seed": self.config.random_seed,
        }
        head = ("corpus", "tokens", "samples", "epochs", "share")
        rows = []
        for part, share in self._weighted_parts():
            size = (part.tokens_per_epoch, len(part), part.epochs.num_epochs)
            rows.append((part.corpus.path_prefix, *size, share))
        return html_table(type(self).__name__, facts, head, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the cached index again or, without a cache, builds its own."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return type(self), tuple(getattr(self, field.name) for field in fields)


@njit(work=lambda indexes, sequences, rows, samples, extra: 100 * len(samples))
def _locate(indexes, sequences, rows, samples, extra):
    """Find the pieces of samples, int64 [pieces, 4]; see `MegatronRows.pieces`.

    Args:
        indexes: the document index int32 [E*n], the sample index int [N + 1, 2] and the shuffle
            index int [N] of one part.
        sequences: lengths int32 [S] in tokens, pointers int64 [S] in bytes, and bytes per token.
        rows: int64 [n], the first column of the result.
        samples: int64 [n], in 0 .. N - 1, before the shuffle.
        extra: 1 if a sample ends with the first token of the next sample, else 0.
    """
    document_index, sample_index, shuffle_index = indexes
    lengths, pointers, itemsize = sequences
    count = 0
    for k in samples:
        j = np.int64(shuffle_index[k])
        count += sample_index[j + 1, 0] - sample_index[j, 0] + 1
    pieces = np.empty((count, 4), dtype=np.int64)
    piece = 0
    for n in range(len(samples)):
        j = np.int64(shuffle_index[samples[n]])
        first, first_token = sample_index[j]
        last, last_token = sample_index[j + 1]
        column = 0
        for i in range(first, last + 1):
            sequence = document_index[i]
            start = int(first_token) if i == first else 0
            stop = int(last_token) + extra if i == last else int(lengths[sequence])
            origin = pointers[sequence] // itemsize
            pieces[piece, 0] = rows[n]
            pieces[piece, 1] = origin + start
            pieces[piece, 2] = origin + stop
            pieces[piece, 3] = column
            column += stop - start
            piece += 1
    return pieces
