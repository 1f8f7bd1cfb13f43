"""A training run in one process: continue after the newest checkpoint, and train to the last step.

On the CPU, with the same numbers of ranks, a resumed run has the same losses as an uninterrupted
one, to the last bit. With other numbers of ranks the samples of each global batch are the same.
This requires deterministic algorithms, a fixed number of threads (OMP_NUM_THREADS, else 1), each
rank's random state in the checkpoint, a learning rate that is a function of the step, and sums over
ranks in a fixed order.
"""

import json
import logging
import math
import os
import time
from typing import Any, TextIO

import torch
from torch import Tensor

from nanoset_ref.io.full_disk import explain_full_disk
from nanoset_ref.io.types import Json
from nanoset_ref.load.worker_init import worker_seed
from nanoset_ref.orders.plans import PlanMismatch, fingerprint_of
from nanoset_ref.train.checkpoint import FOLDER_OPTION, CheckpointError, Checkpoints
from nanoset_ref.train.config import Config, OptimizerConfig
from nanoset_ref.train.metrics import continue_metrics, delivered_samples
from nanoset_ref.train.model import DistributedModel
from nanoset_ref.train.parallel import World
from nanoset_ref.train.progress import Progress
from nanoset_ref.train.staged_loader import StagedLoader, Step

logger = logging.getLogger(__name__)

MOMENTS = "exp_avg", "exp_avg_sq"  # names of AdamW's moments


