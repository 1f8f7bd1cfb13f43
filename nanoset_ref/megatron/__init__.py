"""The Megatron-style pipeline: .bin/.idx corpora, and samples cut from shuffled documents, bit for bit those of
Megatron-Core.
"""

from nanoset_ref.megatron.blending import BlendedNanoset, blend_by_weight, blend_everything
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.dataset import MegatronNanoset
from nanoset_ref.megatron.dialect import MegatronCollator
from nanoset_ref.megatron.from_text import preprocess
from nanoset_ref.megatron.index_cache import IndexCacheWarning
from nanoset_ref.megatron.indexed_dataset import IndexedDatasetError, MMapIndexedDataset
from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder, merge_corpora
from nanoset_ref.megatron.mappings import EpochPlan, build_mappings, plan_epochs
from nanoset_ref.megatron.nanoset_config import NanosetConfig, parse_split

__all__ = [
    "BlendedNanoset",
    "EpochPlan",
    "IndexCacheWarning",
    "IndexedDatasetError",
    "MMapIndexedDataset",
    "MMapIndexedDatasetBuilder",
    "MegatronCollator",
    "MegatronNanoset",
    "NanosetBuilder",
    "NanosetConfig",
    "blend_by_weight",
    "blend_everything",
    "build_mappings",
    "merge_corpora",
    "parse_split",
    "plan_epochs",
    "preprocess",
]
