"""From a config to datasets: cut splits, count samples per corpus, blend.

    one prefix                  sequences round(begin*n) : round(end*n) of it, as many samples as asked
    several, no weights         one epoch of each, in proportion to their lengths: all samples, or as many as asked
    several, weights w          ceil(w*N) samples of each, built with a small surplus; the sum of these in the blend
    a blend for each split      the same per split, every corpus whole

`build` may run on every rank at once: nothing but the index cache is shared, and that takes care of itself.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_megatron_dataset_builder.py (core_v0.16.1).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from nanoset_ref.megatron.blending import BlendedNanoset
from nanoset_ref.megatron.dataset import MegatronNanoset
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.megatron.nanoset_config import SPLITS, Blend, Bounds, NanosetConfig, normalise


class NanosetBuilder:
    """Builds train, valid and test.

    Args:
        config: what to build.
    """

    def __init__(self, config: NanosetConfig) -> None:
        self.config = config
        self._open = functools.cache(functools.partial(MMapIndexedDataset, mmap=config.mmap_bin_files))

    def build(self) -> list[MegatronNanoset | BlendedNanoset | None]:
        """[train, valid, test]; None for a split that is left out.

        Raises:
            FileNotFoundError, IndexedDatasetError: a corpus that cannot be read.
            ValueError: a split that cannot give what is asked of it; the message says which and the way out.
        """
        config = self.config
        splits = zip(SPLITS, config.blends, config.split_bounds, config.split_num_samples, strict=True)
        return [
            self._build(name, blend, bounds, size) if blend and bounds else None for name, blend, bounds, size in splits
        ]

    def _build(self, split: str, blend: Blend, bounds: Bounds, size: int | None) -> MegatronNanoset | BlendedNanoset:
        def read(sizes: Sequence[int | None]) -> list[MegatronNanoset]:
            corpora = [self._open(prefix) for prefix in blend.prefixes]
            cuts = [[round(bound * float(len(corpus))) for bound in bounds] for corpus in corpora]
            parts = zip(corpora, cuts, sizes, strict=True)
            return [MegatronNanoset(it, first, stop, size, split, self.config) for it, (first, stop), size in parts]

        number = len(blend.prefixes)
        if number == 1 and (blend.weights is None or self.config.data_path_per_split is not None):
            return read([size])[0]
        if blend.weights is None or size is None:  # weights without a size do not pass the config
            datasets = read([None] * number)
            lengths = [len(dataset) for dataset in datasets]
            return BlendedNanoset(datasets, lengths, None if size is None else min(size, sum(lengths)), self.config)
        shares = normalise(blend.weights)
        targets = [math.ceil(size * share) for share in shares]
        surplus = 1 + self.config.mid_level_dataset_surplus
        return BlendedNanoset(read([math.ceil(it * surplus) for it in targets]), shares, sum(targets), self.config)
