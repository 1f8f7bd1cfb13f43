"""Cards from the configs of Megatron-LM, GPT-NeoX, OLMo-core and llm.c, and of Nanotron.

Read as of Nanotron 2411b022 and the Nanosets of 2024 (2e36d6f), Megatron-LM d98e8a64dd, GPT-NeoX
ea7aefd8, OLMo-core fa6c5014c and llm.c f1e2ace (docs/loaders.md has their months).
"""

import functools
import glob
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nanoset_ref import train  # loads nothing yet: only YAML needs an extra
from nanoset_ref.io.paths import PathLike, as_list, read_json
from nanoset_ref.megatron.nanoset_config import read_blend
from nanoset_ref.orders.base import Json
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_of_run import add_probes
from nanoset_ref.provenance.foreign_facts import (
    ForeignConfig,
    order_facts,
    ramped_batches,
    read_command_line,
    source_facts,
    stages_of_batches,
)
from nanoset_ref.provenance.nanotron_cards import from_nanotron
from nanoset_ref.tokens import open_tokens
from nanoset_ref.tokens.llm_c_shard import HEADER_BYTES

MIXES = "https://raw.githubusercontent.com/allenai/OLMo-core/fa6c5014c/src/olmo_core/data/mixes"
SCHEDULERS = "BatchSizeSchedulerCallback", "SequenceLengthSchedulerCallback"
FILTERED = "which rows have no loss (instance_filter_config: repeated n-grams)"
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


def card_of_config(
    path: PathLike,
    loader: str,
    name: str,
    date: str,
    given: Mapping[str, str],
) -> Card:
    """Make the card of a run of another system, with probes if the sizes of all files are known.

    Args:
        path: Nanotron's or GPT-NeoX's YAML, OLMo-core's config.json, or a text with the arguments
            of Megatron-LM or llm.c, such as the script that starts them.
        loader: a key of READERS.
        name: the name of the run.
        date: the year and month of the run.
        given: facts that the config lacks; see `ForeignConfig`.

    Raises:
        ValueError: the config lacks facts (the message names all of them), or a card cannot
            describe the run.
    """
    reader = READERS[loader]
    content = reader.parse(path)
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} is not a config of {loader}: it must hold names with values, and holds a "
            f"{type(content).__name__}"
        )
    try:
        config = ForeignConfig(content, given)
        facts = reader.describe(config)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a config of {loader}: {type(error).__name__} {error}"
        ) from error
    config.check()
    by_hand = [f"{key}={value}, given by hand" for key, value in given.items()]
    facts = {
        "card": 1,
        "name": name,
        "date": date,
        "links": [],
        "loader": {"name": loader, "version": reader.version},
        "tokenizer": {"name": None, "hash": None},
        "known": [f"what {Path(path).name} says"],
        "unknown": ["the tokenizer"],
        **facts,
        "inferred": [*facts.get("inferred", []), *by_hand],
    }
    card = Card(facts)
    add_probes(card)
    return card


# ---- Megatron-LM and GPT-NeoX


def from_megatron(config: ForeignConfig) -> Json:
    """Megatron-LM's arguments; see `from_neox`."""
    values = config.values
    for name, supported in SUPPORTED_VALUES.items():
        if values.get(name) not in (None, False, supported):
            raise _unsupported_error(f"{name}={values[name]}")
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
        "stages": stages_of_batches(
            config, batches, layout="contiguous", micro_batch_size=rows
        ),
        "inferred": assumed,
    }
    if "rampup_batch_size" in values:
        facts["loader"] = {"name": "megatron", "version": "core_v0.16.1"}
        assumed.append(
            "rampup_batch_size as before April 2026: since 532ad926b4 Megatron-LM ignores it"
        )
    return facts


def _unsupported_error(option: str) -> ValueError:
    return ValueError(
        f"{option} changes which rows a step reads, which this command cannot describe: write the "
        "card by hand"
    )


def from_neox(config: ForeignConfig) -> Json:
    """GPT-NeoX's YAML, whose names may have dashes or underscores."""
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


def _megatron_batch_size(config: ForeignConfig, rows: Any) -> int:
    """The rows of a step; GPT-NeoX may give the rows of a micro-batch instead."""
    values = config.values
    batch_size = values.get("global_batch_size") or values.get("train_batch_size")
    if batch_size is None and rows and "is_neox" in values:
        long_name = values.get("gradient_accumulation_steps")
        accumulated = int(long_name or values.get("gas") or 1)
        batch_size = int(rows) * accumulated * config.fact("dp_size")
    return int(config.fact("batch_size", batch_size))


