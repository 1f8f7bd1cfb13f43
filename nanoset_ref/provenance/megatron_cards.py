"""Cards from the arguments of Megatron-LM, and from GPT-NeoX's YAML."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nanoset_ref.io.paths import as_list
from nanoset_ref.io.types import Json
from nanoset_ref.megatron.nanoset_config import read_blend
from nanoset_ref.provenance.loader_config import (
    LoaderConfig,
    order_facts,
    source_facts,
    unsupported_error,
)

MEGATRON_DEFAULTS: Json = {"seed": 1234, "split": "969,30,1"}
# options that change which samples are read: the value that is described here, or None
SUPPORTED_VALUES = {
    "data_args_path": None,
    "dataloader_type": "single",
    "decrease_batch_size_if_needed": None,
    "fim_data": None,
    "iterations_to_skip": None,
    "mid_level_dataset_surplus": "0.005",
    "mock_data": None,
    "pack_impl": "packed",
    "per_dataset_sequences_path": None,
    "per_split_data_args_path": None,
    "phase_transition_iterations": None,
    "sft": None,
    "step_batch_size_schedule": None,  # since April 2026
    "train_data_path": None,
}
NEOX_SURPLUS = 1.005  # samples that GPT-NeoX draws for each one that it reads


def from_megatron(config: LoaderConfig) -> Json:
    """The facts of a card, from Megatron-LM's arguments or, by `from_neox`, GPT-NeoX's."""
    values = config.values
    for name, supported in SUPPORTED_VALUES.items():
        if values.get(name) not in (None, False, supported):
            raise unsupported_error(f"{name}={values[name]}")
    prefixes, weights = _megatron_blend(values)
    neox_rows = values.get("train_micro_batch_size_per_gpu")
    rows = values.get("micro_batch_size") or neox_rows
    batch_size = _megatron_batch_size(config, rows)
    length = config.fact("sequence_length", values.get("seq_length"))
    batches, samples = _megatron_batches(config, batch_size)
    order = _megatron_order(config, samples, weights)
    assumed = []
    for name, default in MEGATRON_DEFAULTS.items():
        # GPT-NeoX's train_data_paths are not split
        is_split = name != "split" or "train_data_paths" not in values
        if is_split and name not in {*values, *config.given}:
            assumed.append(f"{name}={default}, the default")
    facts = {
        "dtype": config.fact("dtype"),
        "window": {"row_length": length + 1, "stride": length},
        "sources": [source_facts(f"{prefix}.bin") for prefix in prefixes],
        "orders": [order],
        "stages": config.stages_of_batches(
            batches, layout="contiguous", micro_batch_size=rows
        ),
        "inferred": assumed,
    }
    if "rampup_batch_size" in values:
        facts["loader"] = {"name": "megatron", "version": "core_v0.16.1"}
        assumed.append(
            "rampup_batch_size as before April 2026: since 532ad926b4 Megatron-LM ignores it"
        )
    return facts


def from_neox(config: LoaderConfig) -> Json:
    """The facts of a card, from GPT-NeoX's YAML, whose names may have dashes or underscores."""
    config.values = {"is_neox": True} | {
        name.replace("-", "_"): value for name, value in config.values.items()
    }
    return from_megatron(config)


def _megatron_blend(values: Mapping[str, Any]) -> tuple[list[str], list[float] | None]:
    """The prefixes of the .bin/.idx pairs, and their weights."""
    blend = values.get("train_data_paths")  # GPT-NeoX's
    if blend:
        weights = values.get("train_data_weights") or [1.0] * len(blend)
        return blend, weights if len(blend) > 1 else None
    blend = as_list(values.get("data_path", []))
    if not blend:
        raise ValueError(
            "the config names no data: data-path or train-data-paths; GPT-NeoX takes several YAML "
            "files: merge them into one"
        )
    for word in [*blend, str(values.get("split", ""))]:
        if "$" in word:
            raise ValueError(
                f"only the shell knows the value of {word}: write it into a copy of this script"
            )
    return read_blend(blend)


def _megatron_batch_size(config: LoaderConfig, rows: Any) -> int:
    """The rows of a step; GPT-NeoX may give the rows of a micro-batch instead."""
    values = config.values
    batch_size = values.get("global_batch_size") or values.get("train_batch_size")
    if batch_size is None and rows and "is_neox" in values:
        long_name = values.get("gradient_accumulation_steps")
        accumulated = int(long_name or values.get("gas") or 1)
        batch_size = int(rows) * accumulated * config.fact("dp_size")
    return int(config.fact("batch_size", batch_size))


def _megatron_batches(
    config: LoaderConfig,
    batch_size: int,
) -> tuple[dict[int, int], int]:
    """{rows of a step: steps} of a run, in order, and the samples that its order has."""
    values = config.values
    samples = config.fact("samples", values.get("train_samples"), needed=False)
    ramp = values.get("rampup_batch_size")
    if ramp is not None:
        try:
            return ramped_batches(as_list(ramp), batch_size, samples), samples
        except (TypeError, ValueError) as error:
            raise unsupported_error(
                f"rampup_batch_size={ramp} over {samples} train_samples"
            ) from error
    steps = values.get("train_iters")
    if steps is None and samples:
        steps = samples // batch_size
    steps = config.fact("steps", steps)
    return {batch_size: steps}, samples or steps * batch_size


def _megatron_order(
    config: LoaderConfig,
    samples: int,
    weights: list[float] | None,
) -> Json:
    """The order of a run that reads `samples` rows."""
    values = config.values
    named = {**MEGATRON_DEFAULTS, **config.given, **values}
    name = "megatron"
    options: Json = {"split": str(named["split"]).replace(" ", "")}
    if "is_neox" in values:
        options["separate_final_epoch"] = False
    if values.get("weight_by_num_documents"):
        name = "unknown"  # GPT-NeoX's weights then follow from the documents
    if "train_data_paths" in values:  # GPT-NeoX's
        options["split"] = "1,0,0"
        if weights is None:
            samples = math.ceil(samples * NEOX_SURPLUS)  # a blend adds its own surplus
    seed = config.fact("seed", named["seed"])
    return order_facts(name, seed, options=options, samples=samples, weights=weights)


def ramped_batches(
    ramp: Sequence[str],
    batch_size: int,
    samples: int,
) -> dict[int, int]:
    """{rows of a step: steps} of Megatron-LM's --rampup-batch-size, in order.

    4 4 50 and a batch of 16 over 200 samples: {4: 5, 8: 2, 12: 2, 16: 8}, three steps up of 16.7
    samples each. As in Megatron-Core 0.16.1 (`RampupBatchsizeNumMicroBatchesCalculator`), with its
    rounding; the rest that fills no batch is dropped.

    Args:
        ramp: the first batch, its growth, and the samples while it grows.
        batch_size: the last batch.
        samples: of the whole run.

    Raises:
        ValueError: Megatron-Core refuses this ramp, or lacks samples for its last step.
    """
    first, growth, ramp_samples = map(int, ramp)
    difference = batch_size - first
    if min(growth, ramp_samples, difference) < 1 or difference % growth:
        raise ValueError("a ramp grows by equal steps, up to the last batch")
    samples_per_growth = ramp_samples / (difference // growth)
    sizes = []  # the rows of each step
    consumed = 0
    while consumed <= min(ramp_samples, samples):
        sizes.append(first + int(consumed / samples_per_growth) * growth)
        consumed += sizes[-1]
    if consumed > samples:
        raise ValueError("the ramp reads more samples than there are")
    sizes += [batch_size] * ((samples - consumed) // batch_size)
    return Counter(sizes)
