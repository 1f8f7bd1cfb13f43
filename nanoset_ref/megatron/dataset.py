"""Samples of one corpus, bit for bit those of Megatron-Core's GPTDataset.

Source: NVIDIA Megatron-LM, megatron/core/datasets/gpt_dataset.py (core_v0.16.1).
"""

import dataclasses
import logging
from collections.abc import Iterable, Sequence

import numpy as np

from nanoset_ref.io.index_cache import Arrays, load_or_build
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.megatron.index.three_indexes import build_mappings, plan_epochs
from nanoset_ref.megatron.megatron_rows import ALGORITHM, MegatronRows, PartSamples
from nanoset_ref.megatron.nanoset_config import NanosetConfig
from nanoset_ref.orders.plans import describe_file
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset
from nanoset_ref.tokens.interface import count_samples
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.statistics import tail_tokens

logger = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, repr=False)
class MegatronNanoset(MegatronRows):
    """Samples of one split of one corpus, equal to Megatron-Core's GPTDataset.

    Args:
        corpus: the .bin/.idx pair.
        first, stop: the sequences of the corpus that belong to the split.
        num_samples: samples to draw, in as many epochs as needed; None: one epoch. `len` may be
            larger, because all tokens of the last epoch are cut.
        split: "train", "valid" or "test".
        config: seed, sequence length, flags, cache folder.

    Attributes:
        document_index: see `megatron.index.three_indexes`.
        sample_index: see `megatron.index.three_indexes`.
        shuffle_index: see `megatron.index.three_indexes`.
        epochs: the EpochPlan.
        tokens_per_epoch: T.
        samples_per_epoch: whole samples in T tokens.
        tail_tokens: tokens after the last sample; negative if the last sample is padded.

    Raises:
        ValueError: the corpus is empty, or its ids are not integers. Or samples are requested of a
            split without tokens; if one epoch is requested, it has 0 samples, with a warning, and a
            blend refuses it.
    """

    corpus: MMapIndexedDataset
    first: int
    stop: int
    num_samples: int | None
    split: str
    config: NanosetConfig

    def __post_init__(self) -> None:
        corpus = self.corpus
        config = self.config
        if corpus.num_tokens == 0:
            raise TokenFileError(f"{corpus.path} holds no tokens: leave it out")
        corpus.require_ids()
        if not 0 <= self.first <= self.stop <= len(corpus):
            raise ValueError(
                f"{corpus.path_prefix} has {len(corpus)} sequences; "
                f"got first={self.first}, stop={self.stop}"
            )
        self.sequence_length = config.sequence_length
        self.row_length = config.row_length
        self.row_dtype = np.dtype(np.int64 if corpus.dtype.itemsize == 8 else np.int32)
        self._plan_epochs()
        self.document_index, self.sample_index, self.shuffle_index = load_or_build(
            config.path_to_cache,
            {
                "index": "mappings",
                "algorithm": ALGORITHM,
                "idx": corpus.idx_checksum,
                **self._index_facts,
            },
            ("document_index", "sample_index", "shuffle_index"),
            self._build_index,
        )
        self.dataset_index = np.broadcast_to(np.int16(0), self.epochs.num_samples)

    def _plan_epochs(self) -> None:
        """Count tokens, epochs and samples."""
        lengths = self.corpus.sequence_lengths[self.first : self.stop]
        self.tokens_per_epoch = int(lengths.sum(dtype=np.int64))
        if self.tokens_per_epoch == 0:
            problem = (
                f"the {self.split} split of {self.corpus.path_prefix} is sequences "
                f"{self.first}:{self.stop} of {len(self.corpus)}, without tokens: give it a larger "
                "part, or leave it out with a 0 in split"
            )
            if self.num_samples is not None:
                raise TokenFileError(problem)
            logger.warning("%s; it has 0 samples, as in Megatron-LM", problem)
        config = self.config
        drops_partial = True
        if self.split == "valid":
            drops_partial = config.drop_last_partial_validation_sequence
        self.epochs = plan_epochs(
            self.tokens_per_epoch,
            self.num_samples,
            self.sequence_length,
            extra_token=config.add_extra_token_to_sequence,
            drop_last_partial=drops_partial,
            separate_final_epoch=config.separate_final_epoch,
        )
        self.samples_per_epoch = count_samples(
            self.tokens_per_epoch, self.row_length, self.sequence_length
        )
        stream = self.tokens_per_epoch * self.epochs.num_epochs
        self.tail_tokens = tail_tokens(
            stream, self.epochs.num_samples, self.row_length, self.sequence_length
        )
        self.padded = self.tail_tokens < 0
        self.pad_id = config.pad_id

    def _build_index(self) -> Arrays:
        """The document, sample and shuffle index; see `build_mappings`."""
        indexes = build_mappings(
            self.corpus.sequence_lengths,
            self.first,
            self.stop,
            self.epochs,
            self.sequence_length,
            self.config.random_seed,
            extra_token=self.config.add_extra_token_to_sequence,
        )
        return list(indexes.values())

    @property
    def parts(self) -> "Sequence[MegatronNanoset]":
        """See `MegatronRows.parts`: this dataset alone."""
        return [self]

    def samples_by_part(self, positions: Int64Array) -> Iterable[PartSamples]:
        """See `MegatronRows.samples_by_part`."""
        return [(0, np.arange(len(positions)), positions)]

    @property
    def _index_facts(self) -> Json:
        """Everything that determines the indexes, except the .idx."""
        config = self.config
        return {
            "sequences": [self.first, self.stop],
            "sequence_length": config.sequence_length,
            "add_extra_token_to_sequence": config.add_extra_token_to_sequence,
            "random_seed": config.random_seed,
            **dataclasses.asdict(self.epochs),
        }

    def _plan_without_probes(self) -> Json:
        """See `Rows._plan_without_probes`."""
        file = describe_file(self.corpus) | {"idx": self.corpus.idx_checksum}
        return {
            "order": {"kind": "megatron", "algorithm": ALGORITHM, **self._index_facts},
            "rows": {"row_length": self.row_length, "pad_id": self.config.pad_id},
            "files": [file],
        }

    def __repr__(self) -> str:
        return (
            f"MegatronNanoset({self.corpus.path_prefix!r}, {self.split}: "
            f"sequences {self.first:,}:{self.stop:,}, sequence_length={self.sequence_length}, "
            f"{len(self):,} samples, {self.epochs.num_epochs} epochs, "
            f"seed={self.config.random_seed})"
        )
