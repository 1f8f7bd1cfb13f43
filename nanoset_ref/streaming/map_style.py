"""Datasets with a length and an index: MapDataset, CompressedDataset, StackDataset.

All three behave like lists: negative indices and slices work, and an index out of range is an
IndexError, which ends an iteration.
"""

import warnings
from abc import abstractmethod
from collections.abc import Sized
from typing import Any

import numpy as np
from torch.utils import data

from nanoset_ref.io.paths import PathLike
from nanoset_ref.streaming.compressed_dictionary import CompressedDictionary
from nanoset_ref.streaming.text_adapters import Adapter, can_index


class _ListDataset(data.Dataset[Any], Sized):
    """A Dataset that is indexed like a list; a subclass has `__len__` and `_at(index)`."""

    @abstractmethod
    def _at(self, index: int) -> Any: ...

    def __getitem__(self, index: int | slice) -> Any:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return [self._at(number) for number in chosen]
        return self._at(chosen)


class MapDataset(_ListDataset):
    """The elements of an adapter, preprocessed on access.

    Args:
        hparams: any object, stored as `hparams`.
        adapter: the source of the elements, read completely at once.
        trainer: ignored; every dataset has this argument.
        do_preprocessing: False returns raw elements.
        keep_in_memory: False reads each element from the adapter on access, which requires an
            index.

    Raises:
        ValueError: keep_in_memory is False, and the adapter cannot index.
    """

    def __init__(
        self,
        hparams: Any,
        adapter: Adapter,
        trainer: Any = None,
        do_preprocessing: bool = True,
        *,
        keep_in_memory: bool = True,
    ) -> None:
        if not keep_in_memory and not can_index(adapter):
            raise ValueError(
                "keep_in_memory=False needs __len__ and __getitem__ that fit __iter__; "
                f"{type(adapter).__name__} lacks them"
            )
        self.hparams = hparams
        self.adapter = adapter
        self.do_preprocessing = do_preprocessing
        self._lines: Any = list(adapter) if keep_in_memory else adapter

    def __len__(self) -> int:
        return len(self._lines)

    def _at(self, index: int) -> Any:
        line = self._lines[index]
        return self.adapter.preprocess_line(line) if self.do_preprocessing else line


class CompressedDataset(_ListDataset):
    """The values of a compressed dictionary, sorted by key.

    Args:
        hparams: any object, stored as `hparams`.
        source: a CompressedDictionary, or the path of its file. The values of a path stay in the
            file (memory: 16 bytes each) and are decompressed one by one; workers share the file's
            pages.

    Raises:
        FileNotFoundError, CompressedFormatError: see CompressedDictionary.open.
    """

    def __init__(self, hparams: Any, source: PathLike | CompressedDictionary) -> None:
        if not isinstance(source, CompressedDictionary):
            source = CompressedDictionary.open(source)
        self.hparams = hparams
        self.dictionary = source
        self._keys = np.sort(np.fromiter(source, np.int32, len(source)))

    def __len__(self) -> int:
        return len(self._keys)

    def _at(self, index: int) -> Any:
        return self.dictionary[int(self._keys[index])]


class StackDataset(_ListDataset, data.StackDataset[tuple[Any, ...]]):
    """`zip` for datasets: element i is the tuple of their i-th elements; as long as the shortest.

    Extends torch's StackDataset, which refuses slices and datasets of different lengths.

    Args:
        datasets: at least one, each with `len` and an index. If lengths differ, it warns.
    """

    _at = data.StackDataset.__getitem__

    def __init__(self, *datasets: Any) -> None:
        if not datasets:
            raise ValueError("StackDataset needs at least one dataset")
        lengths = [len(dataset) for dataset in datasets]
        shortest = min(lengths)
        if shortest < max(lengths):
            warnings.warn(
                f"the datasets have the lengths {lengths}; the stack has the shortest, {shortest}",
                stacklevel=2,
            )
            datasets = tuple(
                data.Subset(dataset, range(shortest)) for dataset in datasets
            )
        super().__init__(*datasets)
