"""Samples of a Megatron-style dataset, bit for bit those of Megatron-Core's GPTDataset.

A batch is read by two kernels: one walks the mappings and finds the pieces of each sample, the other copies them out
of .bin. Neither checks bounds: the mappings were built here or have the right checksum, and .idx was checked when it
was opened. Nothing here grows with the corpus but the mappings themselves.

The pseudocode for a query in Megatron-LM's documentation is wrong twice, and this does what its code does: a sample
ends *with* the token at Sa_idx[j + 1], so that S + 1 tokens come out and not S; and where it lies within one document
(i == i_next) it is document[offset : offset_next + 1], not document[offset:] + document[:offset_next].

Source: NVIDIA Megatron-LM, megatron/core/datasets/gpt_dataset.py and blended_dataset.py (core_v0.16.1).
"""

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.index_cache import Arrays, cached
from nanoset_ref.io.kernels import njit
from nanoset_ref.load.documents import Starts
from nanoset_ref.load.gather import copy_pieces
from nanoset_ref.load.rows import Origin, Rows, SourceUse, Span, described, document_spans
from nanoset_ref.megatron.mappings import blend_samples, build_mappings, plan_epochs
from nanoset_ref.megatron.nanoset_config import NanosetConfig, normalise, refuse_too_many
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset, require

Positions = NDArray[np.int64]
Route = tuple[int, Positions, Positions]
BLOCK = 1 << 20  # positions that are scanned at once
ALGORITHM = 1  # version of the mappings and the blend, as `Order.algorithm`
logger = logging.getLogger(__name__)


