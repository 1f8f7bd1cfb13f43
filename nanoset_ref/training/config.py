"""The YAML file of a training run, as frozen dataclasses.

The keys are Nanotron's. Everything is checked when the file is loaded, before processes talk or a batch is read, and an
error carries the path of what is wrong: "data_stages[1].start_training_step: 15 is used twice". An unknown key is an
error, too: else a misspelt `num_loading_workes` would mean the default, in silence. The alternative it rejects, a
schema library, would be one more dependency in place of the hundred lines of `strict_yaml`.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

from nanoset_ref.tokenise.encode import TokenizerError, load_tokenizer
from nanoset_ref.tokens import TokenFile, TokenFileError
from nanoset_ref.training.strict_yaml import ConfigError, load_yaml, unknown_key


def _require(condition: bool, message: str) -> None:
    """The message begins with the name of a field."""
    if not condition:
        raise ConfigError(message)


def _at_least(low: int, config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value >= low, f"{name}: must be at least {low}, got {value}")
        _require(value < 2**63, f"{name}: must be below 2**63, got {value}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """Which token files a stage reads, and in which order.

    Args:
        dataset_path: one path; a list of paths (an epoch reads every sample of each once); or {path: weight}.
        order: "nanotron" or "stateless" (see `orders`).
        token_dtype: dtype of files without a manifest.
        reuse: of files that an earlier stage read: "continue" reads on where it stopped; "restart" begins again, as
            Nanotron originally did. None: "continue" for the stateless order, "restart" for Nanotron's.
    """

    dataset_path: Any
    order: Literal["nanotron", "stateless"] = "nanotron"
    token_dtype: Literal["uint16", "int32"] | None = None
    reuse: Literal["continue", "restart"] | None = None

    def __post_init__(self) -> None:
        given = self.dataset_path
        forms = f"dataset_path: must be one path, a list of paths or a mapping of paths to weights, got {given!r}"
        _require(isinstance(given, (str, list, tuple, Mapping)) and len(self.paths) > 0, forms)
        _require(all(isinstance(path, str) and path for path in self.paths), forms)
        _require(len(set(self.paths)) == len(self.paths), f"dataset_path: a file may stand here once, got {given!r}")
        weights = given if isinstance(given, Mapping) else {"": 1}
        for path, weight in weights.items():
            number = isinstance(weight, (int, float)) and not isinstance(weight, bool) and math.isfinite(weight)
            _require(number and weight >= 0, f"dataset_path: the weight of {path!r} must be from 0 on, got {weight!r}")
        _require(sum(weights.values()) > 0, f"dataset_path: one weight at least must be above 0, got {given!r}")
        # one file has one name, however it is spelt: stages that share it are found by it
        names = {path: os.path.abspath(path) for path in self.paths}
        _require(len(set(names.values())) == len(names), f"dataset_path: a file may stand here once, got {given!r}")
        one = {names[path]: weight for path, weight in given.items()} if isinstance(given, Mapping) else None
        object.__setattr__(self, "dataset_path", one or ([*names.values()] if len(names) > 1 else names.popitem()[1]))
        if self.reuse is None:
            object.__setattr__(self, "reuse", "continue" if self.order == "stateless" else "restart")

    @property
    def paths(self) -> list[str]:
        return [self.dataset_path] if isinstance(self.dataset_path, str) else list(self.dataset_path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """
    Args:
        dataset: what is read.
        num_loading_workers: processes per rank that read ahead; 0 reads in the training process.
        seed: of the order.
    """

    dataset: DatasetConfig
    num_loading_workers: int = 0
    seed: int = 1234

    def __post_init__(self) -> None:
        _at_least(0, self, "num_loading_workers")
        _require(0 <= self.seed < 2**32, f"seed: must lie in 0 .. 2**32 - 1, got {self.seed}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataStage:
    """
    Args:
        name: what the progress shows, and under which the state counts.
        start_training_step: the first step, from 1, whose samples come from this stage.
        data: what it reads.
    """

    name: str
    start_training_step: int
    data: DataConfig

    def __post_init__(self) -> None:
        _require(self.name != "", "name: must not be empty")
        start = self.start_training_step
        _require(start >= 1, f"start_training_step: steps are counted from 1, got {start}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokensConfig:
    """
    Args:
        sequence_length: tokens per sample that the model is fed; a sample is read with one more.
        train_steps: optimizer steps of the whole run.
        micro_batch_size: samples per forward pass of one data-parallel rank.
        batch_accumulation_per_replica: forward passes per step of one data-parallel rank.
    """

    sequence_length: int
    train_steps: int
    micro_batch_size: int
    batch_accumulation_per_replica: int = 1

    def __post_init__(self) -> None:
        _at_least(1, self, *vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelismConfig:
    """Numbers of data-, pipeline- and tensor-parallel ranks; their product is the number of processes."""

    dp: int = 1
    pp: int = 1
    tp: int = 1

    def __post_init__(self) -> None:
        _at_least(1, self, *vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """tokenizer_name_or_path: what the token files were written with. Training itself only needs its size."""

    tokenizer_name_or_path: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """
    Args:
        model_config: the fields of a transformers config, among them `model_type`; the weights are drawn at random.
        dtype: in which forward and backward compute. Parameters and optimizer are float32.
    """

    model_config: dict[str, Any]
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        self.transformers_config()

    def transformers_config(self) -> Any:
        from transformers import AutoConfig

        fields = dict(self.model_config)
        model_type = fields.pop("model_type", None)
        try:
            known = AutoConfig.for_model(model_type)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"model_config.model_type: {model_type!r} is not one that transformers knows") from error
        names = known.to_dict().keys() | known.attribute_map.keys() | {"rope_theta", "rope_scaling"}
        for name in fields:
            _require(name in names, unknown_key(f"model_config.{name}", name, names))
        try:
            return AutoConfig.for_model(model_type, **fields)
        except Exception as error:  # each kind of transformers config has errors of its own
            raise ConfigError(f"model_config: {error}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointsConfig:
    """
    Args:
        checkpoints_path: the run's folder, which all ranks must see; the newest valid checkpoint in it is continued.
        checkpoint_interval: steps from one checkpoint to the next; the last step is saved in any case.
    """

    checkpoints_path: str
    checkpoint_interval: int

    def __post_init__(self) -> None:
        _at_least(1, self, "checkpoint_interval")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """A linear warm-up over lr_warmup_steps, then a cosine from learning_rate down to min_decay_lr at the last step."""

    learning_rate: float = 3e-4
    lr_warmup_steps: int = 0
    min_decay_lr: float = 0.0

    def __post_init__(self) -> None:
        _at_least(0, self, *vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWConfig:
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("adam_beta1", "adam_beta2"):
            _require(0 <= getattr(self, name) < 1, f"{name}: must lie in [0, 1), got {getattr(self, name)}")
        _at_least(0, self, "adam_eps")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW. clip_grad: largest norm of the gradient, None for any."""

    learning_rate_scheduler: ScheduleConfig = ScheduleConfig()
    optimizer_factory: AdamWConfig = AdamWConfig()
    weight_decay: float = 0.01
    clip_grad: float | None = 1.0

    def __post_init__(self) -> None:
        _at_least(0, self, "weight_decay")
        clip = self.clip_grad
        _require(clip is None or clip > 0, f"clip_grad: must be above 0 or null, got {clip}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneralConfig:
    """seed: of the initial weights, of dropout and of the loading workers."""

    seed: int = 42

    def __post_init__(self) -> None:
        _require(-(2**63) <= self.seed < 2**63, f"seed: must fit 64 bits, got {self.seed}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. The stages may stand in any order; their first steps decide."""

    data_stages: tuple[DataStage, ...]
    tokens: TokensConfig
    model: ModelConfig
    checkpoints: CheckpointsConfig
    tokenizer: TokenizerConfig | None = None
    parallelism: ParallelismConfig = ParallelismConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    general: GeneralConfig = GeneralConfig()

    def __post_init__(self) -> None:
        names: list[str] = []
        starts: list[int] = []
        for index, stage in enumerate(self.data_stages):
            path, start, last = f"data_stages[{index}]", stage.start_training_step, self.tokens.train_steps
            _require(stage.name not in names, f"{path}.name: {stage.name!r} is used twice")
            _require(start not in starts, f"{path}.start_training_step: {start} is used twice")
            _require(start <= last, f"{path}.start_training_step: {start} never comes, tokens.train_steps is {last}")
            names.append(stage.name)
            starts.append(start)
        _require(1 in starts, f"data_stages: one stage must have start_training_step 1, got {starts}")
        longest = getattr(self.model.transformers_config(), "max_position_embeddings", math.inf)
        length = self.tokens.sequence_length
        _require(length <= longest, f"tokens.sequence_length: {length} is above the model's {longest} positions")

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return self.parallelism.dp * self.tokens.micro_batch_size * self.tokens.batch_accumulation_per_replica


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read and check a YAML file; paths in it are relative to the working directory.

    Raises:
        FileNotFoundError: no such file.
        ConfigError: anything that is wrong, with its path in the file.
    """
    config = load_yaml(path, Config)
    try:
        check_vocabulary(config)
    except ConfigError as error:
        raise ConfigError(f"{os.fspath(path)}: {error}") from error
    return config


def check_vocabulary(config: Config) -> None:
    """Hold tokenizer, token files and model against each other: every id must have an embedding.

    A file without a manifest is taken at its word. More embeddings than ids are fine (they are often padded).

    Raises:
        ConfigError: a tokenizer or file that cannot be opened, or a vocabulary that does not fit.
    """
    embeddings = config.model.transformers_config().vocab_size
    named = None
    if config.tokenizer is not None:
        try:
            named = len(load_tokenizer(config.tokenizer.tokenizer_name_or_path))
        except TokenizerError as error:
            raise ConfigError(f"tokenizer.tokenizer_name_or_path: {error}") from error
        fits = f"model.model_config.vocab_size: {embeddings} is smaller than the tokenizer's vocabulary of {named} ids"
        _require(named <= embeddings, fits)
    for index, stage in enumerate(config.data_stages):
        where = f"data_stages[{index}].data.dataset.dataset_path"
        for path in stage.data.dataset.paths:
            try:
                file = TokenFile(path, stage.data.dataset.token_dtype)
                file.num_samples(config.tokens.sequence_length)
            except (FileNotFoundError, TokenFileError) as error:
                raise ConfigError(f"{where}: {error}") from error
            size = file.manifest and file.manifest.vocab_size
            if size is None:
                continue
            has = f"{where}: {path} has a vocabulary of {size} ids"
            _require(size <= embeddings, f"{has}, model.model_config.vocab_size is only {embeddings}")
            _require(named in (None, size), f"{has}, the tokenizer of tokenizer.tokenizer_name_or_path has {named}")
