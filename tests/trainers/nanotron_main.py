import dataclasses
import os
import sys
from types import ModuleType, SimpleNamespace

import torch
from trainer_helpers import DATASET, Tiny, recipe, report, weight


@dataclasses.dataclass
class Pointer:
    """What Nanotron's class of this name is (2411b022, April 2026)."""

    group_rank: int


def stand_in(name, **content):
    """A module of Nanotron, which itself needs a GPU."""
    module = ModuleType(f"nanotron.{name}".rstrip("."))
    vars(module).update(content)
    sys.modules[module.__name__] = module


stand_in("", distributed=torch.distributed)
stand_in("parallel")
stand_in("parallel.pipeline_parallel")
stand_in("parallel.pipeline_parallel.tensor_pointer", TensorPointer=Pointer)
stand_in(
    "parallel.pipeline_parallel.utils",
    get_input_output_pp_ranks=lambda model: (0, model.stages - 1),
)
exec(recipe("Nanotron, main"), globals())


def trainer_of(consumed, micro_batch_size=2, stages=1, pipeline=None):
    """What `run_train.py` hands on, as far as the recipe asks for it."""
    group = pipeline or torch.distributed.new_subgroups(1)[0]
    return SimpleNamespace(
        model=SimpleNamespace(stages=stages),
        micro_batch_size=micro_batch_size,
        parallel_context=SimpleNamespace(
            dp_pg=torch.distributed.group.WORLD, pp_pg=group
        ),
        metadata=SimpleNamespace(consumed_train_samples=consumed),
        config=SimpleNamespace(data_stages=[SimpleNamespace(name="stable")]),
    )


def fit(steps, start=None, rows=2):
    """The part of `DistributedTrainer.train` that draws batches."""
    model = Tiny()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    consumed = 0
    if start is not None:
        model.load_state_dict(start["model"])
        consumed = start["consumed_train_samples"]
    batches = dataloaders(trainer_of(consumed, rows), DATASET)["stable"]
    assert not hasattr(batches, "dataset")
    for _ in range(steps):
        for _ in range(2):
            batch = next(batches)
            parallel(batch["input_ids"], batch["label_ids"]).backward()
        optimizer.step()
        optimizer.zero_grad()
        consumed += 2 * 2 * rows
    saved = {"model": model.state_dict(), "consumed_train_samples": consumed}
    return (model.seen, weight(model)), saved


torch.distributed.init_process_group("gloo")
first, saved = fit(3)
resized = fit(4, saved, rows=1)[0]
report(fit(9)[0], first, fit(6, saved)[0], resized)
# the first stage of a pipeline of two has the inputs, and pointers of Nanotron's to the labels
rank = int(os.environ["RANK"])
trainer = trainer_of(0, stages=2, pipeline=torch.distributed.group.WORLD)
trainer.parallel_context.dp_pg = torch.distributed.new_subgroups(1)[0]
batch = next(dataloaders(trainer, DATASET)["stable"])
held, elsewhere = ("input_ids", "label_ids")[:: 1 - 2 * rank]
assert batch[held].shape == (2, 16) and batch[elsewhere] == Pointer(1 - rank)
torch.distributed.destroy_process_group()
