import importlib.util
import os
import sys
from itertools import chain, islice, repeat
from unittest.mock import MagicMock

import torch
from parts import DATASET, FOLDER, Tiny, recipe, report, weight
from torch.distributed import checkpoint

if (
    importlib.util.find_spec("triton") is None
):  # torch for CPUs brings none; torchtitan imports kernels all the same
    sys.modules["torchtitan.models.moe.kernels"] = MagicMock()
exec(recipe("torchtitan"), globals())


def fit(steps, start=None):
    """The part of torchtitan's loop that needs no GPU; its checkpoints are torch's distributed ones."""
    model = Tiny()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = NanosetLoader(
        DATASET, 2, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    )
    states = {"model": model, "dataloader": loader}
    if start is not None:
        checkpoint.load(states, checkpoint_id=start)
    for inputs, labels in islice(chain.from_iterable(repeat(loader)), 2 * steps):
        parallel(inputs["input"], labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoint.save(states, checkpoint_id=FOLDER / f"after {steps}")
    return model.seen, weight(model)


torch.distributed.init_process_group("gloo")
report(fit(9), fit(3), fit(6, FOLDER / "after 3"))
torch.distributed.destroy_process_group()
