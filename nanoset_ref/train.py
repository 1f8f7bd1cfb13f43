"""Train a causal LM on token files; stop anywhere, continue exactly.

    torchrun --nproc-per-node 8 -m nanoset_ref.train --config config.yaml

1. read and check the config, before a process talks to another
2. lay out the processes, draw the model, spread it over them
3. continue after the newest valid checkpoint, if there is one
4. each step: its micro-batches, forward and backward, clip, optimizer, a line of metrics
5. every checkpoint_interval steps and after the last one, a checkpoint

Killed at any moment and started again by the same command, the run goes on as if nothing had happened. On the CPU, with
the same numbers of ranks, every loss is equal to the last bit; with other numbers of ranks, the samples of each global
batch are equal. What it takes: deterministic algorithms, a fixed number of threads (OMP_NUM_THREADS, else 1), each
rank's random state in the checkpoint, a learning rate that is a function of the step, sums over ranks in a fixed order.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from nanoset_ref.dataloader import PlanMismatch
from nanoset_ref.samplers import worker_seed
from nanoset_ref.training.checkpoint import CheckpointError, Checkpoints
from nanoset_ref.training.config import Config, OptimizerConfig, load_config
from nanoset_ref.training.metrics import Metrics, delivered_samples
from nanoset_ref.training.parallel import World, WorldError, start_world
from nanoset_ref.training.pipeline import DistributedModel, check_cut
from nanoset_ref.training.staged_loader import StagedLoader
from nanoset_ref.training.stages import StageError
from nanoset_ref.training.strict_yaml import ConfigError

logger = logging.getLogger(__name__)


class Run:
    """A training run in one process, from the newest checkpoint on.

    Args:
        config: of the run, the same in every process.
        world: the processes.

    Raises:
        CheckpointError, StageError, PlanMismatch: the checkpoints are of another model, other stages or other data.
    """

    def __init__(self, config: Config, world: World) -> None:
        self.config, self.world = config, world
        self.checkpoints = Checkpoints(config.checkpoints.checkpoints_path, world)
        self.model = DistributedModel(config, world)
        self.optimizer = build_optimizer(config.optimizer, self.model)
        self.loader = StagedLoader(config, world.layout, pin_memory=world.device.type == "cuda")
        torch.manual_seed(worker_seed(config.general.seed, world.layout.dp_rank, world.layout.pp_rank))
        self.resume()

    def resume(self) -> None:
        """Load the newest valid checkpoint, if any. Random states fit only the numbers of ranks that saved them."""
        found = self.checkpoints.newest()
        if found is None:
            return
        step, state = found
        if state["model"] != json.loads(json.dumps(self.config.model.model_config)):  # JSON has no integer keys
            raise CheckpointError(
                f"the checkpoints in {self.checkpoints.folder} are of the model {state['model']}, the config has "
                f"{self.config.model.model_config}: continue with that one, or take another checkpoints_path"
            )
        self.loader.load_state_dict(state["data"])
        for parameter in self.model.module.parameters():
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(step)),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        same_ranks = state["parallelism"] == vars(self.config.parallelism)
        random_state = self.random_state() if same_ranks else {}
        self.checkpoints.load(step, self.tensors() | random_state)
        for name, value in random_state.items():
            (torch.cuda if name.startswith("random.cuda") else torch).set_rng_state(value)
        logger.info("continuing after step %d, %d samples", step, self.loader.consumed_train_samples)

    def save(self) -> None:
        state = {
            "data": self.loader.state_dict(),
            "model": self.config.model.model_config,
            "parallelism": vars(self.config.parallelism),
        }
        self.checkpoints.save(self.loader.step, self.tensors() | self.random_state(), state)

    def tensors(self) -> dict[str, Tensor]:
        """Model and optimizer, by name. AdamW's own count of steps is the run's, so it is not kept."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        for name, parameter in self.model.module.named_parameters():
            for key in ("exp_avg", "exp_avg_sq"):
                tensors[f"optimizer.{name}.{key}"] = self.optimizer.state[parameter][key]
        return tensors

    def random_state(self) -> dict[str, Tensor]:
        """This rank's random states (uint8 [n]); the ranks of one tensor-parallel group have the same."""
        rank = f"dp{self.world.layout.dp_rank}.pp{self.world.layout.pp_rank}"
        states = {f"random.cpu.{rank}": torch.get_rng_state()}
        if self.world.device.type == "cuda":
            states[f"random.cuda.{rank}"] = torch.cuda.get_rng_state()
        return states

    def train(self, *, log_samples: bool = False) -> None:
        """Train until tokens.train_steps.

        Each line of metrics also says how fast this process was: tokens_per_second of the global batch, and data_wait,
        the share of the step's time that it waited for data.

        Args:
            log_samples: add to each line of metrics which samples every data-parallel rank was given.
        """
        tokens, interval = self.config.tokens, self.config.checkpoints.checkpoint_interval
        metrics = Metrics(self.checkpoints.folder / "metrics.jsonl", self.loader.step) if self.world.is_first else None
        progress = tqdm(total=tokens.train_steps, initial=self.loader.step, unit="step", disable=metrics is None)
        steps, began = iter(self.loader), time.perf_counter()
        asked = began
        while (step := next(steps, None)) is not None:
            waited = time.perf_counter() - asked
            line: dict[str, Any] = {"step": step.number, "stage": step.stage}
            line |= self.optimize(step.number, step.batches)
            line["consumed_train_samples"] = self.loader.consumed_train_samples
            if log_samples:
                line["samples"] = delivered_samples(step, self.world)
            began, elapsed = time.perf_counter(), time.perf_counter() - began
            speed = self.config.global_batch_size * tokens.sequence_length / elapsed
            if metrics is not None:
                metrics.write(line | {"tokens_per_second": round(speed), "data_wait": round(waited / elapsed, 4)})
            shown = f"loss {line['loss']:.3f}, {speed:,.0f} tokens/s, stage {step.stage}"
            progress.set_postfix_str(shown, refresh=False)
            progress.update()
            if step.number % interval == 0 or step.number == tokens.train_steps:
                self.save()
            asked = time.perf_counter()
        progress.close()
        if metrics is not None:
            metrics.close()

    def optimize(self, step: int, batches: list[dict[str, Any]]) -> dict[str, float]:
        """One step of the optimizer: loss over the global batch, norm of its gradient, learning rate."""
        rate = learning_rate(self.config.optimizer, step, self.config.tokens.train_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.model.forward_backward(batches)
        norm = self.model.clip_gradients(self.config.optimizer.clip_grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"loss": loss.item(), "gradient_norm": norm.item(), "learning_rate": rate}


def build_optimizer(config: OptimizerConfig, model: DistributedModel) -> torch.optim.AdamW:
    factory = config.optimizer_factory
    return torch.optim.AdamW(
        model.module.parameters(),
        betas=(factory.adam_beta1, factory.adam_beta2),
        eps=factory.adam_eps,
        weight_decay=config.weight_decay,
        foreach=True,
    )


def learning_rate(config: OptimizerConfig, step: int, train_steps: int) -> float:
    """The rate of a step (from 1): up to learning_rate in lr_warmup_steps, then along a cosine to min_decay_lr."""
    schedule = config.learning_rate_scheduler
    if step <= schedule.lr_warmup_steps:
        return schedule.learning_rate * step / schedule.lr_warmup_steps
    done = (step - schedule.lr_warmup_steps) / max(1, train_steps - schedule.lr_warmup_steps)
    share = (1 + math.cos(math.pi * min(done, 1.0))) / 2
    return schedule.min_decay_lr + share * (schedule.learning_rate - schedule.min_decay_lr)


def make_deterministic() -> None:
    """Fix what else may change the last bits of a sum."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())


def end_with(parent: int) -> None:
    """End this process when its parent dies: torchrun, killed, would leave its ranks at work in the same folder."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.train") -> int:
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config", required=True, metavar="YAML", help="the run; see nanoset_ref.training.config")
    parser.add_argument("--log-samples", action="store_true", help="write into metrics.jsonl what each rank was given")
    options = parser.parse_args(arguments)
    speaks = int(os.environ.get("LOCAL_RANK", 0)) == 0  # one process of each node
    logging.basicConfig(level=logging.INFO if speaks else logging.ERROR, format="%(name)s: %(message)s")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    make_deterministic()
    try:
        config = load_config(options.config)
        check_cut(config)
        world = start_world(**vars(config.parallelism))
        run = Run(config, world)
        run.train(log_samples=options.log_samples)
        run.checkpoints.close()
    except (OSError, ConfigError, WorldError, StageError, PlanMismatch, CheckpointError) as error:
        if speaks:
            sys.stderr.write(f"{prog}: error: {error}\n")
        return 1
    world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