class PartRows(Rows):
    """What one corpus and a blend of several have in common: rows are put together from pieces of .bin files.

    Attributes:
        dataset_index: int16 [len], the part that each position reads. The i-th position of a part reads its sample i.
        shares: of each part, of any sum.
        config: as of the parts.
    """

    dataset_index: NDArray[np.int16]
    shares: Sequence[float] = (1.0,)
    config: NanosetConfig

    @property
    def parts(self) -> "Sequence[MegatronNanoset]":
        """The datasets of a blend; a single one is its own only part."""
        return getattr(self, "datasets", [self])

    @abstractmethod
    def routes(self, positions: Positions) -> Iterable[Route]:
        """For each part that is read its number, the places in `positions` that read it, and their samples in it."""

    def __len__(self) -> int:
        return len(self.dataset_index)

    @property
    def files(self) -> list[MMapIndexedDataset]:
        return [part.corpus for part in self.parts]

    def pieces(self, positions: Positions) -> Iterator[tuple[MMapIndexedDataset, Positions]]:
        """The corpora that rows are read from, and of each the pieces, int64 [pieces, 4], in order: (place in
        `positions`, begin, end, column). Tokens begin:end of .bin go to the row's columns from `column` on.
        """
        for source, places, samples in self.routes(positions):
            part, corpus = self.parts[source], self.parts[source].corpus
            mappings = part.document_index, part.sample_index, part.shuffle_index
            layout = corpus.sequence_lengths, corpus.sequence_pointers, corpus.dtype.itemsize
            yield (
                corpus,
                _locate(mappings, layout, places, samples, self.sequence_length, self.row_length),
            )

    def _fill(self, positions: Positions, out: NDArray[Any]) -> None:
        if not self.config.drop_last_partial_validation_sequence:
            out[:] = self.config.pad_id
        for corpus, pieces in self.pieces(positions):
            if corpus.mmap:
                copy_pieces(corpus.tokens, pieces, out)
                continue
            for row, begin, end, column in pieces.tolist():
                out[row, column : column + end - begin] = corpus.read(begin, end)

    def _starts(self, positions: Positions) -> Starts:
        """Where sequences begin, which to Megatron's shuffle are documents; every pad is one by itself."""
        starts = np.zeros((len(positions), self.row_length), dtype=np.bool_)
        starts[:, 0] = True
        filled = np.zeros((len(positions), 1), dtype=np.int64)
        for _, pieces in self.pieces(positions):
            rows, begins, ends, columns = pieces.T
            starts[rows, np.where(begins < ends, columns, 0)] = True
            filled[rows, 0] = (
                columns + ends - begins
            )  # the last piece of a row is the last to write
        return starts | (np.arange(self.row_length) >= filled)

    def origin(self, position: int) -> Origin:
        """As `Rows.origin`; samples and epochs are counted in the stream of shuffled documents."""
        ((source, _, samples),) = self.routes(np.array([position]))
        part = self.parts[source]
        sample = int(part.shuffle_index[samples[0]])
        return Origin(source, sample, sample * self.sequence_length // part.tokens_per_epoch)

    def spans(self, position: int) -> list[Span]:
        ((corpus, pieces),) = self.pieces(np.array([position]))
        return [
            span
            for _, begin, end, _ in pieces.tolist()
            for span in document_spans(corpus, begin, end)
        ]

    def positions_of(
        self,
        source: int,
        document: int,
        tokens: tuple[int, int] | None = None,
        until: int | None = None,
    ) -> Positions:
        """As `Rows.positions_of`, in a scan of all positions of the file; nothing is kept."""
        begin, end = self.token_range(source, document, tokens)
        positions = np.flatnonzero(self.dataset_index[:until] == source)
        found = [positions[:0]]
        for block in np.array_split(positions, len(positions) // BLOCK + 1):
            for _, pieces in self.pieces(block):
                holds = np.maximum(pieces[:, 1], begin) < np.minimum(pieces[:, 2], end)
                found.append(block[np.unique(pieces[holds, 0])])
        return np.concatenate(found)

    def usage(self, start: int, stop: int) -> list[SourceUse]:
        """As `Rows.usage`. No sample is read twice, but its documents are, once in each epoch of the index."""
        length, extra, uses = self.sequence_length, self.row_length - self.sequence_length, []
        before, after = (
            np.bincount(self.dataset_index[:k], minlength=len(self.parts)).tolist()
            for k in (start, stop)
        )
        for part, share, first, last in zip(
            self.parts, normalise(self.shares), before, after, strict=True
        ):
            tokens, epochs = part.tokens_per_epoch, part.epochs.num_epochs
            use = SourceUse(
                path=str(part.corpus.path),
                weight=share,
                num_samples=(tokens - extra) // length,
                read=last - first,
                epochs=(last - first) * length / max(tokens, 1),
                distinct=last,
                repetitions=epochs,
                tokens=tokens * epochs,
                tail_tokens=tokens * epochs - extra - len(part) * length,
            )
            uses.append(use)
        return uses

    def plot(self) -> Any:
        """A picture: the share of each part along the positions, and how often each is read (see `Order.plot`)."""
        from nanoset_ref.orders.pictures import draw_sources

        names = [part.corpus.path.stem for part in self.parts]
        extra = self.row_length - self.sequence_length
        sizes = [(part.tokens_per_epoch - extra) // self.sequence_length for part in self.parts]
        promised = np.array(normalise(self.shares))
        title = f"Megatron's {self.parts[0].split} split, seed {self.config.random_seed}"
        every = range(len(self))
        return draw_sources(
            lambda at: self.dataset_index[at], every, names, np.array(sizes), promised, title
        )

    def _repr_html_(self) -> str:
        from nanoset_ref.orders.pictures import html_table

        facts = {
            "split": self.parts[0].split,
            "samples": len(self),
            "sequence length": self.sequence_length,
            "seed": self.config.random_seed,
        }
        shares = normalise(self.shares)
        rows = [
            (
                part.corpus.path_prefix,
                part.tokens_per_epoch,
                len(part),
                part.epochs.num_epochs,
                share,
            )
            for part, share in zip(self.parts, shares, strict=True)
        ]
        return html_table(
            type(self).__name__, facts, ("corpus", "tokens", "samples", "epochs", "share"), rows
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the cached index again, or, without a cache, builds its own."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return type(self), tuple(getattr(self, field.name) for field in fields)


@dataclasses.dataclass(eq=False, repr=False)
class MegatronNanoset(PartRows):
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
        ValueError: a number of samples is asked of a split without tokens (asked for one epoch, it has 0 samples and a
            warning says so; a blend refuses it); an empty corpus; ids that are not integers.
    """

    corpus: MMapIndexedDataset
    first: int
    stop: int
    num_samples: int | None
    split: str
    config: NanosetConfig

    def __post_init__(self) -> None:
        corpus, config = self.corpus, self.config
        holds = f"{corpus.path} holds {corpus.num_tokens} {corpus.dtype.name} values"
        require(
            corpus.num_tokens and corpus.dtype.kind in "iu", f"{holds}; samples need integer ids"
        )
        if not 0 <= self.first <= self.stop <= len(corpus):
            raise ValueError(
                f"{corpus.path_prefix} has {len(corpus)} sequences; got first={self.first}, stop={self.stop}"
            )
        self.sequence_length, self.row_length = config.sequence_length, config.row_length
        self.row_dtype = np.dtype(np.int64 if corpus.dtype.itemsize == 8 else np.int32)
        self.tokens_per_epoch = int(
            corpus.sequence_lengths[self.first : self.stop].sum(dtype=np.int64)
        )
        if not self.tokens_per_epoch:
            sequences = f"sequences {self.first}:{self.stop} of {len(corpus)}, without tokens"
            way_out = "give it a larger part, or leave it out with a 0 in split"
            problem = f"the {self.split} split of {corpus.path_prefix} is {sequences}: {way_out}"
            require(self.num_samples is None, problem)
            logger.warning("%s; it has 0 samples, as upstream's", problem)
        self.epochs = plan_epochs(
            self.tokens_per_epoch,
            self.num_samples,
            self.sequence_length,
            extra_token=config.add_extra_token_to_sequence,
            drop_last_partial=config.drop_last_partial_validation_sequence or self.split != "valid",
            separate_final_epoch=config.separate_final_epoch,
        )
        stream = self.tokens_per_epoch * self.epochs.num_epochs
        extra = self.row_length - self.sequence_length
        self.padded = self.epochs.num_samples * self.sequence_length + extra > stream
        names = "document_index", "sample_index", "shuffle_index"
        depends_on = {
            "index": "mappings",
            "idx": corpus.idx_checksum,
            **self._order,
            "pad_id": config.pad_id,
        }
        arrays = cached(config.path_to_cache, depends_on, names, self._build_index)
        self.document_index, self.sample_index, self.shuffle_index = arrays
        self.dataset_index = np.broadcast_to(np.int16(0), self.epochs.num_samples)

    def _build_index(self) -> Arrays:
        split = self.corpus.sequence_lengths, self.first, self.stop, self.epochs
        seed, extra = self.config.random_seed, self.config.add_extra_token_to_sequence
        return [*build_mappings(*split, self.sequence_length, seed, extra_token=extra).values()]

    def routes(self, positions: Positions) -> Iterable[Route]:
        return [(0, np.arange(len(positions)), positions)]

    @property
    def _order(self) -> dict[str, Any]:
        """What the mappings are a function of, beside the .idx."""
        fields = "sequence_length", "add_extra_token_to_sequence", "random_seed"
        return {
            "sequences": [self.first, self.stop],
            **{name: getattr(self.config, name) for name in fields},
            **dataclasses.asdict(self.epochs),
        }

    def _describe(self) -> dict[str, Any]:
        corpus = self.corpus
        return {
            "order": {"kind": "megatron", "algorithm": ALGORITHM, **self._order},
            "rows": {"row_length": self.row_length, "pad_id": self.config.pad_id},
            "files": [
                described(corpus) | {"idx": corpus.idx_checksum, "pieces": corpus.fingerprint}
            ],
        }

    def __repr__(self) -> str:
        what = f"{self.corpus.path_prefix!r}, {self.split}: sequences {self.first:,}:{self.stop:,}"
        size = f"sequence_length={self.sequence_length}, {len(self):,} samples, {self.epochs.num_epochs} epochs"
        return f"MegatronNanoset({what}, {size}, seed={self.config.random_seed})"


@dataclasses.dataclass(eq=False, repr=False)
class BlendedNanoset(PartRows):
    """A blend of MegatronNanosets of one split.

    Args:
        datasets: the parts.
        weights: their shares, positive; with `size` None numbers of samples, all of which are read once.
        size: samples in the blend, or None.
        config: as of the parts.

    Attributes:
        dataset_index: int16 [len]. dataset_sample_index: int64 [len]. counts: int64 [datasets], samples taken of each.
            shares: the weights, normalised if there is a size.

    Raises:
        ValueError: a part without samples, or the blend takes more of a part than it has.
    """

    datasets: Sequence[MegatronNanoset]
    weights: Sequence[float]
    size: int | None
    config: NanosetConfig

    def __post_init__(self) -> None:
        config, self.split = self.config, self.datasets[0].split
        self.sequence_length, self.row_length = config.sequence_length, config.row_length
        refuse_too_many(len(self.datasets))
        self.row_dtype = np.result_type(*(dataset.row_dtype for dataset in self.datasets))
        self.padded = any(dataset.padded for dataset in self.datasets)
        for dataset in self.datasets:
            require(
                len(dataset),
                f"the {self.split} split of {dataset.corpus.path_prefix} has 0 samples: give the split a larger part, "
                "or leave the corpus out of it with data_path_per_split",
            )
        self.shares = self.weights if self.size is None else normalise(self.weights)
        description = {"index": "blend", "weights": self.shares, "size": self.size}
        names = "dataset_index", "dataset_sample_index"
        arrays = cached(config.path_to_cache, description, names, self._build_index)
        self.dataset_index, self.dataset_sample_index = arrays
        self.counts = np.bincount(self.dataset_index, minlength=len(self.datasets))
        for dataset, takes in zip(self.datasets, self.counts, strict=True):
            require(
                takes <= len(dataset),
                f"the {self.split} blend takes more samples than there are of {dataset.corpus.path_prefix}: raise "
                f"mid_level_dataset_surplus (now {config.mid_level_dataset_surplus}) two- or tenfold, or ask for fewer",
            )

    def _build_index(self) -> Arrays:
        limits = self.weights if self.size is None else [self.size] * len(self.weights)
        size = sum(limits) if self.size is None else self.size
        return blend_samples(np.array(normalise(self.weights)), np.array(limits), size)

    def routes(self, positions: Positions) -> Iterable[Route]:
        sources, samples = self.dataset_index[positions], self.dataset_sample_index[positions]
        for source in np.unique(sources).tolist():
            places = np.flatnonzero(sources == source)
            yield source, places, samples[places]

    def _describe(self) -> dict[str, Any]:
        parts = [part._describe() for part in self.datasets]
        blended = {
            "kind": "blend",
            "algorithm": ALGORITHM,
            "weights": list(self.shares),
            "size": self.size,
        }
        return {
            "order": {**blended, "parts": [part["order"] for part in parts]},
            "rows": {"parts": [part["rows"] for part in parts]},
            "files": [file for part in parts for file in part["files"]],
        }

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.4f}" for share in normalise(self.shares))
        return f"BlendedNanoset({self.split}: {len(self):,} samples of {len(self.datasets)} datasets, shares {shares})"


@njit(cache=True, nogil=True)
def _locate(mappings, layout, places, samples, sequence_length, row_length):
    """The pieces of `samples`, int64 [pieces, 4], as `PartRows.pieces` has them."""
    document_index, sample_index, shuffle_index = mappings
    lengths, pointers, itemsize = layout
    count = 0
    for k in samples:
        j = np.int64(shuffle_index[k])
        count += sample_index[j + 1, 0] - sample_index[j, 0] + 1
    pieces = np.empty((count, 4), dtype=np.int64)
    piece = 0
    for n in range(len(samples)):
        j = np.int64(shuffle_index[samples[n]])
        first, last = sample_index[j], sample_index[j + 1]
        column = 0
        for i in range(first[0], last[0] + 1):
            sequence = document_index[i]
            start = first[1] if i == first[0] else 0
            stop = last[1] + row_length - sequence_length if i == last[0] else lengths[sequence]
            begin = pointers[sequence] // itemsize
            pieces[piece, 0], pieces[piece, 3] = places[n], column
            pieces[piece, 1], pieces[piece, 2] = begin + start, begin + stop
            column += stop - start
            piece += 1
    return pieces
