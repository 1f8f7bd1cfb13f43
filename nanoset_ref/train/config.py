"""The YAML file of a training run, as pydantic models.

The keys are Nanotron's. Everything is checked when the file is loaded, before processes talk or a batch is read, and
all errors are reported at once, each with its path: "data_stages[1].start_training_step: 15 is used twice". An unknown
key is an error: otherwise a misspelt `num_loading_workes` would silently mean the default.
"""

from __future__ import annotations

import functools
import logging
import os
import reprlib
from collections.abc import Iterator
from typing import Any, Literal

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import PathLike, problems_of, unknown_key
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.train.data_section import (
    ROADS,
    Count,
    DataConfig,
    DatasetConfig,
    NotNegative,
    Section,
    Size,
    TextSection,
)
from nanoset_ref.train.strict_yaml import ConfigError, one_line, read_yaml

with extra("train", "a training run"):
    from pydantic import Field, ValidationError, ValidationInfo, field_validator

logger = logging.getLogger(__name__)

SIZES = "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"


class DataStage(Section):
    """
    Args:
        name: what the progress shows, and under which the state counts.
        start_training_step: the first step, from 1, whose samples come from this stage.
        data: what it reads.
    """

    name: str = Field(min_length=1)
    start_training_step: Count
    data: DataConfig


class TokensConfig(Section):
    """
    Args:
        sequence_length: tokens per sample that the model is fed; a sample is read with one more.
        train_steps: optimizer steps of the whole run.
        micro_batch_size: samples per forward pass of one data-parallel rank.
        batch_accumulation_per_replica: forward passes per step of one data-parallel rank.
    """

    sequence_length: Count
    train_steps: Count
    micro_batch_size: Size
    batch_accumulation_per_replica: Size = 1


class ParallelismConfig(Section):
    """Numbers of data-, pipeline- and tensor-parallel ranks; their product is the number of processes."""

    dp: Size = 1
    pp: Size = 1
    tp: Size = 1


class TokenizerConfig(Section):
    """tokenizer_name_or_path: what the token files were written with. Training itself only needs its size."""

    tokenizer_name_or_path: str

    @functools.cached_property
    def size(self) -> int:
        """The number of its ids; it is loaded for that once."""
        from nanoset_ref.preprocess.encode import load_tokenizer

        return len(load_tokenizer(self.tokenizer_name_or_path))


class ModelConfig(Section):
    """
    Args:
        fields: in the file `model_config`, the fields of a transformers config, among them `model_type`; the weights
            are drawn at random.
        dtype: in which forward and backward compute. Parameters and optimizer are float32.
    """

    fields: dict[str, Any] = Field(alias="model_config")
    dtype: Literal["float32", "bfloat16"] = "float32"

    @field_validator("fields")
    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> dict[str, Any]:
        transformers_config(fields)
        return fields


def transformers_config(fields: dict[str, Any]) -> Any:
    """A new transformers config; ValueError for fields that it does not have or cannot use."""
    with extra("train", "a model"):
        from transformers import AutoConfig

    kind: Any = fields.get("model_type")
    try:
        known, config = AutoConfig.for_model(kind), AutoConfig.for_model(**fields)
        small = [name for name in SIZES if getattr(config, name, 1) < 1]
    except Exception as error:  # each kind of transformers config has errors of its own
        raise ValueError(f"of model_type {reprlib.repr(kind)}: {one_line(error)}") from error
    added = vars(config).keys() - vars(known).keys()  # what it does not know it keeps all the same
    problems = [f"{name}: {unknown_key(name, vars(known))}" for name in added]
    problems += [f"{name}: must be at least 1, got {getattr(config, name)}" for name in small]
    if problems:
        raise ValueError("\n".join(problems))
    return config


class CheckpointsConfig(Section):
    """
    Args:
        checkpoints_path: the run's folder, which all ranks must see; the newest valid checkpoint in it is continued.
        checkpoint_interval: steps from one checkpoint to the next; the last step of the run, and of each chunk, is
            saved in any case.
        keep_checkpoints: how many of the newest valid ones stay when a new one is complete;
            null: all. Each is read once to know that it is valid.
    """

    checkpoints_path: str
    checkpoint_interval: Count
    keep_checkpoints: Count | None = None


