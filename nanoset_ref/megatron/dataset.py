"""The Megatron-style dataset: samples cut from a stream of shuffled sequences, and blends of them.

`MegatronNanoset` reads batches whole: one pass finds the parts of every sample (sequence, begin, end), one copies them
into an array of rows, both compiled. Nothing runs in Python per token or sequence. A sample is {"input_ids": ids}, the
interface of `nanoset_ref.Nanoset`, so that samplers, collators and DataLoader are the same; what Megatron-LM makes of a
sample (tokens, labels, masks, position ids) is `MegatronCollator`'s work.

The pseudocode for a query in Megatron-LM's documentation is wrong twice, and this does what its code does: a sample
ends *with* the token at Sa_idx[j + 1], so that S + 1 tokens come out and not S; and where it lies within one document
(i == i_next) it is document[offset : offset_next + 1], not document[offset:] + document[:offset_next].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.documents import Starts
from nanoset_ref.megatron.blending import blend_by_weight, blend_everything
from nanoset_ref.megatron.cache import Arrays, cached
from nanoset_ref.megatron.config import NanosetConfig, normalise
from nanoset_ref.megatron.indexed_dataset import IndexedDatasetError, MMapIndexedDataset
from nanoset_ref.megatron.mappings import EpochPlan, build_mappings, plan_epochs
from nanoset_ref.megatron.parts import copy, locate
from nanoset_ref.megatron.samples import Samples


class Span(NamedTuple):
    """Tokens start:stop of a document, counted from the document's first token."""

    document: int
    start: int
    stop: int


