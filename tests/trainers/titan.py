import importlib.util
import os
import sys
from itertools import chain, islice, repeat
from unittest.mock import MagicMock

import torch
from torch.distributed import checkpoint
from trainer_helpers import DATASET, FOLDER, Tiny, recipe, report, weight

from nanoset_ref import Nanoset, PackedNanoset, TokenFileWriter

if (
    importlib.util.find_spec("triton") is None
):  # torch for CPUs brings none; torchtitan imports kernels all the same
    sys.modules["torchtitan.models.moe.kernels"] = MagicMock()
exec(recipe("torchtitan"), globals())
from torchtitan.config.job_config import JobConfig, Training  # noqa: E402


def fit(steps, start=None, dataset=DATASET, rows=2):
    """The part of torchtitan's loop that needs no GPU; its checkpoints are torch's distributed ones."""
    model = Tiny()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = NanosetLoader(
        dataset, rows, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    )
    states = {"model": model, "dataloader": loader}
    if start is not None:
        checkpoint.load(states, checkpoint_id=start)
    for inputs, labels in islice(chain.from_iterable(repeat(loader)), 2 * steps):
        parallel(inputs["input"], labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoint.save(states, checkpoint_id=FOLDER / f"after {steps} of {rows}")
    return model.seen, weight(model)


torch.distributed.init_process_group("gloo")
LONGER = Nanoset.from_config(
    str(FOLDER / "a_input_ids.npy"), sequence_length=16, train_split_num_samples=1000
)
report(
    fit(9),
    fit(3),
    fit(6, FOLDER / "after 3 of 2"),
    fit(4, FOLDER / "after 3 of 2", LONGER, rows=1),
)

# the last row ends in padding, and each document in a label that does not count
PACKED = FOLDER / f"packed{os.environ['RANK']}.npy"
with TokenFileWriter(PACKED, dtype="uint16") as writer:
    for length in (17, 9, 5):
        writer.write_document(range(1, 1 + length))
packed = PackedNanoset([PACKED], None, 16, pad_id=0)
batches = list(NanosetLoader(packed, 1, 0, 1))
masks = [batch["label_mask"] for batch in NanosetLoader(packed, 1, 0, 1).loader]
for (_, labels), mask in zip(batches, masks, strict=True):
    assert torch.equal(labels == -100, ~mask)
assert not all(mask.all() for mask in masks)

# what torchtitan's trainer calls, with its config: a loader of all steps, over more than an epoch
config = JobConfig(
    training=Training(
        dataset_path=str(FOLDER / "a_input_ids.npy"),
        seq_len=16,
        local_batch_size=2,
        steps=700,
    )
)
ranks = {"dp_world_size": 2, "dp_rank": 1}
loader = build_dataloader(**ranks, tokenizer=None, job_config=config)
assert len(loader.loader) == 700
config.training.global_batch_size = 12
loader = build_dataloader(**ranks, tokenizer=None, job_config=config)
assert len(loader.loader) == 3 * 700
torch.distributed.destroy_process_group()
