"""The sections of a training run's YAML file, as pydantic models.

The keys are Nanotron's. The whole file is checked when it is loaded, before the processes connect
or read a batch. All errors are reported at once, each with its path:
"data_stages[1].start_training_step: 15 is used twice". An unknown key is an error; otherwise a
misspelled `num_loading_workes` would silently select the default.
"""

import functools
import multiprocessing
import reprlib
from collections.abc import Iterator
from typing import Any, Literal

from nanoset_ref import preprocess  # loads its modules when they are used
from nanoset_ref.io.buckets import refuse_fork_workers
from nanoset_ref.io.checks import unknown_key_problem
from nanoset_ref.io.error_text import shorten
from nanoset_ref.io.extras import extra
from nanoset_ref.io.urls import local_path
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.train.data_config import (
    SECTION_BY_KEY,
    Count,
    DataConfig,
    NonNegativeFloat,
    Section,
    Size,
)

with extra("train", "a training run"):
    from pydantic import Field, ValidationInfo, field_validator

Sections = dict[str, Any]  # {name: valid section}
Fields = dict[str, Any]  # of a transformers config
SIZE_FIELDS = "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"


class DataStage(Section):
    """A stage: the data that the run reads from a step on.

    Args:
        name: the stage's name in the progress and in the state.
        start_training_step: the first step, from 1, whose samples come from this stage.
        data: the data to read.
    """

    name: str = Field(min_length=1)
    start_training_step: Count
    data: DataConfig


class TokensConfig(Section):
    """The length of samples, and how many of them a step and the run read.

    Args:
        sequence_length: input tokens per sample; one more token is read for the labels.
        train_steps: optimizer steps of the whole run.
        micro_batch_size: samples per forward pass of one data-parallel rank.
        batch_accumulation_per_replica: forward passes per step of one data-parallel rank.
    """

    sequence_length: Count
    train_steps: Count
    micro_batch_size: Size
    batch_accumulation_per_replica: Size = 1


class ParallelismConfig(Section):
    """Numbers of data-, pipeline- and tensor-parallel ranks; the processes are their product."""

    dp: Size = 1
    pp: Size = 1
    tp: Size = 1


class TokenizerConfig(Section):
    """tokenizer_name_or_path: the tokenizer of the data; for token files, only its size is used."""

    tokenizer_name_or_path: str

    @functools.cached_property
    def size(self) -> int:
        """The number of its ids; the first access loads the tokenizer."""
        tokenizer = preprocess.load_tokenizer(self.tokenizer_name_or_path)
        return preprocess.vocabulary_size(tokenizer)


class ModelConfig(Section):
    """The model: a transformers config with random initial weights.

    Args:
        fields: `model_config` in the file: the fields of a transformers config, including
            `model_type`.
        dtype: the dtype of forward and backward passes; parameters and optimizer are float32.
    """

    fields: Fields = Field(alias="model_config")
    dtype: Literal["float32", "bfloat16"] = "float32"

    @field_validator("fields")
    @classmethod
    def _check_fields(cls, fields: Fields) -> Fields:
        transformers_config(fields)
        return fields