def _megatron_batches(
    config: ForeignConfig, batch_size: int
) -> tuple[dict[int, int], int]:
    """{rows of a step: steps} of a run, in order, and the samples that its order has."""
    values = config.values
    samples = config.fact("samples", values.get("train_samples"), needed=False)
    ramp = values.get("rampup_batch_size")
    if ramp is not None:
        try:
            return ramped_batches(as_list(ramp), batch_size, samples), samples
        except (TypeError, ValueError) as error:
            raise _unsupported_error(f"rampup_batch_size={ramp}") from error
    steps = values.get("train_iters")
    if steps is None and samples:
        steps = samples // batch_size
    steps = config.fact("steps", steps)
    return {batch_size: steps}, samples or steps * batch_size


def _megatron_order(
    config: ForeignConfig,
    samples: int,
    weights: list[float] | None,
) -> Json:
    """The order of a run that reads `samples` rows."""
    values = config.values
    named: Json = MEGATRON_DEFAULTS | values
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
    seed = config.fact(
        "seed", values.get("seed", config.given.get("seed", named["seed"]))
    )
    return order_facts(name, seed, options=options, samples=samples, weights=weights)


# ---- OLMo-core


def from_olmo_core(config: ForeignConfig) -> Json:
    """OLMo-core's config.json."""
    dataset = config.values["dataset"]
    loader = config.values["data_loader"]
    packs = _packs_documents(dataset)
    length = dataset["sequence_length"]
    target = dataset.get("max_target_sequence_length") or length
    if length == 0:
        raise ValueError("dataset.sequence_length must be at least 1, got 0")
    batch_size = loader["global_batch_size"] // length
    vocabulary = dataset.get("tokenizer", {}).get("vocab_size")
    dtype = dataset.get("dtype")
    if dtype is None and vocabulary:
        dtype = np.min_scalar_type(vocabulary - 1).name  # as get_dtype does
    name = "olmo_core"
    options = {"chunk_size": target // length, "batch_size": batch_size}
    if packs:
        name = "olmo_core_packed"
        options = _packing_options(dataset, batch_size)
    dtype = config.fact("dtype", dtype)
    steps = config.fact("steps", _olmo_core_steps(config.values))
    facts = {
        "dtype": dtype,
        "window": {"row_length": length, "stride": length},
        "sources": [source_facts(path) for path in dataset.get("paths") or []],
        "orders": [order_facts(name, loader["seed"], options=options)],
        "stages": stages_of_batches(config, {batch_size: steps}, layout="strided"),
    }
    if dataset.get("instance_filter_config"):
        facts["unknown"] = ["the tokenizer", FILTERED]
    if not facts["sources"]:
        facts["listed"] = _listed_mix(dataset, config.fact("files"))
    return facts


def _listed_mix(dataset: Json, files: int) -> Json:
    """The list of a mix, in which {TOKENIZER} is replaced as in OLMo-core's `DataMix.build`."""
    mix = dataset["mix"]
    if re.search("official|midtraining|longmino", mix):  # the mixes of OLMo 3
        folders = {"allenai/dolma2-tokenizer": "allenai/dolma3-tokenizer"}
    elif mix == "OLMo-mix-0625":
        folders = {"allenai/dolma2-tokenizer-sigdig": "dolma2-tokenizer-sigdig"}
    else:
        folders = {"allenai/gpt-neox-olmo-dolma-v1_5": "gpt-neox-olmo-dolma-v1_5"}
    tokenizer = dataset.get("tokenizer", {}).get("identifier") or "{TOKENIZER}"
    return {
        "url": f"{MIXES}/{mix}.txt",
        "sha256": None,
        "files": files,
        "after": "",
        "pattern": r"(?m)^[^#,\n]+,(\S+)$",
        "address": f"{dataset['mix_base_dir'].rstrip('/')}/{{}}",
        "tokenizer": folders.get(tokenizer, tokenizer),
    }


def _packs_documents(dataset: Json) -> bool:
    """Whether OLMo-core packs documents; ValueError unless it does that, or cuts, named files."""
    class_name = dataset.get("_CLASS_", "NumpyFSLDatasetConfig").rpartition(".")[2]
    class_names = "NumpyFSLDatasetConfig", "NumpyPackedFSLDatasetConfig"
    if class_name not in class_names or dataset.get("source_mixture_config"):
        raise ValueError(
            f"only {' and '.join(class_names)} of named files are reproduced, not {class_name}"
        )
    if any("*" in path for path in dataset.get("paths") or []):
        raise ValueError(
            "paths with a * are not expanded: name the files in the order of the run"
        )
    return class_name == class_names[1]


def _packing_options(dataset: Json, batch_size: int) -> Json:
    """The options of the order "olmo_core_packed", with the defaults of OLMo-core."""
    return {
        "batch_size": batch_size,
        "group_size": dataset.get("source_group_size", 1),
        "permutation_seed": dataset.get("source_permutation_seed"),
        "fragment": dataset.get("long_doc_strategy", "truncate") == "fragment",
        "eos_token_id": dataset["tokenizer"]["eos_token_id"],
        "pad_token_id": dataset["tokenizer"]["pad_token_id"],
    }


def _olmo_core_steps(values: Mapping[str, Any]) -> int | None:
    """The optimizer steps of a run; None if its length is in epochs.

    Raises:
        ValueError: its batches or its rows grow.
    """
    trainer = values.get("trainer", {})
    for callback in trainer.get("callbacks", {}).values():
        class_name = callback.get("_CLASS_", "").rpartition(".")[2]
        if class_name in SCHEDULERS and callback.get("enabled", True):
            raise _unsupported_error(class_name)
    duration = trainer.get("hard_stop") or trainer.get("max_duration", {})
    value: int | None = duration.get("value")
    if duration.get("unit") == "steps":
        return value
    if duration.get("unit") == "tokens" and value is not None:
        return -(-value // values["data_loader"]["global_batch_size"])
    return None


# ---- llm.c


def from_llm_c(config: ForeignConfig) -> Json:
    """The arguments of llm.c's train_gpt2cu, perhaps after mpirun -np RANKS."""
    values = config.values
    paths = sorted(glob.glob(str(values.get("i", ""))))
    if not paths:
        raise ValueError(
            f"no shard matches -i {values.get('i')}: run this command where the shards are"
        )
    length = config.fact("sequence_length", values.get("t"))
    rows = config.fact("micro_batch_size", values.get("b"))
    ranks = config.fact("dp_size", next(iter(as_list(values.get("np", []))), None))
    batch_size = int(values.get("d", length * rows * ranks)) // length
    steps = int(values.get("x", -1))  # -1: one epoch
    steps = config.fact("steps", steps if steps > 0 else None)
    options = {"micro_batch_size": rows, "dp_size": ranks}
    return {
        "dtype": open_tokens(paths[0]).dtype.name,
        "window": {"row_length": length + 1, "stride": length},
        "sources": [source_facts(path, HEADER_BYTES) for path in paths],
        "orders": [order_facts("llm_c", 0, options=options)],
        "stages": stages_of_batches(
            config,
            {batch_size: steps},
            layout="contiguous",
            dp_size=ranks,
            micro_batch_size=rows,
        ),
    }


# ---- which system has which reader


def read_yaml(path: PathLike) -> Any:
    """The content of a YAML file; every error names the file."""
    try:
        return train.read_yaml(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


class ConfigReader(NamedTuple):
    """The functions that make a card from the config of a system.

    Args:
        describe: makes the card's facts from a config.
        parse: reads a config file.
        version: the commit of the system that was read.
    """

    describe: Callable[[ForeignConfig], Json]
    parse: Callable[[PathLike], Any]
    version: str


READERS = {
    "nanotron": ConfigReader(
        functools.partial(from_nanotron, is_main=True), read_yaml, "2411b022"
    ),
    "nanotron-2024": ConfigReader(
        functools.partial(from_nanotron, is_main=False), read_yaml, "2e36d6f"
    ),
    "megatron": ConfigReader(from_megatron, read_command_line, "d98e8a64dd"),
    "gpt-neox": ConfigReader(from_neox, read_yaml, "ea7aefd8"),
    "olmo-core": ConfigReader(from_olmo_core, read_json, "fa6c5014c"),
    "llm.c": ConfigReader(from_llm_c, read_command_line, "f1e2ace"),
}
