"""Which run a command is about: a YAML file, or token files and a layout given by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import NDArray

from nanoset_ref.cli.file_commands import id_dtype
from nanoset_ref.command import at_least
from nanoset_ref.formats import open_tokens, without_companions
from nanoset_ref.megatron import MMapIndexedDataset, NanosetBuilder, NanosetConfig
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.provenance import Stretch, stretches_of_config
from nanoset_ref.rows import Rows
from nanoset_ref.schedule import Schedule
from nanoset_ref.tokens import Tokens


@dataclasses.dataclass(kw_only=True)
class RunOptions:
    """Which run a command is about: its YAML file, or token files (and the options of a `Schedule`).

    Args:
        config: the YAML file of nanoset_ref.train; it says all of the run.
        data: FILE[=WEIGHT]: token files (.npy, or .ds in rows that share no token), or Megatron-style .bin/.idx pairs
            by either name or their prefix; all with a weight or none.
        sequence_length: tokens per sample.
        num_samples: samples of the run (default: one epoch).
        seed: of the order.
        order: nanotron or stateless, of token files (default: nanotron).
        token_dtype: of files without a manifest (default: uint16).
        split: of Megatron-style data, for train, valid, test; the first is looked at.
        tokenizer: name or folder; default: what the file says.
        json: print JSON instead of text.
    """

    config: str | None = None
    data: Sequence[str] = ()
    sequence_length: Annotated[int, at_least(1)] = 2048
    num_samples: int | None = None
    seed: int = 1234
    order: str | None = None
    token_dtype: Annotated[str, id_dtype] | None = None
    split: str = "1,0,0"
    tokenizer: str | None = None
    json: bool = False

    def stretches(self, schedule: Schedule, workers: int = 0) -> list[Stretch]:
        """The stages of the YAML file, or the one stretch that the options and a layout describe."""
        if self.config and self.data:
            raise ValueError(f"--config {self.config} says all of a run; leave out --data, or --config")
        if self.config:
            from nanoset_ref.training.config import load_config

            return stretches_of_config(load_config(self.config))
        if not self.data:
            raise ValueError("say which run is meant: --config FILE.yaml, or --data FILE[=WEIGHT] ... with a layout")
        dataset = self._dataset()
        steps = max(0, len(dataset) - schedule.consumed_train_samples) // schedule.global_batch_size
        return [Stretch(name="run", dataset=dataset, schedule=schedule, num_steps=steps, num_workers=workers)]

    def _dataset(self) -> Rows:
        paths, weights = paths_and_weights(without_companions(self.data))
        pairs = [Path(path).suffix in (".bin", ".idx") or MMapIndexedDataset.exists(path) for path in paths]
        if any(pairs) and not all(pairs):
            raise ValueError(f"a run reads token files or .bin/.idx pairs, not both; convert some, got {paths}")
        return self._megatron(paths, weights) if all(pairs) else self._nanoset(paths, weights)

    def _nanoset(self, paths: Sequence[str], weights: Sequence[float] | None) -> Nanoset:
        files = [open_tokens(path, self.token_dtype) for path in paths]
        num_samples = self.num_samples
        if num_samples is None:
            num_samples = sum(file.num_samples(self.sequence_length) for file in files)
        return Nanoset(files, weights, self.sequence_length, num_samples, self.seed, order=self.order or "nanotron")

    def _megatron(self, paths: Sequence[str], weights: Sequence[float] | None) -> Rows:
        if self.order is not None:
            raise ValueError(f"--order {self.order} is for token files; .bin/.idx pairs have Megatron's order")
        if weights and self.num_samples is None:
            raise ValueError("a weighted blend of .bin/.idx pairs has no epoch of its own; give --num-samples")
        prefixes = [path.removesuffix(".bin").removesuffix(".idx") for path in paths]
        data_path = dict(zip(prefixes, weights, strict=True)) if weights else prefixes
        config = NanosetConfig(
            random_seed=self.seed,
            sequence_length=self.sequence_length,
            data_path=data_path if len(paths) > 1 or weights else prefixes[0],
            split=self.split,
            split_num_samples=(None, None, None) if self.num_samples is None else (self.num_samples, 0, 0),
        )
        train = NanosetBuilder(config).build()[0]
        if train is None:
            raise ValueError(f"--split {self.split} leaves nothing for the first part, which is looked at")
        return train

    def decode(self, file: Tokens, ids: NDArray[Any]) -> str:
        from nanoset_ref.tokenise.encode import load_tokenizer

        return str(load_tokenizer(self.tokenizer_name(file)).decode(ids.tolist()))

    def tokenizer_name(self, file: Tokens) -> str:
        name = self.tokenizer or file.facts.get("tokenizer")
        if not name:
            raise ValueError("the file does not say its tokenizer; give --tokenizer")
        return name


def stretch_at(stretches: Sequence[Stretch], step: int) -> Stretch:
    """The stretch that holds a step; IndexError if none does."""
    first = stretches[0]
    if not any(stretch.num_steps for stretch in stretches):
        raise IndexError(
            f"this run has no steps: {len(first.dataset)} samples, of which {first.schedule.consumed_train_samples} "
            f"are consumed, do not fill a step of {first.schedule.global_batch_size}; give --num-samples"
        )
    for stretch in stretches:
        if stretch.schedule.first_step <= step < stretch.schedule.first_step + stretch.num_steps:
            return stretch
    last = stretches[-1].schedule.first_step + stretches[-1].num_steps - 1
    raise IndexError(f"step {step} is not one of this run's steps {first.schedule.first_step} to {last}")


def paths_and_weights(items: Sequence[str]) -> tuple[list[str], list[float] | None]:
    """["a=0.8", "b=0.2"] -> (["a", "b"], [0.8, 0.2]); ["a", "b"] -> (["a", "b"], None)."""
    parts = [("", "", item) if Path(item).exists() else item.rpartition("=") for item in items]
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
