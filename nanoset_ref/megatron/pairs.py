"""The .bin/.idx pairs of `nanoset_ref.tokens`: the stub of this package can list siblings only."""

from nanoset_ref.tokens.bin_idx import MMapIndexedDataset as MMapIndexedDataset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder as MMapIndexedDatasetBuilder
from nanoset_ref.tokens.bin_idx_writer import merge_corpora as merge_corpora
