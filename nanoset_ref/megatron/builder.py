"""Build datasets from a config: cut splits, count samples per corpus, blend.

    one prefix              sequences round(start*n) : round(stop*n), as many samples as requested
    several, no weights     one epoch of each, in proportion to their lengths: all, or the number
                            requested
    several, weights w      ceil(w*N) samples of each, built with a small reserve; the blend has the
                            sum of these counts
    a blend for each split  the same per split, and every corpus is read whole

Without `separate_final_epoch` a weighted blend is that of GPT-NeoX (ea7aefd8, May 2026):
ceil(w * N * 1.005) samples of each, and the blend has the sum of all lengths, less one for each.

All ranks may call `build` at once: they share only the index cache, which has a lock.

Source: NVIDIA Megatron-LM, megatron/core/datasets/blended_megatron_dataset_builder.py
(core_v0.16.1); EleutherAI GPT-NeoX, megatron/data/data_utils.py (ea7aefd8).
"""

import functools
import math
from collections.abc import Sequence

from nanoset_ref.megatron.blended import BlendedNanoset
from nanoset_ref.megatron.dataset import MegatronNanoset
from nanoset_ref.megatron.nanoset_config import (
    SPLITS,
    Blend,
    Bounds,
    NanosetConfig,
    blend_sizes,
)
from nanoset_ref.tokens.bin_idx import MMapIndexedDataset


class NanosetBuilder:
    """Builds the datasets of train, valid and test.

    Args:
        config: the datasets' configuration.
        index_only: see `MMapIndexedDataset`.
    """

    def __init__(self, config: NanosetConfig, *, index_only: bool = False) -> None:
        self.config = config
        self._open = functools.cache(
            functools.partial(MMapIndexedDataset, index_only=index_only)
        )

    def build(
        self, wanted: Sequence[str] = SPLITS
    ) -> list[MegatronNanoset | BlendedNanoset | None]:
        """Build [train, valid, test]; None for a split that is unused or not in `wanted`.

        Raises:
            FileNotFoundError, TokenFileError: a corpus cannot be read.
            ValueError: a split has fewer samples than requested; the message names the split and
                the way out.
        """
        datasets: list[MegatronNanoset | BlendedNanoset | None] = []
        for split, blend, bounds, size in self.config.splits:
            if blend is None or bounds is None or split not in wanted:
                datasets.append(None)
            else:
                datasets.append(self._build(split, blend, bounds, size))
        return datasets

    def _build(
        self, split: str, blend: Blend, bounds: Bounds, size: int | None
    ) -> MegatronNanoset | BlendedNanoset:
        """Build one split: `size` samples of a blend, from `bounds` of each corpus."""
        config = self.config
        prefixes, weights = blend

        def dataset_of(prefix: str, num_samples: int | None) -> MegatronNanoset:
            corpus = self._open(prefix)
            first, stop = (round(bound * len(corpus)) for bound in bounds)
            return MegatronNanoset(corpus, first, stop, num_samples, split, config)

        if len(prefixes) == 1 and (weights is None or config.split is None):
            return dataset_of(prefixes[0], size)
        if weights is None or size is None:  # the config refuses weights without a size
            datasets = [dataset_of(prefix, None) for prefix in prefixes]
            lengths = [len(dataset) for dataset in datasets]
            if size is not None:
                size = min(size, sum(lengths))
            return BlendedNanoset(datasets, lengths, size, config)
        shares, sizes = blend_sizes(weights, size, config)
        datasets = list(map(dataset_of, prefixes, sizes))
        if config.separate_final_epoch:
            total = sum(math.ceil(size * share) for share in shares)
        else:
            total = sum(len(dataset) - 1 for dataset in datasets)
        return BlendedNanoset(datasets, shares, total, config)
