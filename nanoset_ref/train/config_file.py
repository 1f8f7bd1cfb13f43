"""Load the YAML file of a training run, or what a checkpoint records of it: `load_config`."""

import contextlib
import logging
import os
from pathlib import Path

from nanoset_ref.io.error_text import shorten
from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.pydantic_errors import problems_of
from nanoset_ref.io.types import Json
from nanoset_ref.train.config import Config
from nanoset_ref.train.data_config import SECTION_BY_KEY, Section
from nanoset_ref.train.stages import stages_of
from nanoset_ref.train.strict_yaml import ConfigError, read_yaml

with extra("train", "a training run"):
    from pydantic import ValidationError

logger = logging.getLogger(__name__)

SECTIONS = [*Section.__subclasses__(), *SECTION_BY_KEY.values()]
KEYS = {name for section in SECTIONS for name in section.model_fields}


def recorded_data(path: PathLike) -> Json | None:
    """The state of the data in the newest checkpoint of a folder; None for a YAML file."""
    return _newest_state(path)["data"] if os.path.isdir(path) else None


def _newest_state(folder: PathLike) -> Json:
    """The state that a checkpoint records, or the newest valid one of a folder.

    Raises:
        ConfigError: there is no checkpoint that records its config.
    """
    # only a checkpoint needs torch
    from nanoset_ref.train.checkpoint import CHECKPOINT_GLOB, find_problem, read_state

    path = Path(folder).resolve()  # a checkpoint has its step in its name
    for checkpoint in sorted(path.glob(CHECKPOINT_GLOB), reverse=True) or [path]:
        if find_problem(checkpoint, read_files=False) is None:
            with contextlib.suppress(TypeError):
                state = read_state(checkpoint)["state"]
                if {"config", "data"} <= set(state):
                    return state
    raise ConfigError(
        f"{folder}: a folder without a checkpoint that records its config: give the config of the "
        "run, or a checkpoint under its own name (step-00000010)"
    )


def load_config(path: PathLike) -> Config:
    """Read and check a YAML file; paths in it are relative to the working directory.

    Args:
        path: the file, or a checkpoint or a folder of them, whose newest one records the config.

    Raises:
        FileNotFoundError: the file does not exist.
        ConfigError: the file has problems; the message lists all, with their paths in the file.
    """
    is_run = os.path.isdir(path)
    values = _newest_state(path)["config"] if is_run else read_yaml(path)
    try:
        config = Config.model_validate(values)
        stages_of(config)
    except ValidationError as error:
        problems = problems_of(error, KEYS)
    except ValueError as error:
        problems = [shorten(error)]
    else:
        steps = config.tokens.train_steps
        for stage in config.data_stages:
            start = stage.start_training_step
            if start > steps:
                logger.warning(
                    "the stage %r is not reached: it begins at step %d, but tokens.train_steps is "
                    "%d",
                    stage.name,
                    start,
                    steps,
                )
        return config
    raise ConfigError(
        ";\n".join(f"{os.fspath(path)}: {problem}" for problem in problems)
    )
