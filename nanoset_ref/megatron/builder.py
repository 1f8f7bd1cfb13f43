"""From a config to datasets: cut splits, count samples per corpus, blend.

    one prefix                  sequences round(begin*n) : round(end*n) of it, as many samples as asked
    several, no weights         one epoch of each, in proportion to their lengths: all samples, or as many as asked
    several, weights w          ceil(w*N) samples of each, built with a small surplus; the sum of these in the blend
    a blend for each split      the same per split, every corpus whole

`build` may run on every rank at once: nothing but the index cache is shared, and that takes care of itself.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_megatron_dataset_builder.py (core_v0.16.1).
"""

import functools
import math
from collections.abc import Sequence

from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset
from nanoset_ref.megatron.nanoset_config import SPLITS, Blend, Bounds, NanosetConfig, normalise
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset


class NanosetBuilder:
    """Builds train, valid and test.

    Args:
        config: what to build.
    """

    def __init__(self, config: NanosetConfig) -> None:
        self.config = config
        self._open = functools.cache(
            functools.partial(MMapIndexedDataset, mmap=config.mmap_bin_files)
        )

    def build(
        self, wanted: Sequence[str] = SPLITS
    ) -> list[MegatronNanoset | BlendedNanoset | None]:
        """[train, valid, test]; None for a split that is left out, or not among those `wanted`.

        Raises:
            FileNotFoundError, TokenFileError: a corpus that cannot be read.
            ValueError: a split that cannot give what is asked of it; the message says which and the way out.
        """
        return [self._build(*plan) if plan[0] in wanted else None for plan in self.config.splits]

    def _build(
        self, split: str, blend: Blend | None, bounds: Bounds | None, size: int | None
    ) -> MegatronNanoset | BlendedNanoset | None:
        if blend is None or bounds is None:
            return None
        config, (prefixes, weights) = self.config, blend

        def read(prefix: str, size: int | None) -> MegatronNanoset:
            corpus = self._open(prefix)
            first, stop = (round(bound * len(corpus)) for bound in bounds)
            return MegatronNanoset(corpus, first, stop, size, split, config)

        if len(prefixes) == 1 and (weights is None or config.split is None):
            return read(prefixes[0], size)
        if weights is None or size is None:  # weights without a size do not pass the config
            datasets = [read(prefix, None) for prefix in prefixes]
            lengths = [len(dataset) for dataset in datasets]
            return BlendedNanoset(
                datasets, lengths, None if size is None else min(size, sum(lengths)), config
            )
        shares, surplus = normalise(weights), 1 + config.mid_level_dataset_surplus
        targets = [math.ceil(size * share) for share in shares]
        datasets = [
            read(prefix, math.ceil(target * surplus))
            for prefix, target in zip(prefixes, targets, strict=True)
        ]
        return BlendedNanoset(datasets, shares, sum(targets), config)
