"""The Megatron-style pipeline: .bin/.idx corpora, and samples cut from shuffled documents, bit for bit those of
Megatron-Core.
"""

from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.collator import MegatronCollator
from nanoset_ref.megatron.config import NanosetConfig
from nanoset_ref.megatron.dataset import BlendedNanoset, MegatronNanoset, Span
from nanoset_ref.megatron.indexed_dataset import IndexedDatasetError, MMapIndexedDataset
from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder, merge_corpora

__all__ = [
    "BlendedNanoset",
    "IndexedDatasetError",
    "MMapIndexedDataset",
    "MMapIndexedDatasetBuilder",
    "MegatronCollator",
    "MegatronNanoset",
    "NanosetBuilder",
    "NanosetConfig",
    "Span",
    "merge_corpora",
]
