"""Datasets that read and preprocess during training: map, compressed, iterable, tokenized.

adapters            where elements come from, and how each is preprocessed
mapped, compressed  datasets with a length and an index; elements kept compressed
resumable           ranks and workers share elements; the state that resumes an epoch
iterable            a dataset of elements
packed, stream      text to packed rows of tokens, from any place in the text, and its loader
datamodule          a Lightning data module
"""

from nanoset_ref.streaming.adapters import (
    Adapter,
    CSVAdapter,
    HuggingFaceAdapter,
    JSONLinesAdapter,
    LinesAdapter,
)
from nanoset_ref.streaming.compressed import CompressedDictionary, CompressedFormatError
from nanoset_ref.streaming.iterable import IterableDataset
from nanoset_ref.streaming.mapped import CompressedDataset, MapDataset, StackDataset
from nanoset_ref.streaming.packed import StreamOptions
from nanoset_ref.streaming.stream import TokenStream, TokenStreamDataLoader

__all__ = [
    "Adapter",
    "CSVAdapter",
    "CompressedDataset",
    "CompressedDictionary",
    "CompressedFormatError",
    "HuggingFaceAdapter",
    "IterableDataset",
    "JSONLinesAdapter",
    "LinesAdapter",
    "MapDataset",
    "StackDataset",
    "StreamOptions",
    "TokenStream",
    "TokenStreamDataLoader",
]
