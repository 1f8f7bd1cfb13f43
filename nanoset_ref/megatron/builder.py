"""From a config to datasets: cut splits, count samples per corpus, blend.

    one prefix                  sequences round(begin*n) : round(end*n) of it, as many samples as asked
    several, no weights         one epoch of each, in proportion to their lengths: all samples, or as many as asked
    several, weights w          ceil(w*N) samples of each, built with a small surplus; the sum of these in the blend
    a blend for each split      the same per split, every corpus whole

`build` may run on every rank at once: nothing but the index cache is shared, and that takes care of itself.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_megatron_dataset_builder.py (core_v0.16.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nanoset_ref.megatron.config import SPLITS, Blend, NanosetConfig, normalise
from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset


class NanosetBuilder:
    """Builds train, valid and test.

    Args:
        config: what to build.
    """

    def __init__(self, config: NanosetConfig) -> None:
        self.config = config
        self._corpora: dict[str, MMapIndexedDataset] = {}

    def build(self) -> list[MegatronNanoset | BlendedNanoset | None]:
        """[train, valid, test]; None for a split that is left out.

        Raises:
            FileNotFoundError, IndexedDatasetError: a corpus that cannot be read.
            ValueError: a split that cannot give what is asked of it; the message says which and the way out.
        """
        return [
            self._build_split(*arguments)
            for arguments in zip(
                SPLITS, self.config.blends, self.config.split_bounds, self.config.split_num_samples, strict=True
            )
        ]

    def _build_split(
        self, split: str, blend: Blend | None, bounds: tuple[float, float] | None, size: int | None
    ) -> MegatronNanoset | BlendedNanoset | None:
        if blend is None or bounds is None:
            return None
        if len(blend.prefixes) == 1 and (blend.weights is None or self.config.data_path_per_split is not None):
            return self._dataset(blend.prefixes[0], bounds, size, split)
        if blend.weights is None or size is None:  # weights without a size do not pass the config
            datasets = [self._dataset(prefix, bounds, None, split) for prefix in blend.prefixes]
            lengths = [len(dataset) for dataset in datasets]
            return BlendedNanoset(datasets, lengths, None if size is None else min(size, sum(lengths)), self.config)
        shares = normalise(blend.weights)
        targets = [math.ceil(size * share) for share in shares]
        reserves = [math.ceil(target * (1 + self.config.mid_level_dataset_surplus)) for target in targets]
        datasets = [
            self._dataset(prefix, bounds, reserve, split)
            for prefix, reserve in zip(blend.prefixes, reserves, strict=True)
        ]
        return BlendedNanoset(datasets, shares, sum(targets), self.config)

    def _dataset(self, prefix: str, bounds: Sequence[float], size: int | None, split: str) -> MegatronNanoset:
        if prefix not in self._corpora:
            self._corpora[prefix] = MMapIndexedDataset(prefix, mmap=self.config.mmap_bin_files)
        corpus = self._corpora[prefix]
        first, stop = (round(bound * float(len(corpus))) for bound in bounds)
        return MegatronNanoset(corpus, first, stop, size, split, self.config)
