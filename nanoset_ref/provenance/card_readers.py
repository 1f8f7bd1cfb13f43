"""Cards from the configs of other systems. What a config does not say is asked for by name, never guessed.

Read as of Nanotron 2411b022 and the Nanosets of 2024 (2e36d6f), Megatron-LM d98e8a64dd, GPT-NeoX ea7aefd8,
OLMo-core fa6c5014c and llm.c f1e2ace (docs/loaders.md has their months).
"""

import glob
import itertools
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref import train  # loads nothing yet: only YAML needs an extra
from nanoset_ref.io.options import unknown_key
from nanoset_ref.io.paths import PathLike, as_list, read_json
from nanoset_ref.orders.others import nanotron_stages
from nanoset_ref.provenance.card import Card, Facts
from nanoset_ref.provenance.card_writer import probes_of
from nanoset_ref.tokens import open_tokens

ASKED = {
    "batch_size": "rows of a step on all ranks together",
    "dp_size": "data-parallel ranks",
    "dtype": "of the ids, such as uint16",
    "files": "how many token files the mix names",
    "micro_batch_size": "rows of a rank in a micro-batch",
    "seed": "of the order",
    "sequence_length": "tokens of a row, without the label of the last one",
    "steps": "optimizer steps of the run",
}
MIXES = "https://raw.githubusercontent.com/allenai/OLMo-core/fa6c5014c/src/olmo_core/data/mixes"


class ForeignConfig:
    """A config whose gaps are filled by what the user has given.

    Args:
        values: from the config, flat.
        given: values for what it lacks, by the names in `ASKED`.

    Raises:
        ValueError: a name that is not asked for, or a value that the config says, too.
    """

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, str]) -> None:
        for name in given:
            if name not in ASKED:
                raise ValueError(f"--given {name}: {unknown_key(name, ASKED)}")
        self.values = dict(values)
        self._given = given
        self._missing: dict[str, str] = {}

    def take(self, name: str, value: Any = None, *, needed: bool = True) -> Any:
        """The config's value, or the given one; where a needed one is missing, 1 until `check`."""
        if value is not None:
            if name in self._given and str(value) != self._given[name]:
                raise ValueError(f"--given {name}={self._given[name]}: the config says {value}")
            return value
        if name in self._given:
            found = self._given[name]
            return found if name == "dtype" else int(found)
        if needed:
            self._missing[name] = ASKED[name]
        return 1 if needed else None

    def check(self) -> None:
        """ValueError that names everything that was needed and is missing."""
        if self._missing:
            lacks = "; ".join(f"{name} ({what})" for name, what in self._missing.items())
            names = " ".join(f"{name}=..." for name in self._missing)
            raise ValueError(f"the config does not say: {lacks}. Add --given {names}")


def card_of_config(
    path: PathLike, loader: str, name: str, date: str, given: Mapping[str, str]
) -> Card:
    """The card of a run of another system, with the probes of its orders where all sizes are here.

    Args:
        path: Nanotron's or GPT-NeoX's YAML, OLMo-core's config.json, or a text with the arguments of Megatron-LM
            or llm.c, such as the script that starts them.
        loader: a key of `READERS`.
        given: see `ForeignConfig`.

    Raises:
        ValueError: everything that is missing, by name; what a card has no place for.
    """
    read, form, version = READERS[loader]
    try:
        config = ForeignConfig(form(path), given)
        facts = read(config)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is no config of {loader}: {type(error).__name__} {error}"
        ) from error
    config.check()
    card = Card(
        {
            "card": 1,
            "name": name,
            "date": date,
            "links": [],
            "loader": {"name": loader, "version": version},
            "tokenizer": {"name": None, "hash": None},
            "known": [f"what {Path(path).name} says"],
            "inferred": [],
            "unknown": ["the tokenizer"],
        }
        | facts
    )
    card.facts["inferred"] = facts.get("inferred", []) + [
        f"{key}={value}, given by hand" for key, value in given.items()
    ]
    for number, order in enumerate(card.facts["orders"]):
        sizes = [card.sources[source]["bytes"] for source in card.source_numbers(number)]
        if order["name"] not in ("megatron", "unknown") and sizes and None not in sizes:
            samples = card.samples(number)
            order["samples"] = samples
            order["probes"] = probes_of(card.unchecked_order(number), samples)
    return Card(card.facts)


