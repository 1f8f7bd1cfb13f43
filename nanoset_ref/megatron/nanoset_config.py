"""The configuration of a Megatron-style dataset, validated before anything is read.

`NanosetConfig` is plain data: paths, weights, a split, counts, a seed, flags. It contains
everything that determines a token and nothing else, neither a rank nor a tokenizer: two equal
configs over the same files give the same samples on every rank.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from nanoset_ref.io.checks import refuses_unknown, whole_number
from nanoset_ref.io.error_text import short_repr
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.load.document_masks import DocumentOptions, flag_problems
from nanoset_ref.orders.base import normalize_weights
from nanoset_ref.tokens.companions import prefix_of

SPLITS = ("train", "valid", "test")
# upstream numbers the corpora of a blend in int16, and asserts that there are fewer than 32,767
MAX_CORPORA = 32_766
# path, [path, ...], [weight, path, weight, path, ...] or {path: weight}, checked by `read_blend`
DataPath = Any
Bounds = tuple[float, float]


class Blend(NamedTuple):
    """The corpora of a split.

    Attributes:
        prefixes: paths without .bin/.idx.
        weights: positive, of any scale, one per prefix; None: in proportion to each corpus's
            samples per epoch.
    """

    prefixes: list[str]
    weights: list[float] | None = None


class SplitPlan(NamedTuple):
    """The corpora, bounds and size of a split; one without a blend or bounds is unused.

    Attributes:
        name: "train", "valid" or "test".
        blend: its corpora.
        bounds: where it begins and ends in each corpus, fractions in [0, 1].
        num_samples: its samples; None: one epoch.
    """

    name: str
    blend: Blend | None
    bounds: Bounds | None
    num_samples: int | None


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class NanosetConfig(DocumentOptions):
    """The configuration of a Megatron-style dataset.

    Args:
        random_seed: seed of every shuffle, in [0, 2**32).
        sequence_length: S, in tokens.
        data_path: a prefix (the path of a pair, with or without .bin or .idx); several prefixes,
            blended in proportion to their lengths; or, with weights, {prefix: weight} or Megatron's
            list [weight, prefix, weight, prefix, ...].
        data_path_per_split: used instead of data_path and split: three values like data_path (or
            None) for train, valid and test, each corpus read whole.
        split: relative sizes of train, valid and test, such as "949,50,1", cut from each corpus by
            sequences in file order; a 0 leaves a split out (None).
        split_num_samples: samples to draw for train, valid and test, in as many epochs as needed;
            None: one epoch. Weights need numbers.
        path_to_cache: folder for the built indexes, shared by ranks and runs; None: every process
            builds them in memory.
        add_extra_token_to_sequence: samples have S + 1 tokens (inputs and shifted labels); False:
            they have S tokens, and the last label is a pad.
        drop_last_partial_validation_sequence: leave out the last, shorter sample of the valid
            split; False: pad it with `pad_id`.
        separate_final_epoch: shuffle the last epoch separately if less than 80% of it is needed, as
            Megatron-Core does; False: shuffle all epochs together, as GPT-NeoX does (Pythia).
        mid_level_dataset_surplus: the fraction of samples that each corpus of a weighted blend has
            in reserve, for the blend's rounding.
        eos_token_id: id of the end-of-document token; required by the flags below.
        pad_id: id that pads partial samples; -1 does not occur in any vocabulary.
        reset_position_ids: position ids restart at 0 after each EOD.
        reset_attention_mask: the mask of create_attention_mask keeps attention within a document.
        eod_mask_loss: the loss ignores positions with an EOD as input.
        create_attention_mask: deliver a bool [B, 1, S, S] mask (True = masked), S bytes per token.
        create_cu_seqlens: deliver cu_seqlens and max_seqlen of the documents, for attention over
            packed sequences.

    Only `MegatronCollator` reads the last five; samples themselves do not depend on them.

    Raises:
        TypeError: a keyword is unknown.
        ValueError: a field is invalid; the message lists all problems.

    Source of the flags: GPTDatasetConfig of NVIDIA Megatron-LM (core_v0.16.1).
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
    separate_final_epoch: bool = True
    mid_level_dataset_surplus: float = 0.005
    pad_id: int = -1
    create_attention_mask: bool = False

    def __post_init__(self) -> None:
        for problems in (self._wrong_fields, self._broken_rules):
            messages = list(problems())
            if messages:
                raise ValueError("; ".join(messages))
        # plain integers and a tuple, instead of NumPy's integers and the list of a settings file
        for name in ("random_seed", "sequence_length", "pad_id", "eos_token_id"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, int(value))
        counts = [
            None if count is None else int(count) for count in self.split_num_samples
        ]
        object.__setattr__(self, "split_num_samples", tuple(counts))

    def _wrong_fields(self) -> Iterator[str]:
        """Yield a message for each invalid field."""
        given: Any = self  # a caller may give values of any type
        yield from _integer_problems("random_seed", given.random_seed, 0, 32)
        yield from _integer_problems("sequence_length", given.sequence_length, 1, 31)
        yield from _integer_problems("pad_id", given.pad_id)
        if given.eos_token_id is not None:
            yield from _integer_problems("eos_token_id", given.eos_token_id, 0)
        if given.data_path_per_split is not None:
            yield from _triple_problems(
                "data_path_per_split", given.data_path_per_split
            )
        counts = given.split_num_samples
        yield from _triple_problems("split_num_samples", counts)
        for number, count in enumerate(counts if isinstance(counts, Sequence) else ()):
            if count is not None:
                name = f"split_num_samples[{number}]"
                yield from _integer_problems(name, count, 0, 48)
        yield from flag_problems(self)
        surplus = given.mid_level_dataset_surplus
        if not isinstance(surplus, (int, float)) or not 0 <= surplus < math.inf:
            yield f"mid_level_dataset_surplus: should be a number of at least 0, got {surplus!r}"
        if not isinstance(given.split, (str, NoneType)):
            yield f"split: should be a string, got {short_repr(given.split)}"

    def _broken_rules(self) -> Iterator[str]:
        """Yield a message for each rule that valid fields break together."""
        if self.needs_starts:
            yield "the document flags need the id that ends a document: give eos_token_id"
        delivered = self.create_attention_mask or self.create_cu_seqlens
        if self.reset_attention_mask and not delivered:
            yield (
                "reset_attention_mask is about the mask that create_attention_mask delivers: set "
                "both, or create_cu_seqlens"
            )
        has_path = self.data_path is not None
        has_split = self.split is not None
        is_per_split = self.data_path_per_split is not None
        if has_path != has_split or has_path == is_per_split:
            yield (
                'give data_path with a split (such as "949,50,1", or "1,0,0" to train on '
                "everything), or data_path_per_split alone"
            )
        if not any(plan.blend for plan in self.splits):
            yield "data_path_per_split must name a corpus for train, valid or test"
        unlimited = [
            plan.name
            for plan in self.splits
            if plan.blend and plan.blend.weights and plan.num_samples is None
        ]
        if unlimited:
            yield (
                f"weights need a number of samples: give split_num_samples for {unlimited}, "
                "0 if not used"
            )

    @property
    def row_length(self) -> int:
        """Tokens per sample: S + 1, or S without the extra token."""
        return self.sequence_length + int(self.add_extra_token_to_sequence)

    @property
    def splits(self) -> list[SplitPlan]:
        """The plans of train, valid and test."""
        paths = self.data_path_per_split or (self.data_path,) * len(SPLITS)
        blends = [None if path is None else read_blend(path) for path in paths]
        bounds = (
            [(0.0, 1.0)] * len(SPLITS)
            if self.split is None
            else parse_split(self.split)
        )
        parts = zip(SPLITS, blends, bounds, self.split_num_samples, strict=True)
        return [SplitPlan(*part) for part in parts]


