"""Megatron's names for the .bin/.idx pair; its reader and writer are in `nanoset_ref.tokens`."""

from nanoset_ref.tokens.bin_idx import MMapIndexedDataset as MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder as MMapIndexedDatasetBuilder
from nanoset_ref.tokens.bin_idx_writer import merge_corpora as merge_corpora
