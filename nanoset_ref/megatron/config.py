"""What a Megatron-style dataset is built from, validated before anything is read.

`NanosetConfig` is plain data: paths, weights, a split, counts, a seed, flags. Everything that decides a token stands
here, and nothing else does (no rank, no tokenizer object): two equal configs over the same files give the same samples
on every rank.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np

from nanoset_ref.megatron.indexed_dataset import PathLike

SPLITS = ("train", "valid", "test")
DataPath = PathLike | Sequence[PathLike] | Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blend:
    """Corpora and how much of each.

    Args:
        prefixes: paths without .bin/.idx.
        weights: any positive scale, one per prefix; None: in proportion to the samples that each has in one epoch.
    """

    prefixes: tuple[str, ...]
    weights: tuple[float, ...] | None = None

    @classmethod
    def from_data_path(cls, data_path: DataPath) -> Blend:
        """Read a `data_path` in any of its forms.

        Raises:
            ValueError: no prefix, or a weight that is not a positive number.
        """
        if isinstance(data_path, (str, os.PathLike)):
            return cls(prefixes=(os.fspath(data_path),))
        prefixes = tuple(os.fspath(prefix) for prefix in data_path)
        if not prefixes:
            raise ValueError("data_path must name at least one corpus, got none")
        if not isinstance(data_path, Mapping):
            return cls(prefixes=prefixes)
        weights = tuple(float(weight) for weight in data_path.values())
        for prefix, weight in zip(prefixes, weights, strict=True):
            if not (math.isfinite(weight) and weight > 0):
                raise ValueError(
                    f"the weight of {prefix} must be a positive number, got {weight}; leave a corpus out to give it "
                    "none"
                )
        return cls(prefixes=prefixes, weights=weights)


def normalise(values: Sequence[float]) -> tuple[float, ...]:
    """Divided by their sum, in float64 and with NumPy's summation, on whose last bit ties in a blend depend."""
    array = np.array(values, dtype=np.float64)
    return tuple((array / array.sum()).tolist())