def _integer_problems(
    name: str, value: Any, minimum: int | None = None, bits: int | None = None
) -> Iterator[str]:
    """Yield the message of `whole_number` if a value is wrong."""
    try:
        whole_number(value, name, minimum, bits)
    except ValueError as error:
        yield str(error)


def _triple_problems(name: str, values: Any) -> Iterator[str]:
    """Yield a message for each problem of a list that must have a value for each split."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        yield f"{name}: should be a list for {SPLITS}, got {short_repr(values)}"
        return
    for number in range(len(values), len(SPLITS)):
        yield f"{name}[{number}]: is missing"
    if len(values) > len(SPLITS):
        yield f"{name}: should have {len(SPLITS)} entries, got {len(values)}"


def interleave_weights(
    prefixes: Iterable[str], weights: Iterable[float] | None
) -> list[Any]:
    """Megatron's list [weight, prefix, weight, prefix, ...]; without weights, the prefixes."""
    if not weights:
        return list(prefixes)
    return list(itertools.chain(*zip(weights, prefixes, strict=True)))


def read_blend(data_path: DataPath) -> Blend:
    """Read a `data_path` in any of its forms.

    Raises:
        ValueError: there is no prefix, there are more than MAX_CORPORA, a weight is not a positive
            number, or some prefixes have weights and others none.
    """
    entries = data_path
    if isinstance(data_path, Mapping):
        entries = interleave_weights(data_path, data_path.values())
    try:
        entries = as_list(entries)
    except TypeError:  # a number is not a list
        entries = [data_path]
    if not entries:
        raise ValueError("data_path must name at least one corpus, got none")
    weights = None
    if len(entries) % 2 == 0 and all(map(_is_number, entries[::2])):
        weights = [float(weight) for weight in entries[::2]]
        entries = entries[1::2]
    unnamed = [entry for entry in entries if not isinstance(entry, (str, os.PathLike))]
    if unnamed or (weights is None and isinstance(data_path, Mapping)):
        raise ValueError(
            "data_path must be a prefix, a list of prefixes, {prefix: weight} or "
            f"[weight, prefix, ...], got {short_repr(data_path)}"
        )
    stray = [entry for entry in entries if _is_number(entry)]
    if weights is None and stray and len(entries) > 1:
        raise ValueError(
            f"data_path: no prefix follows the weight {stray[0]!r}, or other prefixes have none; "
            f"a prefix that is a number is written ./{stray[0]}"
        )
    if weights and not all(0 < weight < math.inf for weight in weights):
        raise ValueError(
            f"weights must be positive numbers, got {weights}; to give a corpus none, leave it out"
        )
    refuse_too_many(len(entries))
    return Blend([prefix_of(path) for path in entries], weights)


