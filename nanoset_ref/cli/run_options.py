"""Which run a command is about: a YAML file, or token files and a layout given by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import NDArray

from nanoset_ref.cli.file_commands import Unsaid
from nanoset_ref.command import UsageError, at_least, paths_and_weights
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders.published import open_numbers
from nanoset_ref.provenance import Stretch, stretches_of_config
from nanoset_ref.rows import Rows
from nanoset_ref.schedule import Schedule
from nanoset_ref.tokens import Tokens, without_companions


@dataclasses.dataclass(kw_only=True)
class RunOptions(Unsaid):
    """Which run a command is about: its YAML file, or token files (and the options of a `Schedule`).

    Args:
        config: the YAML file of nanoset_ref.train; it says all of the run.
        data: FILE[=WEIGHT]: token files (.npy, or .ds in rows that share no token), or Megatron-style .bin/.idx pairs
            by either name or their prefix; all with a weight or none. A .bin without .idx is a raw token file.
        sequence_length: tokens per sample.
        row_length: tokens per row where rows share none and the rest of a file is dropped (OLMo: its sequence length,
            Pythia: 2049), instead of --sequence-length; .bin/.idx pairs are then read as other files are.
        num_samples: samples of the run (default: one epoch).
        seed: of the order.
        order: of token files: nanotron (the default), stateless, identity, or an .npy file of instance numbers, such as
            OLMo's global_indices.npy.
        split: of Megatron-style data, for train, valid, test; the first is looked at.
        tokenizer: name or folder; default: what the file says, or else the config.
    """

    config: str | None = None
    data: Sequence[str] = ()
    sequence_length: Annotated[int, at_least(1)] = 2048
    row_length: Annotated[int, at_least(2)] | None = None
    num_samples: int | None = None
    seed: int = 1234
    order: str | None = None
    split: str = "1,0,0"
    tokenizer: str | None = None

    def stretches(self, schedule: Schedule, workers: int = 0) -> list[Stretch]:
        """The stages of the YAML file, or the one stretch that the options and a layout describe."""
        if bool(self.config) == bool(self.data):
            raise UsageError("say which run is meant: either --config FILE.yaml, or --data FILE[=WEIGHT] ...")
        if self.config:
            from nanoset_ref.training.config import load_config

            return stretches_of_config(load_config(self.config))
        rows = self._rows()
        steps = max(0, len(rows) - schedule.consumed_train_samples) // schedule.global_batch_size
        return [Stretch(name="run", dataset=rows, schedule=schedule, num_steps=steps, num_workers=workers)]

    def _rows(self) -> Rows:
        paths, weights = paths_and_weights(without_companions(self.data))
        prefixes = [path.removesuffix(".bin").removesuffix(".idx") for path in paths]
        pairs = [
            path.endswith(".idx") or Path(f"{prefix}.idx").is_file()
            for path, prefix in zip(paths, prefixes, strict=True)
        ]
        if all(pairs) and not self.row_length:
            return self._megatron_rows(prefixes, weights)
        if any(pairs) and not self.row_length:
            raise ValueError(f"a run reads token files or .bin/.idx pairs, not both; convert some, got {paths}")
        files = [self.open(path) for path in paths]
        order, num_samples, disjoint = self.order or "nanotron", self.num_samples, bool(self.row_length)
        length = self.row_length - 1 if self.row_length else self.sequence_length
        if num_samples is None:
            epoch = sum(file.num_samples(length, disjoint) for file in files)
            num_samples = len(open_numbers(order)) if order.endswith(".npy") else epoch
        return Nanoset(files, weights, length, num_samples, self.seed, order=order, disjoint=disjoint)

    def _megatron_rows(self, prefixes: list[str], weights: list[float] | None) -> Rows:
        if self.order is not None:
            raise ValueError(f"--order {self.order} is for token files, or .bin/.idx pairs with a --row-length")
        if weights and self.num_samples is None:
            raise ValueError("a weighted blend of .bin/.idx pairs has no epoch of its own; give --num-samples")
        data_path: list[Any] = [*prefixes]
        if weights:
            data_path = [entry for pair in zip(weights, prefixes, strict=True) for entry in pair]
        config = NanosetConfig(
            random_seed=self.seed,
            sequence_length=self.sequence_length,
            data_path=data_path,
            split=self.split,
            split_num_samples=(None, None, None) if self.num_samples is None else (self.num_samples, 0, 0),
        )
        train = NanosetBuilder(config).build(["train"])[0]
        if train is None:
            raise ValueError(f"--split {self.split} leaves nothing for the first part, which is looked at")
        return train

    def tokenizer_of(self, file: Tokens) -> Any:
        from nanoset_ref.tokenise.encode import load_tokenizer

        name = self.tokenizer or file.facts.get("tokenizer")
        if not name and self.config:
            from nanoset_ref.training.strict_yaml import read_yaml

            name = (read_yaml(self.config).get("tokenizer") or {}).get("tokenizer_name_or_path")
        if not name:
            raise ValueError("the file does not say its tokenizer; give --tokenizer")
        return load_tokenizer(name)

    def decode(self, file: Tokens, ids: NDArray[Any]) -> str:
        return self.tokenizer_of(file).decode(ids.tolist())


def stretch_at(stretches: Sequence[Stretch], step: int) -> Stretch:
    """The stretch that holds a step; IndexError if none does."""
    for stretch in stretches:
        first = stretch.schedule.first_step
        if first <= step < first + stretch.num_steps:
            return stretch
    first, steps = stretches[0].schedule.first_step, sum(stretch.num_steps for stretch in stretches)
    if not steps:
        raise IndexError(
            f"this run has no steps: its {len(stretches[0].dataset)} samples fill none; give --num-samples"
        )
    raise IndexError(f"step {step} is not one of this run's steps {first} to {first + steps - 1}")
