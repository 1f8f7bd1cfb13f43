"""Train a causal LM on token files; stop anywhere, continue exactly.

    torchrun --nproc-per-node 8 -m nanoset_ref.train --config config.yaml

1. read and check the config, before a process talks to another
2. lay out the processes, draw the model, spread it over them
3. continue after the newest valid checkpoint, if there is one
4. each step: its micro-batches, forward and backward, clip, optimizer, a line of metrics
5. every checkpoint_interval steps and after the last one, a checkpoint

Killed at any moment and started again by the same command, the run goes on as if nothing had happened (see
`training.run`). torch is imported last: until then a wrong config is reported, and a rank whose launcher dies ends.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from nanoset_ref.launcher import end_with_launcher


def train(config_path: str, *, log_samples: bool = False) -> None:
    """Train the run of a YAML file to its end, in each process that torchrun started or in this one alone.

    Raises:
        ConfigError, CheckpointError, PlanMismatch, ValueError, OSError: what is wrong with the config, the processes
            or the checkpoints.
    """
    from nanoset_ref.training.config import load_config

    config = load_config(config_path)
    from nanoset_ref.training.parallel import start_world
    from nanoset_ref.training.run import Run

    world = start_world(**config.parallelism.model_dump())
    run = Run(config, world)
    run.train(log_samples=log_samples)
    run.checkpoints.close()
    world.close()


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.train") -> int:
    end_with_launcher()
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config", required=True, metavar="YAML", help="the run; see nanoset_ref.training.config")
    parser.add_argument("--log-samples", action="store_true", help="write into metrics.jsonl what each rank was given")
    options = parser.parse_args(arguments)
    speaks = int(os.environ.get("LOCAL_RANK", 0)) == 0  # one process of each node
    logging.basicConfig(level=logging.INFO if speaks else logging.ERROR, format="%(name)s: %(message)s")
    try:
        train(options.config, log_samples=options.log_samples)
    except (OSError, ValueError) as error:
        if speaks:
            sys.stderr.write(f"{prog}: error: {error}\n")
        return 1
    except KeyboardInterrupt:
        if speaks:
            sys.stderr.write(f"{prog}: interrupted; the same command goes on from the newest checkpoint\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