class Run:
    """A training run in one process; it continues after the newest checkpoint.

    Args:
        config: the run's configuration, the same in every process.
        world: the processes.

    Raises:
        CheckpointError, ConfigError, PlanMismatch: the checkpoints belong to another model, other
            stages or other data.
    """

    def __init__(self, config: Config, world: World) -> None:
        make_deterministic()
        self.config = config
        self.world = world
        # a random state can only be loaded in the same layout, on the same kind of device
        self.random_state_scope = {
            "parallelism": config.parallelism.model_dump(),
            "device": world.device.type,
        }
        settings = config.checkpoints
        self.checkpoints = Checkpoints(
            settings.checkpoints_path, world, settings.keep_checkpoints
        )
        try:
            self._make_or_resume()
        except BaseException:
            self.checkpoints.close()
            raise

    def _make_or_resume(self) -> None:
        """Make the model, the optimizer and the loader; resume from the newest checkpoint."""
        config = self.config
        layout = self.world.layout
        self.model = DistributedModel(config, self.world)
        self.optimizer = torch.optim.AdamW(
            self.model.module.parameters(),
            betas=(0.9, 0.95),
            weight_decay=config.optimizer.weight_decay,
            foreach=True,
        )
        self.loader = StagedLoader(config, layout)
        # the pipeline rank is used as worker id, so that each (dp_rank, pp_rank) has its own seed
        seed = worker_seed(config.general.seed, layout.dp_rank, layout.pp_rank)
        torch.manual_seed(seed)
        newest = self.checkpoints.newest()
        if newest is not None:
            self.resume(*newest)

    def resume(self, step: int, state: Any) -> None:
        """Load a checkpoint; random states are loaded only in the scope that saved them."""
        folder = self.checkpoints.folder
        if not isinstance(state, dict) or not {"model", "data"} <= state.keys():
            raise CheckpointError(
                f"the checkpoint after step {step} in {folder} does not belong to a "
                "training run: its state lacks the model or the data; use another checkpoints_path"
            )
        # JSON has no integer keys
        model = json.loads(json.dumps(self.config.model.fields))
        if state["model"] != model:
            raise CheckpointError(
                f"the checkpoints in {folder} belong to the model {state['model']}, but the config "
                f"has {model}: continue with that one, or use another checkpoints_path"
            )
        self.loader.load_state_dict(state["data"])
        for parameter in self.model.module.parameters():
            moments = {name: torch.zeros_like(parameter) for name in MOMENTS}
            steps_done = {"step": torch.tensor(float(step))}
            self.optimizer.state[parameter] = moments | steps_done
        random_state = {}
        scope = self.random_state_scope
        if {name: state.get(name) for name in scope} == scope:
            random_state = self.random_state()
        self.checkpoints.load(step, self.tensors() | random_state)
        for name, value in random_state.items():
            rng = torch.cuda if name.startswith("random.cuda") else torch
            rng.set_rng_state(value)
        saved = state.get("train_steps")
        current = self.config.tokens.train_steps
        if saved not in (None, current):
            logger.warning(
                "train_steps was %s and is now %d: the learning rate follows another curve",
                saved,
                current,
            )
        consumed = self.loader.consumed_train_samples
        logger.info("continuing after step %d, %d samples", step, consumed)

    def save(self) -> None:
        """Write a checkpoint after the current step.

        Raises:
            PlanMismatch: see `compare_ranks`.
        """
        data = self.loader.state_dict()
        self.compare_ranks(data)
        state = {
            "config": self.config.model_dump(
                mode="json", by_alias=True, exclude_unset=True
            ),
            "data": data,
            "model": self.config.model.fields,
            **self.random_state_scope,
            "train_steps": self.config.tokens.train_steps,
        }
        tensors = self.tensors() | self.random_state()
        self.checkpoints.save(self.loader.step, tensors, state)
        logger.info(
            "checkpoint after step %d in %s", self.loader.step, self.checkpoints.folder
        )

    def compare_ranks(self, state: Any) -> None:
        """Compare the tokens that the plans of all ranks name.

        Args:
            state: of this rank's loader.

        Raises:
            PlanMismatch: this rank reads other tokens than the first one.
        """
        plans = [record["plan"] or {} for record in state["stages"]]
        probes = fingerprint_of([plan.get("probes") for plan in plans])
        number = int(probes[:15], 16)  # below 2**60
        if self.world.broadcast(number) != number:
            raise PlanMismatch(
                "this rank reads other tokens than rank 0: give all machines the same token files"
            )

    def tensors(self) -> dict[str, Tensor]:
        """Model and optimizer, by name; AdamW's step count is left out, because it is the run's."""
        tensors = {}
        for name, parameter in self.model.module.named_parameters():
            tensors[f"model.{name}"] = parameter.detach()
            moments = self.optimizer.state[parameter]
            for moment in MOMENTS:
                tensors[f"optimizer.{name}.{moment}"] = moments[moment]
        return tensors

    def random_state(self) -> dict[str, Tensor]:
        """This rank's random states, uint8 [n]; the ranks of a tensor-parallel group share them."""
        layout = self.world.layout
        rank = f"dp{layout.dp_rank}.pp{layout.pp_rank}"
        states = {f"random.cpu.{rank}": torch.get_rng_state()}
        if torch.cuda.is_available():
            states[f"random.cuda.{rank}"] = torch.cuda.get_rng_state()
        return states

    def train(self, *, log_samples: bool = False) -> None:
        """Train until tokens.train_steps, writing one line of metrics per step.

        Each line also has the speed of this process, without the time for checkpoints:
        tokens_per_second of the global batch, and data_wait, the fraction of the step spent waiting
        for data.

        Args:
            log_samples: add the samples of every data-parallel rank to each line.
        """
        done = self.loader.step
        last = self.config.tokens.train_steps
        folder = self.checkpoints.folder
        if done == last:
            logger.info(
                "all %d steps are done (see %s); to continue, raise tokens.train_steps",
                last,
                folder,
            )
            return
        interval = self.config.logging.iteration_step_info_interval
        with (
            explain_full_disk(
                folder,
                folder,
                "each step adds a line to metrics.jsonl, ",
                FOLDER_OPTION,
            ),
            self._open_metrics() as metrics,
            Progress(done, last, interval, self.world.is_main_rank) as progress,
        ):
            self._train(metrics, progress, log_samples)

    def _train(self, metrics: TextIO, progress: Progress, log_samples: bool) -> None:
        """Train the remaining steps; compare the ranks where a stage begins, save checkpoints."""
        config = self.config
        batch_tokens = config.global_batch_size * config.tokens.sequence_length
        interval = config.checkpoints.checkpoint_interval
        checkpoint_steps = {config.tokens.train_steps}
        for stage in self.loader.stages:
            if stage.data.dataset.checkpoint_at_end:
                checkpoint_steps.add(stage.steps[-1])
        began = time.perf_counter()
        compared = None
        for step in self.loader:
            waited = time.perf_counter() - began
            stage = self.loader.current_stage
            # a plan of text names no tokens, and takes a pass over all of it
            has_probes = not stage.data.dataset.streams_text
            if stage is not compared and has_probes and self.world.mesh.size() > 1:
                self.compare_ranks(self.loader.state_dict())
            compared = stage
            line = self.optimize(step)
            if log_samples:
                line["samples"] = delivered_samples(step, self.world)
            elapsed = time.perf_counter() - began
            line["tokens_per_second"] = round(batch_tokens / elapsed)
            line["data_wait"] = round(waited / elapsed, 4)
            metrics.write(json.dumps(line) + "\n")
            progress.update(line, batch_tokens, elapsed, waited)
            if step.number % interval == 0 or step.number in checkpoint_steps:
                self.save()
            began = time.perf_counter()

    def _open_metrics(self) -> TextIO:
        """Open the metrics in the first process, and the null device in all others."""
        if self.world.is_main_rank:
            path = self.checkpoints.folder / "metrics.jsonl"
            return continue_metrics(path, self.loader.step)
        return open(os.devnull, "w")

    def optimize(self, step: Step) -> Json:
        """Run one optimizer step, and return its line of metrics.

        If no label of the batch contributes to the loss, the loss is None and the gradient is zero.
        The optimizer still runs.
        """
        last = self.config.tokens.train_steps
        rate = learning_rate(self.config.optimizer, step.number, last)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.model.forward_backward(step.batches)
        if loss is None:
            logger.warning(
                "no label in step %d contributes to the loss; the gradient is zero",
                step.number,
            )
        norm = self.model.clip_gradients(self.config.optimizer.clip_grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {
            "step": step.number,
            "stage": step.stage,
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rate,
            "consumed_train_samples": self.loader.consumed_train_samples,
        }


def learning_rate(config: OptimizerConfig, step: int, train_steps: int) -> float:
    """The learning rate of a step; steps count from 1 (see `LRScheduleConfig`)."""
    schedule = config.learning_rate_scheduler
    peak = schedule.learning_rate
    final = schedule.min_decay_lr
    warmup = schedule.lr_warmup_steps
    if step <= warmup:
        return peak * step / warmup
    done = (step - warmup) / max(1, train_steps - warmup)
    return final + (peak - final) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def make_deterministic() -> None:
    """Fix the threads and algorithms that can change the last bits of a sum."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # OpenMP takes a list, too: one number for each level of nested threads
    threads, _, _ = (os.environ.get("OMP_NUM_THREADS") or "1").partition(",")
    if not threads.isdecimal() or not 1 <= int(threads) < 2**31:
        raise ValueError(
            f"OMP_NUM_THREADS must be a number of threads, got {threads!r}"
        )
    torch.set_num_threads(int(threads))
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