@dataclasses.dataclass(frozen=True, kw_only=True)
class NanosetConfig:
    """The configuration of a Megatron-style dataset.

    Args:
        random_seed: seed of every shuffle, in [0, 2**32).
        sequence_length: S, in tokens.
        data_path: a prefix (path without .bin/.idx); several prefixes, blended in proportion to their lengths; or
            {prefix: weight}.
        data_path_per_split: three of these (or None) for train, valid and test, each corpus read whole; instead of
            data_path and split.
        split: relative sizes of train, valid and test, such as "949,50,1", cut from each corpus by sequences in file
            order; a 0 leaves a split out (None).
        split_num_samples: samples to draw for train, valid and test, as many epochs as that takes; None: one epoch.
            Weights need numbers.
        path_to_cache: folder for the built indexes, shared by ranks and runs; None: every process builds them in
            memory.
        add_extra_token_to_sequence: samples have S + 1 tokens (inputs and shifted labels); if False S, and the last
            label of each is a pad.
        drop_last_partial_validation_sequence: leave out the last, shorter sample of the valid split; if False it is
            filled up with `pad_id`.
        mid_level_dataset_surplus: of a weighted blend, the fraction of samples that each corpus has in reserve, for the
            rounding of the blend.
        mmap_bin_files: map .bin, or read it with pread.
        eod_id: id of the end-of-document token; needed by the flags below.
        pad_id: id that fills up partial samples; -1 is in no vocabulary.
        reset_position_ids: position ids begin again after each EOD.
        reset_attention_mask: attention stays within a document.
        eod_mask_loss: no loss where the input is an EOD.
        create_attention_mask: deliver a bool [B, 1, S, S] mask (True = masked), S bytes per token.
        create_cu_seqlens: deliver cu_seqlens and max_seqlen of the documents, for attention over packed sequences.

    The last five are carried out by `MegatronCollator`; samples themselves do not depend on them.

    Raises:
        ValueError, TypeError: saying the rule, the value and the way out.

    Source: the flags are those of NVIDIA Megatron-LM's GPTDatasetConfig (core_v0.16.1).
    """

    random_seed: int
    sequence_length: int
    data_path: DataPath | None = None
    data_path_per_split: Sequence[DataPath | None] | None = None
    split: str | None = None
    split_num_samples: Sequence[int | None] = (None, None, None)
    path_to_cache: PathLike | None = None
    add_extra_token_to_sequence: bool = True
    drop_last_partial_validation_sequence: bool = True
    mid_level_dataset_surplus: float = 0.005
    mmap_bin_files: bool = True
    eod_id: int | None = None
    pad_id: int = -1
    reset_position_ids: bool = False
    reset_attention_mask: bool = False
    eod_mask_loss: bool = False
    create_attention_mask: bool = False
    create_cu_seqlens: bool = False

    def __post_init__(self) -> None:
        if not 0 <= operator.index(self.random_seed) < 2**32:
            raise ValueError(f"random_seed must be in [0, 2**32), got {self.random_seed}")
        if operator.index(self.sequence_length) < 1:
            raise ValueError(f"sequence_length must be at least 1 token, got {self.sequence_length}")
        if len(self.split_num_samples) != len(SPLITS):
            raise ValueError(
                f"split_num_samples must give a number (or None) for each of {SPLITS}, got {self.split_num_samples!r}"
            )
        for name, count in zip(SPLITS, self.split_num_samples, strict=True):
            if count is not None and operator.index(count) < 0:
                raise ValueError(
                    f"split_num_samples must not be negative, got {count} for {name}; None asks for one epoch"
                )
        if not (math.isfinite(self.mid_level_dataset_surplus) and self.mid_level_dataset_surplus >= 0):
            raise ValueError(
                f"mid_level_dataset_surplus must be a fraction of at least 0, got {self.mid_level_dataset_surplus}"
            )
        if self.eod_id is None and (
            self.reset_position_ids or self.reset_attention_mask or self.eod_mask_loss or self.create_cu_seqlens
        ):
            raise ValueError(
                "reset_position_ids, reset_attention_mask, eod_mask_loss and create_cu_seqlens look for the "
                "end-of-document token: give eod_id"
            )
        if (self.data_path is None) == (self.data_path_per_split is None):
            raise ValueError("give data_path (and split), or data_path_per_split, one of the two")
        if self.data_path is not None:
            if self.split is None:
                raise ValueError('data_path needs a split, such as "949,50,1", or "1,0,0" to train on everything')
            parse_split(self.split)
        else:
            if self.split is not None:
                raise ValueError(
                    f"data_path_per_split already says what each split reads; leave split out, got {self.split!r}"
                )
            paths = tuple(self.data_path_per_split or ())
            if len(paths) != len(SPLITS) or all(path is None for path in paths):
                raise ValueError(
                    f"data_path_per_split must give a data_path, or None, for each of {SPLITS}, and not None for all, "
                    f"got {self.data_path_per_split!r}"
                )
        for name, blend, count in zip(SPLITS, self.blends, self.split_num_samples, strict=True):
            if blend is not None and blend.weights is not None and count is None:
                raise ValueError(
                    f"weights need a number of samples for every split, but split_num_samples has None for {name}; a "
                    "split that is not used takes 0"
                )

    @property
    def blends(self) -> tuple[Blend | None, ...]:
        """What train, valid and test read."""
        if self.data_path is not None:
            return (Blend.from_data_path(self.data_path),) * len(SPLITS)
        paths = self.data_path_per_split or ()
        return tuple(None if path is None else Blend.from_data_path(path) for path in paths)

    @property
    def split_bounds(self) -> tuple[tuple[float, float] | None, ...]:
        """Begin and end of train, valid and test as fractions of each corpus; None for a split that is not used."""
        if self.split is not None:
            return parse_split(self.split)
        return tuple(None if blend is None else (0.0, 1.0) for blend in self.blends)


def parse_split(split: str) -> tuple[tuple[float, float] | None, ...]:
    """ "90,8,2" -> ((0.0, 0.9), (0.9, 0.98), (0.98, 1.0)); missing numbers count as 0, and a 0 gives None.

    Raises:
        ValueError: not one to three non-negative numbers with a positive sum.
    """
    parts = [part.strip() for part in split.split(",")]
    if len(parts) > len(SPLITS) or not all(re.fullmatch(r"\d+(\.\d*)?|\.\d+", part) for part in parts):
        raise ValueError(
            f'split must be up to three non-negative numbers for {SPLITS}, such as "949,50,1", got {split!r}'
        )
    sizes = [float(part) for part in parts] + [0.0] * (len(SPLITS) - len(parts))
    if sum(sizes) <= 0:
        raise ValueError(f"split must have a positive part, got {split!r}")
    ends = [0.0]
    for share in normalise(sizes):
        ends.append(ends[-1] + share)
    return tuple((begin, end) if end > begin else None for begin, end in itertools.pairwise(ends))
