"""Datasets that read and preprocess during training: map, compressed, iterable, tokenized.

text_adapters          where elements come from, and how each is preprocessed
map_style              datasets with a length and an index
compressed_dictionary  elements in a file, each compressed
file_map               a memory-mapped file, which a worker maps again
resumable              ranks and workers share elements; the state that resumes an epoch
iterable               a dataset of elements
row_stream             text to packed rows of tokens, from any place in the text
token_stream           the rows of one rank
stream_loader          batches of these rows
datamodule             a Lightning data module
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