def transformers_config(fields: Fields) -> Any:
    """Make a transformers config; raise ValueError for a field that is unknown or invalid."""
    with extra("train", "a model"):
        from transformers import AutoConfig

    model_type: Any = fields.get("model_type")
    if model_type is None:
        raise ValueError(
            "model_type is missing; give one of transformers, such as llama"
        )
    try:
        default = AutoConfig.for_model(model_type)
        config = AutoConfig.for_model(**fields)
        too_small = [name for name in SIZE_FIELDS if getattr(config, name, 1) < 1]
    except Exception as error:  # each model_type raises other errors
        raise ValueError(
            f"of model_type {reprlib.repr(model_type)}: {shorten(error)}"
        ) from error
    # transformers accepts and keeps unknown fields
    unknown = vars(config).keys() - vars(default).keys()
    problems = [
        f"{name}: {unknown_key_problem(name, vars(default))}" for name in unknown
    ]
    problems += [
        f"{name}: must be at least 1, got {getattr(config, name)}" for name in too_small
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return config


class CheckpointsConfig(Section):
    """Where checkpoints are saved, how often, and how many are kept.

    Args:
        checkpoints_path: the run's folder, visible to all ranks; the run continues its newest valid
            checkpoint. Checkpoints hold this config as it is, with the passwords and signatures of
            its URLs: leave credentials to the environment.
        checkpoint_interval: steps between checkpoints. A checkpoint is always saved after the last
            step of the run and of each chunk.
        keep_checkpoints: how many of the newest valid checkpoints to keep; null: all. Each is read
            once to verify it.
    """

    checkpoints_path: str = Field(min_length=1)
    checkpoint_interval: Count
    keep_checkpoints: Count | None = None

    @field_validator("checkpoints_path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        local_path(path, "the folder of checkpoints")
        return path


class LRScheduleConfig(Section):
    """Linear warm-up over lr_warmup_steps, then a cosine to min_decay_lr at the last step."""

    learning_rate: NonNegativeFloat = 3e-4
    lr_warmup_steps: int = Field(default=0, ge=0)
    min_decay_lr: NonNegativeFloat = 0.0


class OptimizerConfig(Section):
    """AdamW with betas 0.9 and 0.95. clip_grad: maximum gradient norm; null: no limit."""

    learning_rate_scheduler: LRScheduleConfig = LRScheduleConfig()
    weight_decay: NonNegativeFloat = 0.01
    clip_grad: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)


class LoggingConfig(Section):
    """iteration_step_info_interval: steps between lines of progress; a terminal shows a bar."""

    iteration_step_info_interval: Count = 10


class GeneralConfig(Section):
    """seed: the seed of the initial weights, of dropout and of the loading workers."""

    seed: int = Field(default=42, ge=-(2**63), lt=2**63)


class Config(Section):
    """A whole run.

    The stages may be listed in any order; they run in the order of their first steps. The files of
    all stages are checked, also of those that are done: keep them as long as the run continues.

    Each section is validated against the earlier sections that are valid.
    """

    tokens: TokensConfig
    model: ModelConfig
    parallelism: ParallelismConfig = Field(
        default=ParallelismConfig(), validate_default=True
    )
    tokenizer: TokenizerConfig | None = None
    data_stages: list[DataStage]
    checkpoints: CheckpointsConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    general: GeneralConfig = GeneralConfig()
    logging: LoggingConfig = LoggingConfig()

    @field_validator("parallelism", "tokenizer", "data_stages")
    @classmethod
    def _check_with_earlier_sections(cls, section: Any, info: ValidationInfo) -> Any:
        checks: dict[str | None, Any] = {
            "parallelism": _rank_problems,
            "tokenizer": _tokenizer_problems,
            "data_stages": _stage_problems,
        }
        problems = list(checks[info.field_name](section, info.data))
        if problems:
            raise ValueError("\n".join(problems))
        return section

    def batch_schedule(
        self, consumed_train_samples: int = 0, first_step: int = 1
    ) -> Schedule:
        """The schedule of this run's ranks and batches, from a position and a step on."""
        return _schedule(
            self.tokens,
            self.parallelism,
            consumed_train_samples=consumed_train_samples,
            first_step=first_step,
        )

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return self.batch_schedule().global_batch_size


def _schedule(tokens: TokensConfig, ranks: ParallelismConfig, **start: Any) -> Schedule:
    """The schedule of some ranks and batches; `start` are its other fields."""
    return Schedule(
        dp_size=ranks.dp,
        micro_batch_size=tokens.micro_batch_size,
        batch_accumulation_per_replica=tokens.batch_accumulation_per_replica,
        **start,
    )


# ---- each function takes a section and the valid ones before it, and yields problems


def _rank_problems(ranks: ParallelismConfig, valid: Sections) -> Iterator[str]:
    """Models that are too small for the run, or that pp and tp cannot split (only Llama)."""
    if not {"tokens", "model"} <= valid.keys():
        return
    model = transformers_config(valid["model"].fields)
    length = valid["tokens"].sequence_length
    longest = getattr(model, "max_position_embeddings", length)
    if length > longest:
        yield f"tokens.sequence_length: {length} is above the model's {longest} positions"
    if ranks.pp == ranks.tp == 1:
        return
    micro_batches = valid["tokens"].batch_accumulation_per_replica
    if ranks.pp > micro_batches:
        yield (
            f"tokens.batch_accumulation_per_replica: {micro_batches} micro-batches are fewer than "
            f"the {ranks.pp} stages of parallelism.pp, which take one each"
        )
    model_type = model.model_type
    if model_type != "llama":
        yield f'parallelism: pp and tp split only models of model_type "llama", got {model_type!r}'
        return
    if model.tie_word_embeddings and ranks.pp > 1:
        yield "model.model_config.tie_word_embeddings: must be false with parallelism.pp above 1"
    layers = model.num_hidden_layers
    if ranks.pp > layers:
        yield f"parallelism.pp: {ranks.pp} stages for {layers} layers; each needs at least one"
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        size = getattr(model, name)
        if size % ranks.tp:
            yield f"parallelism.tp: {ranks.tp} does not divide model.model_config.{name} {size}"


def _tokenizer_problems(
    tokenizer: TokenizerConfig | None, valid: Sections
) -> Iterator[str]:
    """A tokenizer that cannot be loaded, or that has more ids than the model."""
    if tokenizer is None:
        return
    where = "tokenizer.tokenizer_name_or_path:"
    try:
        yield from _vocabulary_problems(f"{where} the tokenizer", tokenizer.size, valid)
    except ValueError as error:
        yield f"{where} {error}"


def _vocabulary_problems(owner: str, size: int, valid: Sections) -> Iterator[str]:
    """More ids than embeddings (fewer are fine), or a number that differs from the tokenizer's."""
    if "model" in valid:
        embeddings = transformers_config(valid["model"].fields).vocab_size
        if size > embeddings:
            yield f"{owner} has {size} ids, but model.model_config.vocab_size is only {embeddings}"
    tokenizer = valid.get("tokenizer")
    if tokenizer and size != tokenizer.size:
        yield (
            f"{owner} has {size} ids, but the tokenizer of tokenizer.tokenizer_name_or_path has "
            f"{tokenizer.size}"
        )


def _stage_problems(stages: list[DataStage], valid: Sections) -> Iterator[str]:
    """Names and steps that are used twice, and problems of each stage's data."""
    used = set()
    for index, stage in enumerate(stages):
        where = f"data_stages[{index}]"
        for field in ("name", "start_training_step"):
            value = getattr(stage, field)
            if value in used:
                yield f"{where}.{field}: {reprlib.repr(value)} is used twice"
            used.add(value)
        dataset = stage.data.dataset
        key = next(key for key in SECTION_BY_KEY if getattr(dataset, key, None))
        yield from _dataset_problems(f"{where}.data.dataset.{key}", stage.data, valid)
        if dataset.streams_text and stage.data.read_ahead:
            yield (
                f"{where}.data.read_ahead: it has no effect on text; use num_loading_workers"
            )
    if 1 not in used:
        yield "data_stages: one stage must have start_training_step 1"


def _dataset_problems(where: str, data: Any, valid: Sections) -> Iterator[str]:
    """Files that cannot be read, or do not fit the model, the tokenizer or the batch size."""
    dataset = data.dataset
    tokens = valid.get("tokens")
    if dataset.streams_text and valid.get("tokenizer", 0) is None:
        yield f"{where}: text needs a tokenizer, give tokenizer.tokenizer_name_or_path"
    try:
        files = dataset.open_files()
        if data.num_loading_workers:
            paths = [file.path for file in files]
            refuse_fork_workers(paths, multiprocessing.get_start_method())
        for file in files:
            if tokens:
                file.num_samples(tokens.sequence_length)
            size = file.facts.get("vocab_size")
            if size:  # a file that does not record it is trusted
                yield from _vocabulary_problems(f"{where}: {file.path}", size, valid)
        if dataset.names_token_files and tokens and "parallelism" in valid:
            samples = dataset.count_samples(files, tokens.sequence_length)
            schedule = _schedule(tokens, valid["parallelism"])
            # a stage of fewer samples than a global batch would repeat some of them
            if samples < schedule.global_batch_size:
                yield (
                    f"{where}: holds {samples} samples, fewer than a global batch of "
                    f"{schedule.global_batch_size} (parallelism.dp {schedule.dp_size} x "
                    f"micro_batch_size {schedule.micro_batch_size} x "
                    "batch_accumulation_per_replica "
                    f"{schedule.batch_accumulation_per_replica}): give more data or a smaller batch"
                )
    except (OSError, ValueError) as error:
        yield f"{where}: {error}"
