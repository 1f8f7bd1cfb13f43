"""Train a causal LM; stop anywhere, continue exactly.

    nanoset-ref train --example tokens > config.yaml
    torchrun --nproc-per-node 8 -m nanoset_ref.train --config config.yaml

If the run is killed and started again by the same command, it continues exactly (see `run`). Where
torchrun is to start it again (--max-restarts), set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: otherwise
the store of torchrun (2.13, 2026) keeps the addresses of ranks that are gone, and the new ranks may
wait for those. torch is imported last, so that a wrong config is reported at once.
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from nanoset_ref.cli.arguments import UsageError
from nanoset_ref.cli.command import run
from nanoset_ref.io.torchrun import under_torchrun

EXAMPLES = {
    path.stem: path
    for path in sorted(Path(__file__).with_name("examples").glob("*.yaml"))
}


def train(
    *, config: str | None = None, example: str | None = None, log_samples: bool = False
) -> None:
    """Train a causal LM on token files or text; stop anywhere, continue exactly.

    1. Read and check the config, before the processes connect.
    2. Lay out the processes, initialize the model, and shard it over them.
    3. Continue after the newest valid checkpoint, if there is one.
    4. In each step run forward and backward for its micro-batches, clip the gradients, run the
       optimizer, and write a line of metrics.
    5. Save a checkpoint every checkpoint_interval steps and after the last step.

    Args:
        config: the YAML file of the run; nanoset_ref/train/config.py and data_config.py describe
            its keys.
        example: only print an example of such a file: tokens, megatron, datatrove, chunks or text.
        log_samples: record in metrics.jsonl the samples that each rank received.

    Raises:
        ConfigError, CheckpointError, PlanMismatch, ValueError, OSError: the config, the number of
            processes or the checkpoints are wrong.
    """
    if (config is None) == (example is None):
        raise UsageError("give either --config FILE.yaml, or --example NAME to see one")
    if config is None:
        if example not in EXAMPLES:
            names = ", ".join(EXAMPLES)
            raise UsageError(f"there is no example {example!r}; there are {names}")
        print(EXAMPLES[example].read_text(encoding="utf-8"), end="")
        return
    # imported here: --help and --example do not need pydantic
    from nanoset_ref.train.config_file import load_config

    settings = load_config(config)
    # imported here: a wrong config is reported before torch is imported
    from nanoset_ref.train.parallel import start_world
    from nanoset_ref.train.run import Run

    world = start_world(**settings.parallelism.model_dump())
    try:
        training = Run(settings, world)
        with contextlib.closing(training.checkpoints):
            training.train(log_samples=log_samples)
    except BaseException:
        if not under_torchrun():  # see `main`
            world.close()
        raise
    world.close()


def main(
    arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.train"
) -> int:
    """Run the command, with `arguments` or the process's own; return the exit code.

    If one of several ranks fails, it ends here without the interpreter's shutdown, which waits for
    the unfinished collectives of other ranks, and aborts when one of these dies.

    A program that calls this should have nothing else to do: afterwards torch's deterministic
    algorithms and number of threads, and the logging level, stay as the run has set them.
    """
    message = "the same command continues after the newest checkpoint, if there is one"
    if under_torchrun():
        message += " (a traceback after this line comes from torchrun itself)"
    code = run(train, arguments, prog, log_level=logging.INFO, interrupted=message)
    if code and under_torchrun():
        os._exit(code)
    return code
