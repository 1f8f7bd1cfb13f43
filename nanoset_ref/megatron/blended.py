"""Blends of corpora, bit for bit those of Megatron-Core's BlendedDataset.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_dataset.py (core_v0.16.1).
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from nanoset_ref.io.index_cache import Arrays, load_or_build
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.megatron.dataset import MegatronNanoset
from nanoset_ref.megatron.index.three_indexes import blend_samples
from nanoset_ref.megatron.megatron_rows import ALGORITHM, MegatronRows, PartSamples
from nanoset_ref.megatron.nanoset_config import (
    NanosetConfig,
    as_shares,
    refuse_too_many,
)
from nanoset_ref.tokens.manifest import TokenFileError


@dataclasses.dataclass(eq=False, repr=False)
class BlendedNanoset(MegatronRows):
    """A blend of MegatronNanosets of one split.

    Args:
        datasets: the parts.
        weights: the parts' shares, positive; if `size` is None, numbers of samples, each read once.
        size: samples in the blend, or None.
        config: the parts' configuration.

    Attributes:
        dataset_index: int16 [len], the dataset at each position.
        dataset_sample_index: int64 [len], the dataset's sample at each position.
        counts: int64 [datasets], samples taken from each.
        shares: the weights, normalized if there is a size.

    Raises:
        ValueError: a part has 0 samples, or fewer than the blend takes. With
            `separate_final_epoch=False` such a part is read again, as GPT-NeoX does.
    """

    datasets: Sequence[MegatronNanoset]
    weights: Sequence[float]
    size: int | None
    config: NanosetConfig

    def __post_init__(self) -> None:
        config = self.config
        datasets = self.datasets
        self.split = datasets[0].split
        self.sequence_length = config.sequence_length
        self.row_length = config.row_length
        dtypes = [dataset.row_dtype for dataset in datasets]
        self.row_dtype = np.result_type(*dtypes)
        self.padded = any(dataset.padded for dataset in datasets)
        self.pad_id = config.pad_id
        refuse_too_many(len(datasets))
        for dataset in datasets:
            if len(dataset) == 0:
                raise TokenFileError(
                    f"the {self.split} split of {dataset.corpus.path_prefix} has 0 samples: give "
                    "the split a larger part, or leave the corpus out of it with "
                    "data_path_per_split"
                )
        self.shares = self.weights if self.size is None else as_shares(self.weights)
        description = {"index": "blend", "algorithm": ALGORITHM}
        description |= {"weights": self.shares, "size": self.size}
        self.dataset_index, self.dataset_sample_index = load_or_build(
            config.path_to_cache,
            description,
            ("dataset_index", "dataset_sample_index"),
            self._build_index,
        )
        self.counts = np.bincount(self.dataset_index, minlength=len(datasets))
        if not config.separate_final_epoch:
            self._wrap_around()
            return
        for dataset, count in zip(datasets, self.counts, strict=True):
            if count > len(dataset):
                raise TokenFileError(
                    f"the {self.split} blend takes {count} samples of "
                    f"{dataset.corpus.path_prefix}, which has {len(dataset)}: raise "
                    f"mid_level_dataset_surplus (now {config.mid_level_dataset_surplus}) two- or "
                    "tenfold, or request fewer"
                )

    def _wrap_around(self) -> None:
        """Read samples that a part lacks as GPT-NeoX does: sample i becomes i % (len - 1)."""
        length_of = np.array([len(dataset) for dataset in self.datasets])
        lengths = length_of[self.dataset_index]
        is_missing = self.dataset_sample_index >= lengths
        if lengths[is_missing].min(initial=2) < 2:
            raise TokenFileError(
                "GPT-NeoX cannot read a corpus of 1 sample twice: leave it out"
            )
        wrapped = self.dataset_sample_index % np.maximum(lengths - 1, 1)
        self.dataset_sample_index = np.where(
            is_missing, wrapped, self.dataset_sample_index
        )

    def _build_index(self) -> Arrays:
        """The dataset and its sample at each position; see `blend_samples`."""
        if self.size is None:
            limits = self.weights
            size = sum(limits)
        else:
            limits = [self.size] * len(self.weights)
            size = self.size
        return blend_samples(np.array(as_shares(self.weights)), np.array(limits), size)

    @property
    def parts(self) -> Sequence[MegatronNanoset]:
        """See `MegatronRows.parts`."""
        return self.datasets

    def samples_by_part(self, positions: Int64Array) -> Iterable[PartSamples]:
        """See `MegatronRows.samples_by_part`."""
        check_not_truncated(self.dataset_index, self.dataset_sample_index)
        sources = self.dataset_index[positions]
        samples = self.dataset_sample_index[positions]
        for source in np.unique(sources).tolist():
            rows = np.flatnonzero(sources == source)
            yield source, rows, samples[rows]

    def _plan_without_probes(self) -> Json:
        """See `Rows._plan_without_probes`: the plans of the parts, and the blend."""
        parts = [part._plan_without_probes() for part in self.datasets]
        order = {
            "kind": "blend",
            "algorithm": ALGORITHM,
            "weights": list(self.shares),
            "size": self.size,
            "parts": [part["order"] for part in parts],
        }
        return {
            "order": order,
            "rows": {"parts": [part["rows"] for part in parts]},
            "files": [file for part in parts for file in part["files"]],
        }

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.4f}" for share in as_shares(self.shares))
        return (
            f"BlendedNanoset({self.split}: {len(self):,} samples of {len(self.datasets)} datasets, "
            f"shares {shares})"
        )