class MegatronNanoset(Samples):
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
        if not np.issubdtype(corpus.dtype, np.integer):
            raise ValueError(
                f"{corpus.path_prefix} holds {corpus.dtype.name} values, and samples are made of integer token ids"
            )
        self.corpus, self.first, self.stop = corpus, first, stop
        self.num_samples, self.split, self.config = num_samples, split, config
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
            raise ValueError(
                f"the {split} split of {corpus.path_prefix} is sequences {first}:{stop} of {len(corpus)}: {error}; "
                "give that split a larger part, ask for None (one epoch) of it, or leave it out with a 0 in split"
            ) from error
        self._load_index()

    def _load_index(self) -> None:
        arrays = cached(self.config.path_to_cache, {"index": "mappings", **self._index_plan()}, self._build_index)
        self.document_index: NDArray[np.int32] = arrays["document_index"]
        self.sample_index: NDArray[Any] = arrays["sample_index"]
        self.shuffle_index: NDArray[Any] = arrays["shuffle_index"]

    def _build_index(self) -> Arrays:
        return build_mappings(
            self.corpus.sequence_lengths,
            self.first,
            self.stop,
            self.epochs,
            self.config.sequence_length,
            self.config.random_seed,
            extra_token=self.config.add_extra_token_to_sequence,
        )

    def __len__(self) -> int:
        return self.epochs.num_samples

    def _fill(self, positions: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        parts, corpus = self._parts(positions), self.corpus
        if corpus.tokens is None:
            self._fill_by_pread(parts, rows, out)
        elif not copy(
            corpus.tokens, corpus.sequence_pointers, corpus.dtype.itemsize, parts, rows, self.config.pad_id, out
        ):
            raise self._damaged()

    def _fill_by_pread(self, parts: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        filled = np.zeros(len(rows), dtype=np.int64)
        for sample, sequence, start, stop in parts.tolist():
            first = int(self.corpus.sequence_pointers[sequence]) // self.corpus.dtype.itemsize + start
            out[rows[sample], filled[sample] : filled[sample] + stop - start] = self.corpus.pread(first, stop - start)
            filled[sample] += stop - start
        for row, count in zip(rows.tolist(), filled.tolist(), strict=True):
            out[row, count:] = self.config.pad_id

    def _mark(self, positions: NDArray[np.int64], rows: NDArray[np.int64], starts: Starts) -> None:
        parts = self._parts(positions)
        sizes = parts[:, 3] - parts[:, 2]
        ends = np.cumsum(sizes)
        begins = ends - sizes
        first = np.searchsorted(parts[:, 0], parts[:, 0])  # for each part, the first of its sample
        columns = begins - begins[first]
        starts[rows[parts[sizes > 0, 0]], columns[sizes > 0]] = True

    def _parts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 [parts, 4] of (place in `positions`, sequence, start, stop): the tokens of each sample, in order."""
        indexes = self.document_index, self.sample_index, self.shuffle_index
        parts = locate(*indexes, self.corpus.sequence_lengths, positions, int(self.config.add_extra_token_to_sequence))
        if len(parts) and parts[0, 0] < 0:
            raise self._damaged()
        return parts

    def _damaged(self) -> IndexedDatasetError:
        return IndexedDatasetError(
            f"{self.corpus.path_prefix}: a sample leaves its sequence or the file; the .idx file or the cached index "
            "is damaged"
        )

    # ---- where tokens come from, and where they go

    def sequence_ids(self, k: int) -> NDArray[np.int64]:
        """The sequences that sample k reads, in order, int64 (what Megatron-Core calls document ids)."""
        return self._parts(self._wrap(np.array([k])))[:, 1].copy()

    def spans(self, k: int) -> list[Span]:
        """The tokens of sample k as spans of documents of the corpus, in order; padding is in none."""
        pointers, documents = self.corpus.sequence_pointers, self.corpus.document_indices
        spans = []
        for _, sequence, start, stop in self._parts(self._wrap(np.array([k]))).tolist():
            if stop > start:
                document = int(np.searchsorted(documents, sequence, side="right")) - 1
                before = int(pointers[sequence] - pointers[documents[document]]) // self.corpus.dtype.itemsize
                spans.append(Span(document, before + start, before + stop))
        return spans

    def positions(self, document: int) -> NDArray[np.int64]:
        """All k, ascending, int64, whose sample holds tokens of this document: two scans of the mappings in C, nothing
        is kept.
        """
        if not 0 <= document < self.corpus.num_documents:
            raise IndexError(
                f"document {document} is outside {self.corpus.path_prefix}, which has {self.corpus.num_documents}"
            )
        begin, end = self.corpus.document_indices[document : document + 2]
        occurrences = np.flatnonzero((self.document_index >= begin) & (self.document_index < end))
        starts = np.ascontiguousarray(self.sample_index[:, 0])
        touched = np.zeros(len(self) + 1, dtype=np.int64)  # +1 where a run of samples begins, -1 where it has ended
        np.add.at(touched, np.searchsorted(starts[1:], occurrences, side="left"), 1)
        np.add.at(touched, np.searchsorted(starts[:-1], occurrences, side="right"), -1)
        candidates = np.flatnonzero((np.cumsum(touched)[:-1] > 0)[self.shuffle_index])
        parts = self._parts(candidates)
        holds = (parts[:, 1] >= begin) & (parts[:, 1] < end) & (parts[:, 3] > parts[:, 2])
        return candidates[np.unique(parts[holds, 0])]

    # ---- identity

    @property
    def plan(self) -> dict[str, Any]:
        return {**self._index_plan(), "pad_id": self.config.pad_id}

    def _index_plan(self) -> dict[str, Any]:
        return {
            "corpus": self.corpus.fingerprint,
            "sequences": [self.first, self.stop],
            "sequence_length": self.sequence_length,
            "add_extra_token_to_sequence": self.config.add_extra_token_to_sequence,
            "random_seed": self.config.random_seed,
            "num_epochs": self.epochs.num_epochs,
            "separate_final_epoch": self.epochs.separate_final_epoch,
            "num_samples": self.epochs.num_samples,
        }

    def __repr__(self) -> str:
        return (
            f"MegatronNanoset({self.corpus.path_prefix!r}, {self.split}: sequences {self.first:,}:{self.stop:,}, "
            f"sequence_length={self.sequence_length}, "
            f"{len(self):,} samples, {self.epochs.num_epochs} epochs, seed={self.config.random_seed})"
        )


class BlendedNanoset(Samples):
    """A blend of MegatronNanosets of one split, equal to Megatron-Core's BlendedDataset.

    Args:
        datasets: the parts.
        weights: their shares, positive; with `size` None numbers of samples, all of which are read once.
        size: samples in the blend, or None.
        config: as of the parts.

    Attributes:
        dataset_index: int16 [len]. dataset_sample_index: int64 [len]. counts: int64 [datasets], samples taken of each.
            weights: normalised if there is a size.

    Raises:
        ValueError: a part without samples, or the blend asks more of a part than it has.
    """

    def __init__(
        self, datasets: Sequence[MegatronNanoset], weights: Sequence[float], size: int | None, config: NanosetConfig
    ) -> None:
        self.datasets, self.size, self.config, self.split = tuple(datasets), size, config, datasets[0].split
        for dataset, weight in zip(self.datasets, weights, strict=True):
            if not weight > 0:
                raise ValueError(
                    f"the {self.split} split of {dataset.corpus.path_prefix} has {len(dataset)} samples and the weight "
                    f"{weight}: it cannot be blended; "
                    "give the split a larger part, or leave the corpus out of it with data_path_per_split"
                )
        self.row_dtype = np.dtype(np.result_type(*(dataset.row_dtype for dataset in self.datasets)))
        self.weights = tuple(weights) if size is None else normalise(weights)
        self._load_index()
        self._check_not_oversampled()

    def _load_index(self) -> None:
        description = {"index": "blend", "weights": [float(weight).hex() for weight in self.weights], "size": self.size}
        arrays = cached(self.config.path_to_cache, description, self._build_index)
        self.dataset_index: NDArray[np.int16] = arrays["dataset_index"]
        self.dataset_sample_index: NDArray[np.int64] = arrays["dataset_sample_index"]
        self.counts: NDArray[np.int64] = arrays["counts"]

    def _build_index(self) -> Arrays:
        blend = blend_everything(self.weights) if self.size is None else blend_by_weight(self.weights, self.size)
        return dict(zip(("dataset_index", "dataset_sample_index", "counts"), blend, strict=True))

    def _check_not_oversampled(self) -> None:
        for dataset, count in zip(self.datasets, self.counts.tolist(), strict=True):
            if count > len(dataset):
                raise ValueError(
                    f"the {self.split} blend takes {count} samples of {dataset.corpus.path_prefix}, which has "
                    f"{len(dataset)}: raise mid_level_dataset_surplus "
                    f"(now {self.config.mid_level_dataset_surplus}), two- or tenfold, so that more are built, or ask "
                    "for fewer samples"
                )

    def __len__(self) -> int:
        return len(self.dataset_index)

    def _fill(self, positions: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        for dataset, samples, chosen in self._by_dataset(positions):
            self.datasets[dataset]._fill(samples, rows[chosen], out)

    def _mark(self, positions: NDArray[np.int64], rows: NDArray[np.int64], starts: Starts) -> None:
        for dataset, samples, chosen in self._by_dataset(positions):
            self.datasets[dataset]._mark(samples, rows[chosen], starts)

    def _by_dataset(self, positions: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """For each dataset that is read: its number, the samples, and which of `positions` they are."""
        dataset_ids, samples = self.dataset_index[positions], self.dataset_sample_index[positions]
        for dataset in np.flatnonzero(np.bincount(dataset_ids)).tolist():
            chosen = np.flatnonzero(dataset_ids == dataset)
            yield dataset, samples[chosen], chosen

    def spans(self, k: int) -> tuple[int, list[Span]]:
        """The dataset that sample k comes from, and the spans of its documents."""
        k = int(self._wrap(np.array([k]))[0])
        dataset = int(self.dataset_index[k])
        return dataset, self.datasets[dataset].spans(int(self.dataset_sample_index[k]))

    def positions(self, dataset: int, document: int) -> NDArray[np.int64]:
        """All k, ascending, int64, whose sample holds tokens of this document of this dataset."""
        samples = self.datasets[dataset].positions(document)
        places = np.flatnonzero(self.dataset_index == dataset)  # the i-th of them reads sample i
        return places[samples[samples < len(places)]]

    @property
    def plan(self) -> dict[str, Any]:
        return {
            "datasets": [dataset.plan for dataset in self.datasets],
            "weights": list(self.weights),
            "size": self.size,
        }

    def __repr__(self) -> str:
        shares = ", ".join(f"{weight / sum(self.weights):.4f}" for weight in self.weights)
        return f"BlendedNanoset({self.split}: {len(self):,} samples of {len(self.datasets)} datasets, shares {shares})"
