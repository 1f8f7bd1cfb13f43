"""The Megatron-style pipeline: .bin/.idx corpora, and samples cut from shuffled documents, bit for bit those of
Megatron-Core.
"""

from nanoset_ref.megatron.blending import BlendedNanoset, blend_by_weight, blend_everything
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.dataset import MegatronNanoset
from nanoset_ref.megatron.dialect import MegatronCollator
from nanoset_ref.megatron.indexed_dataset import IndexedDatasetError, MMapIndexedDataset
from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder, merge_corpora
from nanoset_ref.megatron.nanoset_config import NanosetConfig

__all__ = [
    "BlendedNanoset",
    "IndexedDatasetError",
    "MMapIndexedDataset",
    "MMapIndexedDatasetBuilder",
    "MegatronCollator",
    "MegatronNanoset",
    "NanosetBuilder",
    "NanosetConfig",
    "blend_by_weight",
    "blend_everything",
    "merge_corpora",
]