def _is_number(entry: Any) -> bool:
    """Whether an entry of a `data_path` may be a weight."""
    try:
        float(entry)
    except (TypeError, ValueError):
        return False
    return True


def refuse_too_many(corpora: int) -> None:
    """Raise ValueError if a blend has more corpora than its index can number."""
    if corpora > MAX_CORPORA:
        raise ValueError(
            f"a blend has at most {MAX_CORPORA:,} corpora, got {corpora:,}: "
            "merge some of them (nanoset-ref merge)"
        )


def as_shares(values: Sequence[float]) -> list[float]:
    """`normalize_weights` as a list: ties in a blend depend on the last bit."""
    return normalize_weights(values, len(values)).tolist()


def blend_sizes(
    weights: Sequence[float], size: int, config: NanosetConfig
) -> tuple[list[float], list[int]]:
    """The share of each corpus in a blend of `size` samples, and the samples drawn from it.

    Megatron-Core rounds up before and after it adds the surplus, GPT-NeoX only after.
    """
    surplus = 1 + config.mid_level_dataset_surplus
    if config.separate_final_epoch:
        shares = as_shares(weights)
        counts = [math.ceil(size * share) for share in shares]
        return shares, [math.ceil(count * surplus) for count in counts]
    # left to right, as GPT-NeoX adds: since Python 3.12 sum() compensates rounding
    *_, total = itertools.accumulate(weights)
    shares = [weight / total for weight in weights]
    return shares, [math.ceil(size * share * surplus) for share in shares]


def parse_split(split: str) -> tuple[Bounds | None, ...]:
    """Parse a split: "90,8,2" -> ((0.0, 0.9), (0.9, 0.98), (0.98, 1.0)).

    Missing numbers count as 0, and a 0 gives None. As in Megatron-Core, anything between numbers
    separates them: "99/1", "33;33;34".

    Raises:
        ValueError: `split` is not one to three non-negative numbers with a positive sum.
    """
    sizes = []
    with contextlib.suppress(ValueError):  # "0.9.9": no sizes are found
        sizes = [float(number) for number in re.findall(r"-?[.\d]+", split)]
    if len(sizes) > len(SPLITS) or sum(sizes) <= 0 or min(sizes) < 0:
        raise ValueError(
            f"split must be up to three numbers for {SPLITS}, none negative, one positive, "
            f"got {split!r}"
        )
    shares = as_shares(sizes + [0.0] * (len(SPLITS) - len(sizes)))
    ends = itertools.accumulate(shares, initial=0.0)
    bounds = []
    for start, stop in itertools.pairwise(ends):
        bounds.append((start, stop) if stop > start else None)
    return tuple(bounds)