class ScheduleConfig(Section):
    """A linear warm-up over lr_warmup_steps, then a cosine from learning_rate down to min_decay_lr at the last step."""

    learning_rate: NotNegative = 3e-4
    lr_warmup_steps: int = Field(default=0, ge=0)
    min_decay_lr: NotNegative = 0.0


class OptimizerConfig(Section):
    """AdamW, whose moments decay by 0.9 and 0.95. clip_grad: largest norm of the gradient, None for any."""

    learning_rate_scheduler: ScheduleConfig = ScheduleConfig()
    weight_decay: NotNegative = 0.01
    clip_grad: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)


class LoggingConfig(Section):
    """iteration_step_info_interval: steps from one line of progress to the next; a terminal has a bar."""

    iteration_step_info_interval: Count = 10


class GeneralConfig(Section):
    """seed: of the initial weights, of dropout and of the loading workers."""

    seed: int = Field(default=42, ge=-(2**63), lt=2**63)


class Config(Section):
    """A whole run. The stages may be listed in any order; their first steps decide.

    Each section is checked with those before it that are right by themselves.
    """

    tokens: TokensConfig
    model: ModelConfig
    parallelism: ParallelismConfig = Field(default=ParallelismConfig(), validate_default=True)
    tokenizer: TokenizerConfig | None = None
    data_stages: list[DataStage]
    checkpoints: CheckpointsConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    general: GeneralConfig = GeneralConfig()
    logging: LoggingConfig = LoggingConfig()

    @field_validator("parallelism", "tokenizer", "data_stages")
    @classmethod
    def _check_with_those_before(cls, section: Any, info: ValidationInfo) -> Any:
        finders: dict[str, Any] = {"parallelism": _rank_problems, "tokenizer": _tokenizer_problems}
        problems = list(finders.get(str(info.field_name), _stage_problems)(section, info.data))
        if problems:
            raise ValueError("\n".join(problems))
        return section

    def schedule(self, consumed_train_samples: int = 0, first_step: int = 1) -> Schedule:
        """Who reads what from a position on, in this run's layout."""
        return _schedule(self.tokens, self.parallelism, consumed_train_samples, first_step)

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return self.schedule().global_batch_size


def _schedule(
    tokens: TokensConfig,
    ranks: ParallelismConfig,
    consumed_train_samples: int = 0,
    first_step: int = 1,
) -> Schedule:
    return Schedule(
        dp_size=ranks.dp,
        micro_batch_size=tokens.micro_batch_size,
        batch_accumulation_per_replica=tokens.batch_accumulation_per_replica,
        consumed_train_samples=consumed_train_samples,
        first_step=first_step,
    )


def _rank_problems(ranks: ParallelismConfig, right: dict[str, Any]) -> Iterator[str]:
    """What the model does not fit, and models that cannot be cut: pp and tp know where to cut a Llama."""
    if not {"tokens", "model"} <= right.keys():
        return
    model, length = transformers_config(right["model"].fields), right["tokens"].sequence_length
    longest = getattr(model, "max_position_embeddings", length)
    if length > longest:
        yield f"tokens.sequence_length: {length} is above the model's {longest} positions"
    if ranks.pp == ranks.tp == 1:
        return
    if model.model_type != "llama":
        yield f'parallelism: pp and tp cut a model of model_type "llama" only, got {model.model_type!r}'
        return
    if model.tie_word_embeddings and ranks.pp > 1:
        yield "model.model_config.tie_word_embeddings: must be false with parallelism.pp above 1"
    if ranks.pp > model.num_hidden_layers:
        yield f"parallelism.pp: {ranks.pp} stages for {model.num_hidden_layers} layers; each needs at least one"
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if getattr(model, name) % ranks.tp:
            yield f"parallelism.tp: {ranks.tp} does not divide model.model_config.{name} {getattr(model, name)}"


