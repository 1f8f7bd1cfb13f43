"""A blend of datasets, equal to Megatron-Core's BlendedDataset.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_dataset.py (core_v0.16.1).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nanoset_ref.megatron.dataset import MegatronNanoset, PartRows, Positions, Route
from nanoset_ref.megatron.index_cache import Arrays, cached
from nanoset_ref.megatron.mappings import blend_by_weight, blend_everything
from nanoset_ref.megatron.nanoset_config import NanosetConfig, normalise


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
        ValueError: a part without samples, or the blend asks more of a part than it has.
    """

    datasets: Sequence[MegatronNanoset]
    weights: Sequence[float]
    size: int | None
    config: NanosetConfig

    def __post_init__(self) -> None:
        config, self.split = self.config, self.datasets[0].split
        self.sequence_length, self.row_length = config.sequence_length, config.row_length
        self.row_dtype = np.result_type(*(dataset.row_dtype for dataset in self.datasets))
        names = [dataset.corpus.path_prefix for dataset in self.datasets]
        if empty := [name for name, weight in zip(names, self.weights, strict=True) if not weight > 0]:
            raise ValueError(
                f"the {self.split} split of {empty} has 0 samples or no weight: give the split a larger part, or leave "
                "the corpus out of it with data_path_per_split"
            )
        self.shares = list(self.weights) if self.size is None else normalise(self.weights)
        description = {"index": "blend", "weights": self.shares, "size": self.size}
        arrays = cached(config.path_to_cache, description, self._build_index)
        self.dataset_index, self.dataset_sample_index, self.counts = arrays.values()
        lengths = list(map(len, self.datasets))
        if short := [name for name, has, takes in zip(names, lengths, self.counts, strict=True) if takes > has]:
            raise ValueError(
                f"the {self.split} blend takes more samples than there are of {short}: raise mid_level_dataset_surplus "
                f"(now {config.mid_level_dataset_surplus}) two- or tenfold, or ask for fewer samples"
            )

    def _build_index(self) -> Arrays:
        blend = blend_everything(self.shares) if self.size is None else blend_by_weight(self.shares, self.size)
        return dict(zip(("dataset_index", "dataset_sample_index", "counts"), blend, strict=True))

    def routes(self, positions: Positions) -> Iterable[Route]:
        sources, samples = self.dataset_index[positions], self.dataset_sample_index[positions]
        for source in np.unique(sources).tolist():
            places = np.flatnonzero(sources == source)
            yield source, places, samples[places]

    @property
    def plan(self) -> dict[str, Any]:
        return {"datasets": [dataset.plan for dataset in self.datasets], "weights": self.shares, "size": self.size}

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.4f}" for share in normalise(self.shares))
        return f"BlendedNanoset({self.split}: {len(self):,} samples of {len(self.datasets)} datasets, shares {shares})"
