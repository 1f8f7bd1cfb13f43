"""Cards from OLMo-core's config.json."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from nanoset_ref.io.types import Json
from nanoset_ref.provenance.loader_config import (
    LoaderConfig,
    order_facts,
    source_facts,
    tokenizer_facts,
    unsupported_error,
)

MIXES = "https://raw.githubusercontent.com/allenai/OLMo-core/fa6c5014c/src/olmo_core/data/mixes"
SCHEDULERS = "BatchSizeSchedulerCallback", "SequenceLengthSchedulerCallback"
FILTERED = "which rows have no loss (instance_filter_config: repeated n-grams)"


def from_olmo_core(config: LoaderConfig) -> Json:
    """The facts of a card, from OLMo-core's config.json."""
    dataset = config.values["dataset"]
    loader = config.values["data_loader"]
    packs = _packs_documents(dataset)
    length = dataset["sequence_length"]
    target = dataset.get("max_target_sequence_length") or length
    if length == 0:
        raise ValueError("dataset.sequence_length must be at least 1, got 0")
    batch_size = loader["global_batch_size"] // length
    tokenizer = dataset.get("tokenizer", {})
    vocabulary = tokenizer.get("vocab_size")
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
        **tokenizer_facts(tokenizer.get("identifier")),
        "dtype": dtype,
        "window": {"row_length": length, "stride": length},
        "sources": [source_facts(path) for path in dataset.get("paths") or []],
        "orders": [order_facts(name, loader["seed"], options=options)],
        "stages": config.stages_of_batches({batch_size: steps}, layout="strided"),
    }
    if dataset.get("instance_filter_config"):
        facts["unknown"].append(FILTERED)
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
            raise unsupported_error(class_name)
    duration = trainer.get("hard_stop") or trainer.get("max_duration", {})
    value: int | None = duration.get("value")
    if duration.get("unit") == "steps":
        return value
    if duration.get("unit") == "tokens" and value is not None:
        return -(-value // values["data_loader"]["global_batch_size"])
    return None
