"""The .bin/.idx pairs of `nanoset_ref.tokens`, here because the stub can list only siblings."""

from nanoset_ref.tokens.bin_idx import MMapIndexedDataset as MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import (
    MMapIndexedDatasetBuilder as MMapIndexedDatasetBuilder,
)
from nanoset_ref.tokens.bin_idx_writer import merge_corpora as merge_corpora
