import dataclasses
import os
import sys
from itertools import chain, islice, repeat
from types import ModuleType

import torch
from torch.distributed import checkpoint
from trainer_helpers import FOLDER, Tiny, recipe, report, weight


class BaseDataLoader:
    """What torchtitan's class of this name asks of a loader (b5bcd76c6, August 2026), without grain."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config:
        def build(self, **given):
            return self._owner(config=dataclasses.replace(self), **given)

    def __init_subclass__(cls):
        cls.Config._owner = cls


module = ModuleType("torchtitan.components.data.loader")
module.BaseDataLoader = BaseDataLoader
sys.modules["torchtitan.components.data"] = ModuleType("torchtitan.components.data")
sys.modules["torchtitan.components.data.loader"] = module
exec(recipe("torchtitan, main"), globals())


def fit(steps, start=None, rows=2, num_samples=100):
    """As in titan.py; the trainer of main builds the loader from its config."""
    model = Tiny()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    config = NanosetLoader.Config(
        paths=[str(FOLDER / "a_input_ids.npy")], num_samples=num_samples
    )
    loader = config.build(
        dp_world_size=int(os.environ["WORLD_SIZE"]),
        dp_rank=int(os.environ["RANK"]),
        tokenizer=None,
        max_context_length=16,
        num_tokens_per_batch=16 * rows,
    )
    states = {"model": model, "dataloader": loader}
    if start is not None:
        checkpoint.load(states, checkpoint_id=start)
    for inputs, labels in islice(chain.from_iterable(repeat(loader)), 2 * steps):
        assert inputs["positions"].tolist() == [*range(16)] * rows
        parallel(inputs["input"].view(rows, 16), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoint.save(states, checkpoint_id=FOLDER / f"after {steps} of {rows}")
    return model.seen, weight(model)


torch.distributed.init_process_group("gloo")
report(
    fit(9),
    fit(3),
    fit(6, FOLDER / "after 3 of 2"),
    fit(4, FOLDER / "after 3 of 2", rows=1, num_samples=1000),
)
torch.distributed.destroy_process_group()
