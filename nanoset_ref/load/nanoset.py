"""Nanoset: samples of sequence_length + 1 token ids, from memory-mapped files, in a global order.

A Nanoset holds its files and an order. Reading a sample means computing where it lies and copying
it once (`gather`); a batch is read by one call into a single array. Only the order may need memory
that grows with the corpus.
"""

import logging
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.memory import gc_paused
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.io.types import Array, Float64Array, Int64Array, Json
from nanoset_ref.load.gather import choose_gatherer
from nanoset_ref.load.rows import (
    Origin,
    Rows,
    SourceUse,
    Span,
    Starts,
)
from nanoset_ref.orders import Order, Weights, build_order, recipe_of
from nanoset_ref.orders.base import NO_POSITIONS
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.opening import open_all

Files = PathLike | Tokens | Sequence[PathLike | Tokens] | Mapping[str, float]

logger = logging.getLogger(__name__)


class Nanoset(Rows):
    """Samples of token files, in the order of a run.

    Args:
        dataset_paths: the token files (or one path): .npy, .bin/.idx or .ds (see `open_tokens`),
            their URLs in a bucket (see `nanoset_ref.io.buckets`), or open `Tokens`; or
            {path: weight}, as in a YAML file.
        dataset_weights: the share of each file, on any positive scale; None: in proportion to their
            lengths, so that an epoch reads every sample once.
        sequence_length: S, in tokens. A sample is S + 1 ids: inputs and, shifted by one, labels.
        train_split_num_samples: N = len(self), in samples: training steps x global batch size.
            Beyond an epoch the data repeat. None: one epoch, or the length of an `Order`.
        random_seed: the order's seed; an `Order` has its own.
        token_dtype: the dtype of files without a manifest (default uint16).
        order: "nanotron", bit for bit the order of Nanotron's Nanoset of 2024: with weights, it may
            never read a source through; "stateless", which stores nothing, and reads each source
            through before it repeats a sample; "identity"; the path of a .npy file of instance
            numbers; or an `Order`.
        disjoint: cut every file into rows of S + 1 tokens that share none, as OLMo and Pythia do.
            A file shorter than a row then has no samples.

    A file of T tokens has (T - 1) // S samples. Sample j is tokens[j*S : j*S + S + 1], so neighbors
    share one token. (A file whose manifest has windows="disjoint" or "padded" was cut into rows of
    S + 1, and these are its samples.)

    With `logging.basicConfig(level=logging.INFO)` every new Nanoset prints its `summary`.

    For the example in Nanotron's documentation see `NanotronOrder`.

    Attributes:
        order: the `Order`, position -> (source, sample).
        dataset_lengths: the number of samples of each source, a list. Every file is a source.
        strides: int64 [files], tokens from the start of one sample to the next.

    Raises:
        TokenFileError: a file has no token ids, or not enough for one sample.
        ValueError: weights that do not match the files or cannot be normalized; a length or count
            out of range; an order over other files, another number of samples or with other
            weights.

    Source: Nanotron's Nanosets,
    https://github.com/huggingface/nanotron/blob/2411b022/docs/nanoset.md
    """

    def __init__(
        self,
        dataset_paths: Files,
        dataset_weights: Weights | None,
        sequence_length: int,
        train_split_num_samples: int | None = None,
        random_seed: int = 1234,
        *,
        token_dtype: DTypeLike | None = None,
        order: str | Order = "nanotron",
        disjoint: bool = False,
    ) -> None:
        self.sequence_length = whole_number(
            sequence_length, "sequence_length", 1, bits=31
        )
        if isinstance(dataset_paths, Mapping):
            # only a mapping needs it
            from nanoset_ref.load.weighted_paths import separate_weights

            dataset_paths, dataset_weights = separate_weights(
                dataset_paths, dataset_weights
            )
        with gc_paused():
            self._files = open_all(as_list(dataset_paths, Tokens), token_dtype)
        for file in self._files:
            file.require_ids()
        self.row_length = self.sequence_length + 1
        self.padded |= any(file.windows == "padded" for file in self._files)
        self.dataset_lengths, strides = self._lengths_and_strides(disjoint)
        self.strides = np.array(strides, dtype=np.int64)
        self.order = self._resolve_order(
            order, dataset_weights, train_split_num_samples, random_seed
        )
        self.train_split_num_samples = len(self.order)
        self.share_period = None
        if self.order.keeps_shares:
            self.share_period = self.order.samples_per_epoch
        self._gather = choose_gatherer(self._files)
        self.block_factor = self._gather.block_factor
        # not without INFO: some orders count by looking up all positions
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s\n%s", self, self.summary())

    def _resolve_order(
        self, order: str | Order, weights: Weights | None, count: int | None, seed: int
    ) -> Order:
        """Build an order by its name, or check that an order belongs to these files."""
        if isinstance(order, str):
            if count is None:
                count = sum(self.dataset_lengths)
            count = whole_number(count, "train_split_num_samples", 0, bits=63)
            return build_order(order, self.dataset_lengths, weights, count, seed)
        # only such an order needs it
        from nanoset_ref.orders.order_check import check_order

        check_order(order, self.dataset_lengths, weights, count)
        return order

    @classmethod
    def from_config(
        cls,
        dataset_path: Files,
        sequence_length: int,
        train_split_num_samples: int | None,
        random_seed: int = 1234,
        **options: Any,
    ) -> Self:
        """Build from a `dataset_path` of the YAML: one path, a list of paths, or {path: weight}.

        For the other arguments see the class.
        """
        return cls(
            dataset_path,
            None,
            sequence_length,
            train_split_num_samples,
            random_seed,
            **options,
        )

    @property
    def files(self) -> list[Tokens]:
        """See `Rows.files`."""
        return self._files

    @property
    def random_seed(self) -> int:
        """The order's seed."""
        return self.order.random_seed

    @property
    def dataset_paths(self) -> list[str]:
        """The paths of the files, in their order."""
        return [str(file.path) for file in self.files]

    def __len__(self) -> int:
        return self.train_split_num_samples

    def _lengths_and_strides(self, disjoint: bool) -> tuple[list[int], list[int]]:
        """The number of samples of each file, and the tokens from one sample to the next."""
        lengths = [
            file.num_samples(self.sequence_length, disjoint) for file in self.files
        ]
        strides = [file.stride(self.sequence_length, disjoint) for file in self.files]
        return lengths, strides

    # ---- reading

    def fill(self, positions: Int64Array, out: Array) -> None:
        """See `Rows.fill`."""
        sources, samples = self.order.lookup(positions)
        self._gather(sources, samples * self.strides[sources], out)

    def _starts(self, positions: Int64Array) -> Starts:
        """See `Rows._starts`: the boundaries that the files record."""
        # only document masks and provenance need it
        from nanoset_ref.load.document_masks import starts_in_files

        sources, samples = self.order.lookup(positions)
        first_tokens = samples * self.strides[sources]
        return starts_in_files(self.files, sources, first_tokens, self.row_length)

    # ---- where tokens come from, and where they go

    def origin(self, position: int) -> Origin:
        """See `Rows.origin`."""
        source, sample = self.order[position]
        return Origin(source, sample, self.order.epoch_of(operator.index(position)))

    def spans(self, position: int) -> list[Span]:
        """See `Rows.spans`."""
        # only document masks and provenance need it
        from nanoset_ref.load.document_spans import document_spans

        source, sample = self.order[position]
        start = int(sample * self.strides[source])
        return document_spans(self.files[source], start, start + self.row_length)

    def positions_of(
        self,
        source: int,
        document: int,
        tokens: tuple[int, int] | None = None,
        until: int | None = None,
    ) -> Int64Array:
        """See `Rows.positions_of`. Finds the samples with the tokens, then their positions."""
        start, stop = self.token_range(source, document, tokens)
        positions = [NO_POSITIONS]
        if start < stop:
            for sample in self._samples_holding(source, start, stop):
                positions.append(self.order.positions(source, sample, until))
        return np.sort(np.concatenate(positions))

    def _samples_holding(self, source: int, start: int, stop: int) -> Sequence[int]:
        """The samples that hold one of the tokens [start, stop) of a file, where start < stop."""
        # only provenance needs it
        from nanoset_ref.load.document_spans import samples_holding

        bounds = samples_holding(
            start,
            stop,
            self.dataset_lengths[source],
            stride=self.strides[source],
            row_length=self.row_length,
        )
        return range(*bounds)

    def usage(self, start: int, stop: int) -> list[SourceUse]:
        """See `Rows.usage`."""
        # only provenance needs it
        from nanoset_ref.tokens.statistics import tail_tokens

        reads = self.order.counts(stop) - self.order.counts(start)
        coverage = self.order.coverage(stop)
        uses = []
        for source, file in enumerate(self.files):
            samples = self.dataset_lengths[source]
            read = int(reads[source])
            distinct, most_reads = coverage[source]
            uses.append(
                SourceUse(
                    path=str(file.path),
                    weight=float(self.dataset_weights[source]),
                    num_samples=samples,
                    read=read,
                    epochs=read / max(samples, 1),
                    distinct=distinct,
                    most_reads=most_reads,
                    tokens=file.num_tokens,
                    tail_tokens=tail_tokens(
                        file.num_tokens,
                        samples,
                        self.row_length,
                        int(self.strides[source]),
                    ),
                )
            )
        return uses

    # ---- the index, for inspection

    @property
    def dataset_weights(self) -> Float64Array:
        """float64 [number of files], normalized to the sum 1."""
        return self.order.dataset_weights

    @property
    def dataset_index(self) -> Int64Array:
        """int64 [len]: the source of each position. Computed at every access."""
        return self.order[:][0]

    @property
    def dataset_sample_index(self) -> Int64Array:
        """int64 [len]: the sample within that source. Computed at every access."""
        return self.order[:][1]

    def summary(self) -> str:
        """Total samples, total tokens, and the samples of each file."""
        lines = [
            f"> Total number of samples: {len(self)}",
            f"> Total number of tokens: {len(self) * self.sequence_length}",
        ]
        counts = self.order.counts().tolist()
        for name, count in zip(self._file_names(), counts, strict=True):
            share = round(count / max(len(self), 1), 2)
            lines.append(
                f"> Total number of samples from the {name} dataset: {count} ({share})"
            )
        return "\n".join(lines)

    def _file_names(self) -> list[str]:
        """The name of each file, or the whole path if several files share the name."""
        names = [file.path.name for file in self.files]
        count = Counter(names)
        unique = []
        for name, path in zip(names, self.dataset_paths, strict=True):
            unique.append(name if count[name] == 1 else path)
        return unique

    def plot(self) -> Any:
        """A picture of the order with the names of the files; see `Order.plot`."""
        return self.order.plot(self._file_names())

    def _repr_html_(self) -> str:
        # only notebooks need it
        from nanoset_ref.load.notebook_tables import nanoset_table

        return nanoset_table(self)

    def print_nanoset_info(self) -> None:
        """Print the `summary`, as Nanotron's Nanoset does when it is built."""
        print(self.summary())  # noqa: T201

    # ---- identity

    def _plan_without_probes(self) -> Json:
        """See `Rows._plan_without_probes`."""
        from nanoset_ref.orders.plans import describe_file  # only plans need it

        files = []
        for file, stride in zip(self.files, self.strides, strict=True):
            windows = "disjoint" if stride > self.sequence_length else "overlapping"
            files.append(describe_file(file) | {"windows": windows})
        return {
            "order": self.order.identity,
            "rows": {
                "sequence_length": self.sequence_length,
                "row_length": self.row_length,
            },
            "files": files,
            "recipe": recipe_of(self.order),
        }

    @property
    def _first_position(self) -> int:
        """See `Rows._first_position`: above 0 if the order continues another one."""
        return self.order.first_position

    def _fingerprint_positions(self) -> list[int]:
        """See `Rows._fingerprint_positions`: those of an endless order, if it is one."""
        return self.order.fingerprint_positions or super()._fingerprint_positions()

    def __repr__(self) -> str:
        names = ", ".join(file.path.name for file in self.files[:3])
        if len(self.files) > 3:
            names += ", ..."
        epochs = len(self) / self.order.samples_per_epoch
        return (
            f"{type(self).__name__}({len(self.files)} files: {names}; "
            f"sequence_length={self.sequence_length}, {len(self):,} samples, {epochs:.2f} epochs, "
            f"order={self.order.name!r}, seed={self.random_seed})"
        )
