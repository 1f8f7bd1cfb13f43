"""Which run a subcommand is about: a YAML file, or token files and a layout given by hand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.cli.output import at_least, id_dtype, without_companions
from nanoset_ref.datatrove import DatatroveFile
from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.config import NanosetConfig
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.provenance.legs import Leg, legs_of_config
from nanoset_ref.schedule import Schedule
from nanoset_ref.tokenise.encode import load_tokenizer
from nanoset_ref.tokens import TokenFile
from nanoset_ref.training.config import load_config


def run_arguments() -> argparse.ArgumentParser:
    """A parent parser with the arguments that name a run."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("the run, from its YAML file")
    group.add_argument("--config", help="the YAML file of nanoset_ref.train; it says all of what follows")
    add = parser.add_argument_group("the run, by hand").add_argument
    add(
        "--data",
        nargs="+",
        default=[],
        metavar="FILE[=WEIGHT]",
        help="token files (.npy, or .ds in rows that share no token), or Megatron-style .bin/.idx pairs by either name "
        "or their prefix; all with a weight or none",
    )
    add("--sequence-length", type=at_least(1), default=2048, help="tokens per sample (default: %(default)s)")
    add("--num-samples", type=int, help="samples of the run (default: one epoch)")
    add("--seed", type=int, default=1234, help="of the order (default: %(default)s)")
    add("--order", help="nanotron or stateless, of token files (default: nanotron)")
    add("--token-dtype", type=id_dtype, help="of files without a manifest (default: uint16)")
    add(
        "--split",
        default="1,0,0",
        help="of Megatron-style data, for train, valid, test; the first is looked at (default: %(default)s)",
    )
    add("--dp-size", type=int, default=1, help="data-parallel ranks (default: %(default)s)")
    add("--micro-batch-size", type=int, default=1, help="samples per rank and forward pass (default: %(default)s)")
    add("--batch-accumulation", type=int, default=1, help="forward passes per step (default: %(default)s)")
    add("--layout", default="strided", help="strided or contiguous (default: %(default)s)")
    add(
        "--consumed-train-samples",
        type=int,
        default=0,
        help="global count at which this layout began (default: %(default)s)",
    )
    add("--first-step", type=int, default=1, help="the step that began there (default: %(default)s)")
    return parser


def legs_of(options: argparse.Namespace) -> list[Leg]:
    """The run as legs: the stages of the YAML file, or a single one.

    Raises:
        ValueError: neither --config nor --data, or both; weights for some files only; files of both kinds.
    """
    if options.config and options.data:
        raise ValueError(f"--config {options.config} says all of a run; leave out --data, or --config")
    if options.config:
        return legs_of_config(load_config(options.config))
    if not options.data:
        raise ValueError("say which run is meant: --config FILE.yaml, or --data FILE[=WEIGHT] ... with a layout")
    paths, weights = _paths_and_weights(without_companions(options.data))
    pairs = [Path(path).suffix in (".bin", ".idx") or MMapIndexedDataset.exists(path) for path in paths]
    if any(pairs) and not all(pairs):
        raise ValueError(
            f"a run reads token files or .bin/.idx pairs, not both, got {paths}; nanoset-ref convert helps"
        )
    dataset = (_megatron if all(pairs) else _nanoset)(options, paths, weights)
    schedule = Schedule(
        dp_size=options.dp_size,
        micro_batch_size=options.micro_batch_size,
        batch_accumulation_per_replica=options.batch_accumulation,
        layout=options.layout,
        consumed_train_samples=options.consumed_train_samples,
        first_step=options.first_step,
    )
    num_steps = max(0, len(dataset) - schedule.consumed_train_samples) // schedule.global_batch_size
    return [
        Leg(
            name="run",
            dataset=dataset,
            schedule=schedule,
            num_steps=num_steps,
            num_workers=getattr(options, "workers", 0),
        )
    ]


def leg_at(legs: Sequence[Leg], step: int) -> Leg:
    """The leg that holds a step; IndexError if none does."""
    if not any(leg.num_steps for leg in legs):
        schedule = legs[0].schedule
        raise IndexError(
            f"this run has no steps: {len(legs[0].dataset)} samples, of which {schedule.consumed_train_samples} are "
            f"consumed, do not fill a step of {schedule.global_batch_size}; give --num-samples"
        )
    for leg in legs:
        if leg.schedule.first_step <= step < leg.schedule.first_step + leg.num_steps:
            return leg
    first, last = legs[0].schedule.first_step, legs[-1].schedule.first_step + legs[-1].num_steps - 1
    raise IndexError(f"step {step} is not one of this run's steps {first} to {last}")


def tokenizer_of(options: argparse.Namespace, file: Any) -> Any:
    """The tokenizer that --tokenizer names, else the one that the file's manifest names."""
    name = (
        options.tokenizer
        or getattr(file, "tokenizer", None)
        or getattr(getattr(file, "manifest", None), "tokenizer", None)
    )
    if not name:
        raise ValueError("the file does not say its tokenizer; give --tokenizer")
    return load_tokenizer(name)


def _nanoset(options: argparse.Namespace, paths: Sequence[str], weights: Sequence[float] | None) -> Nanoset:
    itemsize = None if options.token_dtype is None else np.dtype(options.token_dtype).itemsize
    files = [
        DatatroveFile(path, token_size=itemsize) if path.endswith(".ds") else TokenFile(path, options.token_dtype)
        for path in paths
    ]
    epoch = sum(file.num_samples(options.sequence_length) for file in files)
    num_samples = epoch if options.num_samples is None else options.num_samples
    order = options.order or "nanotron"
    return Nanoset(files, weights, options.sequence_length, num_samples, options.seed, order=order)


def _megatron(options: argparse.Namespace, paths: Sequence[str], weights: Sequence[float] | None) -> Any:
    paths = [path.removesuffix(".bin").removesuffix(".idx") for path in paths]
    if options.order is not None:
        raise ValueError(f"--order {options.order} is for token files; .bin/.idx pairs have Megatron's order")
    if weights and options.num_samples is None:
        raise ValueError("a weighted blend of .bin/.idx pairs has no epoch of its own; give --num-samples")
    data_path = dict(zip(paths, weights, strict=True)) if weights else paths
    train = NanosetBuilder(
        NanosetConfig(
            random_seed=options.seed,
            sequence_length=options.sequence_length,
            data_path=data_path if len(paths) > 1 or weights else paths[0],
            split=options.split,
            split_num_samples=(options.num_samples, 0, 0) if options.num_samples is not None else (None, None, None),
        )
    ).build()[0]
    if train is None:
        raise ValueError(f"--split {options.split} leaves nothing for the first part, which is looked at")
    return train


def _paths_and_weights(items: Sequence[str]) -> tuple[list[str], list[float] | None]:
    """["a=0.8", "b=0.2"] -> (["a", "b"], [0.8, 0.2]); ["a", "b"] -> (["a", "b"], None)."""
    parts = [item.rpartition("=") if not Path(item).exists() else ("", "", item) for item in items]
    named = [path for path, _, _ in parts if path]
    if not named:
        return list(items), None
    if len(named) < len(items):
        raise ValueError(f"give every file a weight or none, got {list(items)}")
    weights = []
    for path, _, weight in parts:
        try:
            weights.append(float(weight))
        except ValueError:
            raise ValueError(f"the weight of {path} must be a number, such as {path}=0.5, got {weight!r}") from None
    return named, weights
