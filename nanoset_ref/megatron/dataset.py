"""Samples of a Megatron-style dataset, bit for bit those of Megatron-Core's GPTDataset.

A batch is read by two kernels: `locate` walks the mappings and finds the parts of each sample, the second copies them
out of .bin. `locate` checks every bound on the way, which costs nothing compared with the memory traffic and turns a
damaged index into an error instead of a crash. Nothing here grows with the corpus but the mappings themselves.

The pseudocode for a query in Megatron-LM's documentation is wrong twice, and this does what its code does: a sample
ends *with* the token at Sa_idx[j + 1], so that S + 1 tokens come out and not S; and where it lies within one document
(i == i_next) it is document[offset : offset_next + 1], not document[offset:] + document[:offset_next].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.documents import Starts
from nanoset_ref.megatron.index_cache import Arrays, cached
from nanoset_ref.megatron.indexed_dataset import IndexedDatasetError, MMapIndexedDataset, require
from nanoset_ref.megatron.mappings import EpochPlan, build_mappings, plan_epochs
from nanoset_ref.megatron.nanoset_config import NanosetConfig
from nanoset_ref.rows import Origin, Rows, SourceUse, Span, checked_number, checked_tokens

Positions = NDArray[np.int64]


class MegatronNanoset(Rows):
    """Samples of one split of one corpus, equal to Megatron-Core's GPTDataset.

    Args:
        corpus: the .bin/.idx pair.
        first, stop: the sequences of the corpus that belong to the split.
        num_samples: samples wanted, in as many epochs as that takes; None: one epoch. `len` may be larger, as all
            tokens of the last epoch are cut.
        split: "train", "valid" or "test".
        config: seed, sequence length, flags, cache folder.

    Attributes:
        document_index, sample_index, shuffle_index: see `nanoset_ref.megatron.mappings`. epochs: the EpochPlan.
            tokens_per_epoch: T.

    Raises:
        ValueError: samples are wanted of a split without tokens; ids that are not integers.
    """

    def __init__(
        self,
        corpus: MMapIndexedDataset,
        first: int,
        stop: int,
        num_samples: int | None,
        split: str,
        config: NanosetConfig,
    ) -> None:
        require(corpus.dtype.kind in "iu", f"{corpus.path} holds {corpus.dtype.name} values, samples hold integer ids")
        self.corpus, self.first, self.stop = corpus, first, stop
        self.num_samples, self.split, self.config = num_samples, split, config
        self.sequence_length, self.row_length = config.sequence_length, config.row_length
        self.row_dtype = np.dtype(np.int64 if corpus.dtype.itemsize == 8 else np.int32)
        self.tokens_per_epoch = int(corpus.sequence_lengths[first:stop].sum(dtype=np.int64))
        try:
            self.epochs: EpochPlan = plan_epochs(
                self.tokens_per_epoch,
                num_samples,
                config.sequence_length,
                extra_token=config.add_extra_token_to_sequence,
                drop_last_partial=split != "valid" or config.drop_last_partial_validation_sequence,
            )
        except ValueError as error:
            what = f"the {split} split of {corpus.path_prefix} is sequences {first}:{stop} of {len(corpus)}"
            raise ValueError(f"{what}: {error}; give it a larger part, or leave it out with a 0 in split") from error
        arrays = cached(config.path_to_cache, {"index": "mappings", **self.plan}, self.build_index)
        self.document_index, self.sample_index, self.shuffle_index = arrays.values()

    def build_index(self) -> Arrays:
        """The three mappings, built anew."""
        return build_mappings(
            self.corpus.sequence_lengths,
            self.first,
            self.stop,
            self.epochs,
            self.sequence_length,
            self.config.random_seed,
            extra_token=self.config.add_extra_token_to_sequence,
        )

    def __len__(self) -> int:
        return self.epochs.num_samples

    @property
    def files(self) -> list[MMapIndexedDataset]:
        return [self.corpus]

    # ---- reading

    def _parts(self, positions: Positions) -> NDArray[np.int64]:
        """The tokens of each sample, in order, int64 [parts, 5]; see `locate`."""
        mappings = self.document_index, self.sample_index, self.shuffle_index
        corpus = self.corpus.sequence_lengths, self.corpus.sequence_pointers, self.corpus.dtype.itemsize
        try:
            return locate(mappings, corpus, positions, self.sequence_length, self.row_length)
        except IndexError as error:
            raise IndexedDatasetError(f"{self.corpus.path}: {error}; its cached index is damaged, remove it") from error

    def fill(self, positions: Positions, out: NDArray[Any], rows: NDArray[np.int64] | None = None) -> None:
        """Write the rows at valid positions [n] into out[rows]."""
        parts, pad_id = self._parts(positions), self.config.pad_id
        rows = np.arange(len(positions)) if rows is None else rows
        if self.corpus.mmap:
            _copy(self.corpus.tokens, parts, rows, pad_id, out)
            return
        for place, _, begin, end, column in parts.tolist():
            target = out[rows[place], column:]
            target[: end - begin] = self.corpus.read(begin, end)
            target[end - begin :] = pad_id

    _fill = fill

    def _starts(self, positions: Positions) -> Starts:
        """Where sequences begin, which to Megatron's shuffle are documents."""
        parts = self._parts(positions)
        places, _, _, _, columns = parts[parts[:, 2] < parts[:, 3]].T
        starts = np.zeros((len(positions), self.row_length), dtype=np.bool_)
        starts[:, 0] = True
        starts[places, columns] = True
        return starts

    def sequence_ids(self, k: int) -> NDArray[np.int64]:
        """The sequences that sample k reads, in order, int64 (what Megatron-Core calls document ids)."""
        return self._parts(np.array([k]))[:, 1]

    # ---- where tokens come from, and where they go

    def origin(self, position: int) -> Origin:
        """As `Rows.origin`; samples and epochs are counted in the stream of shuffled documents."""
        sample = int(self.shuffle_index[position])
        return Origin(0, sample, sample * self.sequence_length // self.tokens_per_epoch)

    def spans(self, position: int) -> list[Span]:
        offsets, itemsize, spans = self.corpus.document_offsets, self.corpus.dtype.itemsize, []
        for _, _, begin, end, _ in self._parts(np.array([position])).tolist():
            document = int(np.searchsorted(offsets, begin, side="right")) - 1
            first = int(offsets[document])
            if begin < end:
                spans.append(Span(document, begin - first, end - first, begin * itemsize, end * itemsize))
        return spans

    def positions_of(
        self, source: int, document: int, tokens: tuple[int, int] | None = None, until: int | None = None
    ) -> Positions:
        """As `Rows.positions_of`, in two scans of the mappings; nothing is kept.

        1. the places of the document's sequences in the stream
        2. the samples that reach over one of them, and their positions
        3. of these, the ones that hold the tokens
        """
        checked_number(source, 1, "file")
        checked_number(document, self.corpus.num_documents, "document")
        offset, end = self.corpus.document_offsets[document : document + 2].tolist()
        start, stop = checked_tokens(tokens, document, end - offset)
        # 1.
        first, last = self.corpus.document_indices[document : document + 2]
        places = np.flatnonzero((self.document_index >= first) & (self.document_index < last))
        # 2.
        begins, ends = self.sample_index[:-1, 0], self.sample_index[1:, 0]
        touched = np.searchsorted(places, ends, side="right") > np.searchsorted(places, begins)
        candidates = np.flatnonzero(touched[self.shuffle_index[:until]])
        # 3.
        parts = self._parts(candidates)
        holds = np.maximum(parts[:, 2], offset + start) < np.minimum(parts[:, 3], offset + stop)
        return candidates[np.unique(parts[holds, 0])]

    def usage(self, start: int, stop: int, weight: float = 1.0) -> list[SourceUse]:
        """As `Rows.usage`. No sample is read twice, but its documents may be: repetitions are passes over them."""
        length, tokens, extra = self.sequence_length, self.tokens_per_epoch, self.row_length - self.sequence_length
        samples = self.shuffle_index[:stop].astype(np.int64)
        passes = np.union1d(samples * length // tokens, ((samples + 1) * length - 1) // tokens)
        stream = tokens * self.epochs.num_epochs
        return [
            SourceUse(
                path=str(self.corpus.path),
                weight=weight,
                num_samples=(tokens - extra) // length,
                read=stop - start,
                epochs=(stop - start) * length / tokens,
                distinct=len(samples),
                repetitions=len(passes),
                tokens=stream,
                tail_tokens=stream - extra - len(self) * length,
            )
        ]

    # ---- identity

    @property
    def plan(self) -> dict[str, Any]:
        return {
            "corpus": self.corpus.fingerprint,
            "sequences": [self.first, self.stop],
            "sequence_length": self.sequence_length,
            "add_extra_token_to_sequence": self.config.add_extra_token_to_sequence,
            "random_seed": self.config.random_seed,
            "num_epochs": self.epochs.num_epochs,
            "separate_final_epoch": self.epochs.separate_final_epoch,
            "num_samples": self.epochs.num_samples,
            "pad_id": self.config.pad_id,
        }

    def __repr__(self) -> str:
        what = f"{self.corpus.path_prefix!r}, {self.split}: sequences {self.first:,}:{self.stop:,}"
        size = f"{len(self):,} samples, {self.epochs.num_epochs} epochs"
        return (
            f"MegatronNanoset({what}, sequence_length={self.sequence_length}, {size}, seed={self.config.random_seed})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the cached index again, or, without a cache, builds its own."""
        return MegatronNanoset, (self.corpus, self.first, self.stop, self.num_samples, self.split, self.config)


@njit(cache=True, nogil=True, boundscheck=True)
def locate(mappings, corpus, positions, sequence_length, row_length):
    """The parts of the samples at `positions`, in order.

    Returns int64 [parts, 5]: (place in `positions`, sequence, begin, end, column): tokens begin:end of .bin go to a
    row's columns from `column` on. Raises IndexError where an index leads out of the corpus, a sequence or the row.
    """
    document_index, sample_index, shuffle_index = mappings
    lengths, pointers, itemsize = corpus
    count = 0
    for k in positions:
        j = np.int64(shuffle_index[k])
        if not 0 <= sample_index[j, 0] <= sample_index[j + 1, 0] < len(document_index):
            raise IndexError("a sample leaves the stream")
        count += sample_index[j + 1, 0] - sample_index[j, 0] + 1
    parts = np.empty((count, 5), dtype=np.int64)
    part = 0
    for n, k in enumerate(positions):
        j = np.int64(shuffle_index[k])
        first, last = sample_index[j], sample_index[j + 1]
        column = 0
        for i in range(first[0], last[0] + 1):
            sequence = document_index[i]
            start = first[1] if i == first[0] else 0
            stop = last[1] + row_length - sequence_length if i == last[0] else lengths[sequence]
            if not 0 <= start <= stop <= lengths[sequence] or column + stop - start > row_length:
                raise IndexError("a sample leaves its sequence or its row")
            begin = pointers[sequence] // itemsize
            parts[part, 0], parts[part, 1], parts[part, 4] = n, sequence, column
            parts[part, 2], parts[part, 3] = begin + start, begin + stop
            column += stop - start
            part += 1
    return parts


@njit(cache=True, nogil=True)
def _copy(tokens, parts, rows, pad_id, out):
    """Copy the parts of `locate` into out[rows], and fill up with pad_id behind the last of a row."""
    for n in range(len(parts)):
        source = tokens[parts[n, 2] : parts[n, 3]]
        target = out[rows[parts[n, 0]], parts[n, 4] :]
        for i in range(len(source)):  # over two slices the compiler vectorises
            target[i] = source[i]
        if n + 1 == len(parts) or parts[n + 1, 0] > parts[n, 0]:
            target[len(source) :] = pad_id