def _tokenizer_problems(tokenizer: TokenizerConfig | None, right: dict[str, Any]) -> Iterator[str]:
    place = "tokenizer.tokenizer_name_or_path:"
    try:
        if tokenizer:
            yield from _sizes_apart(f"{place} the tokenizer", tokenizer.size, right)
    except ValueError as error:
        yield f"{place} {error}"


def _sizes_apart(what: str, size: int, right: dict[str, Any]) -> Iterator[str]:
    """Whether ids do not fit the model (more embeddings than ids are fine) or are not those of the tokenizer."""
    model, tokenizer = right.get("model"), right.get("tokenizer")
    embeddings = transformers_config(model.fields).vocab_size if model else size
    if size > embeddings:
        yield f"{what} has {size} ids, model.model_config.vocab_size is only {embeddings}"
    if tokenizer and size != tokenizer.size:
        yield f"{what} has {size} ids, the tokenizer of tokenizer.tokenizer_name_or_path has {tokenizer.size}"


def _stage_problems(stages: list[DataStage], right: dict[str, Any]) -> Iterator[str]:
    """What does not fit in the stages, and in their files with the tokenizer and the model."""
    tokens = right.get("tokens")
    seen: set[Any] = set()
    for index, stage in enumerate(stages):
        dataset, start = stage.data.dataset, stage.start_training_step
        for field, value in (("name", stage.name), ("start_training_step", start)):
            if value in seen:
                yield f"data_stages[{index}].{field}: {reprlib.repr(value)} is used twice"
            seen.add(value)
        place = f"data_stages[{index}].data.dataset.{next(key for key in ROADS if getattr(dataset, key, None))}"
        if isinstance(dataset, TextSection) and right.get("tokenizer", 0) is None:
            yield f"{place}: text needs a tokenizer, give tokenizer.tokenizer_name_or_path"
        try:
            opened = dataset.tokens()
            for file in opened:
                if tokens:
                    file.num_samples(tokens.sequence_length)
                if size := file.facts.get("vocab_size"):  # a file that does not say it is trusted
                    yield from _sizes_apart(f"{place}: {file.path}", size, right)
            if isinstance(dataset, DatasetConfig) and tokens and "parallelism" in right:
                samples = dataset.samples(opened, tokens.sequence_length)
                yield from _batch_problems(place, samples, right)
        except (OSError, ValueError) as error:
            yield f"{place}: {error}"
    if 1 not in seen:
        yield "data_stages: one stage must have start_training_step 1"


def _batch_problems(place: str, samples: int, right: dict[str, Any]) -> Iterator[str]:
    """Whether a stage has fewer samples than a global batch, which would then hold some twice."""
    schedule = _schedule(right["tokens"], right["parallelism"])
    if samples < schedule.global_batch_size:
        yield (
            f"{place}: holds {samples} samples, fewer than a global batch of "
            f"{schedule.global_batch_size} (parallelism.dp {schedule.dp_size} x micro_batch_size "
            f"{schedule.micro_batch_size} x batch_accumulation_per_replica "
            f"{schedule.batch_accumulation_per_replica}): give more data or a smaller batch"
        )


KEYS = {name for section in Section.__subclasses__() for name in section.model_fields}


def load_config(path: PathLike) -> Config:
    """Read and check a YAML file; paths in it are relative to the working directory.

    Raises:
        FileNotFoundError: no such file.
        ConfigError: everything that is wrong, with its path in the file.
    """
    try:
        config = Config.model_validate(read_yaml(path))
        from nanoset_ref.train.stages import stages_of

        stages_of(config)
    except ValidationError as error:
        problems = problems_of(error, KEYS)
    except ValueError as error:
        problems = [one_line(error)]
    else:
        _warn_of_stages_not_reached(config)
        return config
    raise ConfigError(";\n".join(f"{os.fspath(path)}: {problem}" for problem in problems))


def _warn_of_stages_not_reached(config: Config) -> None:
    steps = config.tokens.train_steps
    for stage in config.data_stages:
        if stage.start_training_step > steps:
            said = "the stage %r is not reached: it begins at step %d, tokens.train_steps is %d"
            logger.warning(said, stage.name, stage.start_training_step, steps)
