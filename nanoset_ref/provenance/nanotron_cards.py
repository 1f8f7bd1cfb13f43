"""Cards from Nanotron's YAML: of its main branch, or of the Nanosets of 2024."""

import glob
import itertools
import os
from collections.abc import Mapping, Sequence

import numpy as np

from nanoset_ref.io.paths import as_list
from nanoset_ref.io.types import Json
from nanoset_ref.orders.others.nanotron_stages import (
    nanotron_stages,
    stages_reached,
)
from nanoset_ref.provenance.loader_config import (
    LoaderConfig,
    order_facts,
    source_facts,
    tokenizer_facts,
)


def from_nanotron(config: LoaderConfig, *, is_main: bool) -> Json:
    """The facts of a card, from Nanotron's YAML.

    Args:
        config: the YAML, parsed.
        is_main: whether it belongs to the main branch, with folders of .ds files; else to the
            Nanosets of 2024, with token files or folders of one .ds file each.
    """
    tokens = config.values["tokens"]
    tokenizer = config.values.get("tokenizer") or {}
    reached = stages_reached(config.values)
    stages = [stage for stage, _ in reached]
    datasets = [stage["data"]["dataset"] for stage in stages]
    for stage, dataset in zip(stages, datasets, strict=True):
        if not {"dataset_path", "dataset_folder"} & set(dataset or {}):
            raise ValueError(
                f"stage {stage.get('name')} reads no token files: its dataset has no "
                "dataset_folder (2024: dataset_path)"
            )
    if any(dataset.get("shuffle_files") for dataset in datasets):
        raise ValueError("shuffle_files is not supported: write this card by hand")
    size = datasets[0].get("token_size_in_bytes")
    dtype = {2: "uint16", 4: "uint32"}.get(size)
    row_length = tokens["sequence_length"] + 1
    stride = row_length
    if "dataset_path" in datasets[0]:
        stride = row_length - 1
    files: dict[str, list[str]] = {}
    for dataset in datasets:
        files |= {name: _files_named(name) for name in _dataset_paths(dataset)}
    paths = dict.fromkeys(itertools.chain(*files.values()))
    numbers = {path: number for number, path in enumerate(paths)}
    orders = [
        _nanotron_order(config, stage["data"], files, numbers) for stage in stages
    ]
    layout = "contiguous" if is_main else "strided"
    facts = {
        **tokenizer_facts(tokenizer.get("tokenizer_name_or_path")),
        "dtype": config.fact("dtype", dtype),
        "window": {"row_length": row_length, "stride": stride},
        "sources": [source_facts(path) for path in paths],
        "orders": orders,
        "stages": _stages_of_card(config, reached, layout),
    }
    if is_main:
        _use_main_orders(config, facts, files)
    return facts


def _nanotron_order(
    config: LoaderConfig,
    data: Json,
    files: Mapping[str, list[str]],
    numbers: Mapping[str, int],
) -> Json:
    """The order of a stage as the Nanosets of 2024 compute it, from one file for each name.

    Args:
        config: may be given the seed.
        data: the stage's section of the config.
        files: {a name in the section: its files}.
        numbers: {path: number in the card}.
    """
    dataset = data["dataset"]
    folders = _dataset_paths(dataset)
    read = [numbers[path] for folder in folders for path in files[folder]]
    name = "nanotron" if len(read) == len(folders) else "unknown"
    weights = dataset.get("dataset_weights")
    if isinstance(dataset.get("dataset_path"), dict):
        weights = list(dataset["dataset_path"].values())
    seed = config.fact("seed", data.get("seed"))
    return order_facts(name, seed, weights=weights, sources=read)


def _use_main_orders(
    config: LoaderConfig,
    facts: Json,
    files: Mapping[str, list[str]],
) -> None:
    """Replace the orders by those of Nanotron's main branch; this needs the sizes of all files."""
    if any(source["bytes"] is None for source in facts["sources"]):
        for order in facts["orders"]:
            order["name"] = "unknown"
        return
    config.check()  # the dtype is known
    itemsize = np.dtype(facts["dtype"]).itemsize
    row_bytes = itemsize * facts["window"]["row_length"]
    rows = {}
    for name, paths in files.items():
        rows[name] = [os.path.getsize(path) // row_bytes for path in paths]
    stages = nanotron_stages(config.values, rows)
    for order, computed in zip(facts["orders"], stages, strict=True):
        order.update(name="nanotron_main", options=computed.options)


def _stages_of_card(
    config: LoaderConfig,
    reached: Sequence[tuple[Json, range]],
    layout: str,
) -> list[Json]:
    """The stages of a card, from those of the config."""
    tokens = config.values["tokens"]
    ranks = config.values["parallelism"]["dp"]
    rows = tokens["micro_batch_size"]
    batch_size = rows * tokens["batch_accumulation_per_replica"] * ranks
    described = []
    for number, (stage, steps) in enumerate(reached):
        facts = config.stage_facts(number, steps, batch_size, layout, ranks, rows)
        if "name" in stage:
            facts["name"] = stage["name"]
        described.append(facts)
    return described


def _dataset_paths(dataset: Json) -> list[str]:
    """The files or folders that a dataset section names."""
    paths = dataset.get("dataset_path") or dataset["dataset_folder"]
    return list(paths) if isinstance(paths, Mapping) else as_list(paths)


def _files_named(name: str) -> list[str]:
    """A file, or the .ds files of a folder; the name itself if the folder is not here."""
    folder = glob.escape(name.rstrip("/"))
    return sorted(glob.glob(f"{folder}/*.ds")) or [name]
