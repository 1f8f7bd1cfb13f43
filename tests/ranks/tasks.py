"""What the ranks of the tests do. (Children find a function only in a module that they can import.)"""

import json
import os
import resource
import runpy
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from nanoset_ref import train
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.train import Config, DistributedModel, checkpoint
from nanoset_ref.train import run as training_run
from nanoset_ref.train.checkpoint import CheckpointError, Checkpoints
from nanoset_ref.train.parallel import layout_from_mesh, start_world


def write_layouts(folder: str, meshes: list[dict[str, int]]) -> None:
    """The layouts of this rank in several meshes, and what is said of a mesh without names and of one with others."""
    dist.init_process_group("gloo")
    layouts = [
        vars(
            layout_from_mesh(
                init_device_mesh(
                    "cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)
                )
            )
        )
        for sizes in meshes
    ]
    refusals = []
    for names in (None, ("dp", "ep")):
        try:
            layout_from_mesh(init_device_mesh("cpu", (2, 2), mesh_dim_names=names))
        except ValueError as error:
            refusals.append(str(error))
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps([layouts, refusals]))


def build_while_one_dies(folder: str, paths: list[str]) -> None:
    """Build the order of a Nanoset; rank 1 is killed in front of it, when all are connected."""
    dist.init_process_group("gloo")
    dist.barrier()
    Path(folder, f"{dist.get_rank()} is through").touch()
    if dist.get_rank() == 1:
        # or its death could be an error of the barrier
        while len([*Path(folder).glob("* is through")]) < dist.get_world_size():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    nanoset = Nanoset(paths, None, 8, 100)
    found = {
        "fingerprint": nanoset.fingerprint,
        "rows": nanoset.read([0, 17, 99]).tolist(),
    }
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(found))
    os._exit(0)  # no farewell to the rank that is gone


def save_or_load_sharded(folder: str) -> None:
    """A 7 x 3 tensor, its rows dealt to the ranks: save it, or fail unless it is what any number of ranks saved."""
    world = start_world(dp=int(os.environ["WORLD_SIZE"]))
    tensor = distribute_tensor(
        torch.arange(21.0).reshape(7, 3), world.mesh["dp"], [Shard(0)]
    )
    checkpoints = Checkpoints(folder, world)
    if checkpoints.newest() is None:
        checkpoints.save(1, {"w": tensor}, {})
    loaded = torch.zeros_like(tensor)
    checkpoints.load(1, {"w": loaded})
    if not loaded.to_local().equal(tensor.to_local()):
        raise ValueError(f"loaded {loaded}")


def hold_lock(folder: str) -> None:
    """Print what is said when the folder is taken."""
    checkpoint.LOCK_TRIES = 1
    try:
        Checkpoints(folder, start_world())
    except CheckpointError as error:
        print(error, flush=True)  # noqa: T201


def write_gradients(
    folder: str, tree: dict, rows: list[list[int]], mask: list[list[bool]]
) -> None:
    """The loss, if there is one, and all gradients of one global batch, by name, as this rank knows them."""
    config = Config.model_validate(tree)
    world = start_world(**config.parallelism.model_dump())
    model = DistributedModel(config, world)
    ids, counted = torch.tensor(rows), torch.tensor(mask)
    positions = config.batch_schedule().rank_batches(
        0, world.layout.dp_rank, config.tokens.batch_accumulation_per_replica
    )
    loss = model.forward_backward(
        [
            {
                "input_ids": ids[at, :-1],
                "label_ids": ids[at, 1:],
                "label_mask": counted[at],
            }
            for at in positions
        ]
    )
    found = {
        name: value.grad.full_tensor().numpy()
        for name, value in model.module.named_parameters()
    }
    if loss is not None:
        found["loss"] = np.array(loss)
    np.savez(Path(folder, f"{dist.get_rank()}.npz"), **found)


def train_with_small_files(words: list[str], size: int) -> int:
    """Train where no file may become longer than `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return train.main(words)


train_run = train.main


def train_and_hold(words: list[str], place: str, step: int) -> int:
    """Train until the first rank holds at a step, for good: the others wait for it, and a test may take its time.

    Args:
        words: of the command.
        place: "line" (its metrics are written), "shards" (of its checkpoint, which has no state) or "state" (which is
            written, and the checkpoint has not got its name).
        step: the step.
    """
    open_metrics, write_state = training_run.continue_metrics, checkpoint._write_state

    def open_and_hold(path, done):
        file = open_metrics(path, done)
        write = file.write

        def write_and_hold(line):
            write(line)
            if json.loads(line)["step"] == step:
                signal.pause()

        file.write = write_and_hold
        return file

    def write_state_and_hold(folder, at, state):
        if at == step and place == "shards":
            signal.pause()
        write_state(folder, at, state)
        if at == step and place == "state":
            signal.pause()

    if place == "line":
        training_run.continue_metrics = open_and_hold
    checkpoint._write_state = write_state_and_hold
    return train.main(words)


def run_script(script: str, *words: str) -> None:
    """Run a script with words, with what only torchrun puts into the environment, too."""
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["WORLD_SIZE"]
    os.environ["TORCHELASTIC_RUN_ID"] = "tests"
    sys.argv = [script, *words]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def train_in_own_folder(folder: str, arguments: list[str]) -> None:
    """Train with paths that are relative to a folder of this rank."""
    os.chdir(Path(folder, os.environ["RANK"]))
    train_run(arguments)