def source(path: str, header: int = 0) -> Facts:
    """A token file: its size, if it is here."""
    size = os.path.getsize(path) if os.path.isfile(path) else None
    found: Facts = {"name": path, "bytes": size}
    if header:
        found["first_byte"] = header
    return found


def stage(
    config: ForeignConfig, number: int, first: int, steps: int, batch: int, layout: str
) -> Facts:
    """A stage that begins its order at position 0; without ranks where they are not known."""
    ranks = config.take("dp_size", config.values.get("dp"), needed=False)
    rows = config.take("micro_batch_size", config.values.get("micro_batch_size"), needed=False)
    knows = None not in (ranks, rows)
    if knows:
        ranks = int(ranks)
        rows = int(rows)
    return {
        "name": f"stage {number + 1}",
        "first_step": first,
        "steps": steps,
        "order": number,
        "first_position": 0,
        "batch_size": batch,
        "layout": layout if knows else None,
        "dp_size": ranks if knows else None,
        "micro_batch_size": rows if knows else None,
    }


def order(name: str, seed: int, **facts: Any) -> Facts:
    return {"name": name, "seed": seed, "samples": None, "probes": {}} | facts


def from_nanotron(config: ForeignConfig) -> Facts:
    """Nanotron's main branch: folders of .ds files; of 2024: token files, or folders of one .ds file each."""
    tokens = config.values["tokens"]
    stages = sorted(config.values["data_stages"], key=lambda it: it["start_training_step"])
    datasets = [it["data"]["dataset"] for it in stages]
    length = tokens["sequence_length"]
    batch = tokens["micro_batch_size"] * tokens["batch_accumulation_per_replica"]
    batch *= config.values["parallelism"]["dp"]
    config.values |= {"dp": config.values["parallelism"]["dp"], **tokens}
    is_main = config.values["main"]
    if any(it.get("shuffle_files") for it in datasets):
        raise ValueError("shuffle_files is not read: write this card by hand")
    named = [as_list(it.get("dataset_path") or it["dataset_folder"]) for it in datasets]
    files = {name: _files_of(name) for names in named for name in names}
    size = {2: "uint16", 4: "uint32"}.get(datasets[0].get("token_size_in_bytes"))
    dtype = config.take("dtype", size)
    stride = length if "dataset_path" in datasets[0] else length + 1
    numbers = {path: n for n, path in enumerate(dict.fromkeys(itertools.chain(*files.values())))}
    stops = [it["start_training_step"] for it in stages[1:]] + [tokens["train_steps"] + 1]
    made = []
    if is_main and all(os.path.isfile(path) for path in numbers):
        config.check()
        row = np.dtype(dtype).itemsize * (length + 1)
        rows = {it: [os.path.getsize(path) // row for path in files[it]] for it in files}
        made = nanotron_stages(config.values, rows)
    facts: Facts = {
        "dtype": dtype,
        "window": {"row_length": length + 1, "stride": stride},
        "sources": [source(path) for path in numbers],
        "orders": [],
        "stages": [],
    }
    for number, (it, stop) in enumerate(zip(stages, stops, strict=True)):
        read = [numbers[path] for name in named[number] for path in files[name]]
        kind = "nanotron_main" if made else "unknown"
        if not is_main and len(read) == len(named[number]):
            kind = "nanotron"
        seed = config.take("seed", it["data"].get("seed"))
        weights = _weights(datasets[number])
        of_stage = order(kind, seed, weights=weights, sources=read)
        if made:
            of_stage["options"] = made[number].options
        facts["orders"].append(of_stage)
        first = it["start_training_step"]
        layout = "contiguous" if is_main else "strided"
        made_of = stage(config, number, first, stop - first, batch, layout)
        facts["stages"].append(made_of | {"name": it.get("name", made_of["name"])})
    return facts


def _weights(dataset: Facts) -> Any:
    named = dataset.get("dataset_path")
    if isinstance(named, dict):
        return [*named.values()]
    return dataset.get("dataset_weights")


def _files_of(name: str) -> list[str]:
    """A file, or the .ds files of a folder; a folder that is not here is kept as one name."""
    return sorted(glob.glob(f"{glob.escape(name.rstrip('/'))}/*.ds")) or [name]


def from_megatron(config: ForeignConfig) -> Facts:
    """Megatron-LM's arguments, or GPT-NeoX's YAML, whose names they share."""
    values = config.values
    if "rampup_batch_size" in values:
        raise ValueError(
            "a card of a growing batch (rampup-batch-size) has a stage for each: write it by hand"
        )
    blend, weights = _blend_of(values)
    rows = values.get("micro_batch_size") or values.get("train_micro_batch_size_per_gpu")
    values["micro_batch_size"] = rows
    batch = values.get("global_batch_size") or values.get("train_batch_size")
    is_neox = values.get("is_neox", False)
    if is_neox and batch is None and rows:
        accumulated = values.get("gradient_accumulation_steps") or values.get("gas") or 1
        batch = int(rows) * int(accumulated) * config.take("dp_size")
    batch = int(config.take("batch_size", batch))
    length = int(config.take("sequence_length", values.get("seq_length")))
    steps = values.get("train_iters")
    if steps is None and "train_samples" in values:
        steps = int(values["train_samples"]) // batch
    steps = int(config.take("steps", steps))
    samples = steps * batch
    options: Facts = {"split": str(values.get("split", "969,30,1")).replace(" ", "")}
    name = "megatron"
    if is_neox:
        options["separate_final_epoch"] = False
    if values.get("weight_by_num_documents"):
        name = "unknown"  # GPT-NeoX's weights then follow from the documents
    if "train_data_paths" in values:  # GPT-NeoX's
        options["split"] = "1,0,0"
        if weights is None:
            samples = math.ceil(samples * 1.005)  # its surplus; a blend adds its own
    facts = {"options": options, "weights": weights, "samples": samples}
    defaults = {"seed": 1234, "split": "969,30,1"}
    assumed = [f"{it}={value}, the default" for it, value in defaults.items() if it not in values]
    return {
        "dtype": config.take("dtype"),
        "window": {"row_length": length + 1, "stride": length},
        "sources": [source(f"{prefix}.bin") for prefix in blend],
        "orders": [order(name, int(values.get("seed", 1234)), **facts)],
        "stages": [stage(config, 0, 1, steps, batch, "contiguous")],
        "inferred": assumed,
    }


def _blend_of(values: Facts) -> tuple[list[str], list[float] | None]:
    """The prefixes and their weights, or one prefix and None."""
    blend = values.get("train_data_paths")  # GPT-NeoX's
    if blend:
        weights = values.get("train_data_weights") or [1.0] * len(blend)
        return blend, weights if len(blend) > 1 else None
    blend = as_list(values.get("data_path", []))
    if not blend:
        raise ValueError("the config names no data: data-path or train-data-paths")
    if len(blend) == 1:
        return blend, None
    return blend[1::2], [float(weight) for weight in blend[::2]]


def from_olmo_core(config: ForeignConfig) -> Facts:
    dataset = config.values["dataset"]
    loader = config.values["data_loader"]
    kind = dataset.get("_CLASS_", "NumpyFSLDatasetConfig").rpartition(".")[2]
    if kind != "NumpyFSLDatasetConfig" or dataset.get("source_mixture_config"):
        raise ValueError(
            f"only rows of one length (NumpyFSLDatasetConfig) are reproduced, not {kind}"
        )
    if any("*" in path for path in dataset.get("paths") or []):
        raise ValueError("paths with a * are not read: name the files in the order of the run")
    length = dataset["sequence_length"]
    target = dataset.get("max_target_sequence_length") or length
    batch = loader["global_batch_size"] // length
    duration = config.values.get("trainer", {}).get("max_duration", {})
    steps = None
    if duration.get("unit") == "steps":
        steps = duration["value"]
    if duration.get("unit") == "tokens":
        steps = -(-duration["value"] // loader["global_batch_size"])
    vocabulary = dataset.get("tokenizer", {}).get("vocab_size")
    dtype = dataset.get("dtype")
    if dtype is None and vocabulary:
        dtype = np.min_scalar_type(vocabulary - 1).name  # as get_dtype does
    options = {"chunk_size": target // length, "batch_size": batch}
    facts = {
        "dtype": config.take("dtype", dtype),
        "window": {"row_length": length, "stride": length},
        "sources": [source(path) for path in dataset.get("paths") or []],
        "orders": [order("olmo_core", loader["seed"], options=options)],
        "stages": [stage(config, 0, 1, config.take("steps", steps), batch, "strided")],
    }
    if not facts["sources"]:
        facts["listed"] = {
            "url": f"{MIXES}/{dataset['mix']}.txt",
            "sha256": None,
            "files": config.take("files"),
            "after": "",
            "pattern": r"(?m)^[^#,\n]+,(\S+)$",
            "address": f"{dataset['mix_base_dir'].rstrip('/')}/{{}}",
            "tokenizer": dataset.get("tokenizer", {}).get("identifier") or "{TOKENIZER}",
        }
    return facts


def from_llm_c(config: ForeignConfig) -> Facts:
    values = config.values
    length = int(config.take("sequence_length", values.get("t")))
    rows = int(config.take("micro_batch_size", values.get("b")))
    started = as_list(values.get("np", []))  # mpirun -np 8 ./train_gpt2cu -i ...
    ranks = int(config.take("dp_size", started[0] if started else None))
    values |= {"micro_batch_size": rows, "dp": ranks}
    tokens = int(values.get("d", length * rows * ranks))
    steps = int(values.get("x", -1))
    paths = sorted(glob.glob(str(values.get("i", ""))))
    if not paths:
        raise ValueError(f"no shard matches -i {values.get('i')}: write the card where they are")
    batch = tokens // length
    steps = config.take("steps", steps if steps > 0 else None)
    options = {"micro_batch_size": rows, "dp_size": ranks}
    return {
        "dtype": open_tokens(paths[0]).dtype.name,
        "window": {"row_length": length + 1, "stride": length},
        "sources": [source(path, 1024) for path in paths],
        "orders": [order("llm_c", 0, options=options)],
        "stages": [stage(config, 0, 1, steps, batch, "contiguous")],
    }


def read_arguments(path: PathLike) -> Facts:
    """{name without dashes: its value, or a list of them} of a command line, such as that of a script.

    What begins with a $ is left out: a card must not guess what a shell would put there.
    """
    text = Path(path).read_text(encoding="utf-8").replace("\\\n", " ")
    values: dict[str, list[str]] = {}
    name = None
    for word in shlex.split(text, comments=True):
        if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word):
            name, _, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            values[name] = [value] if value else []
        elif name and "$" not in word:
            values[name].append(word)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items() if found}


def read_neox(path: PathLike) -> Facts:
    config: Facts = train.read_yaml(path)
    return {name.replace("-", "_"): value for name, value in config.items()} | {"is_neox": True}


READERS: dict[str, tuple[Callable[[ForeignConfig], Facts], Callable[[PathLike], Facts], str]] = {
    "nanotron": (from_nanotron, lambda path: train.read_yaml(path) | {"main": True}, "2411b022"),
    "nanotron-2024": (
        from_nanotron,
        lambda path: train.read_yaml(path) | {"main": False},
        "2e36d6f",
    ),
    "megatron": (from_megatron, read_arguments, "d98e8a64dd"),
    "gpt-neox": (from_megatron, read_neox, "ea7aefd8"),
    "olmo-core": (from_olmo_core, read_json, "fa6c5014c"),
    "llm.c": (from_llm_c, read_arguments, "f1e2ace"),
}
