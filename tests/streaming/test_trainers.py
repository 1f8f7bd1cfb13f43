"""The datasets under Lightning with two processes, and under the HF Trainer."""

import json
import multiprocessing
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from stream_helpers import (
    TOKENIZER,
    ByEpoch,
    Numbers,
    TokenStream,
    inputs_and_labels,
    write_text,
)
from torch.utils.data import DataLoader

from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.streaming import IterableDataset, MapDataset

LIGHTNING = """
import json, sys, warnings
from pathlib import Path
from types import SimpleNamespace
warnings.simplefilter("ignore")
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from nanoset_ref.streaming.datamodule import SuperDataModule
from stream_helpers import ByEpoch

folder = Path(sys.argv[1])

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []
    def training_step(self, batch, index):
        self.seen.append(batch.tolist())
        return ((self.weight - batch.double().mean()) ** 2).sum()
    def validation_step(self, batch, index):
        pass
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

def fit(start=None, steps=9, keeps=False):
    model = Model()
    hparams = SimpleNamespace(batch_size=3, num_workers=int(sys.argv[2]), iterable=True)
    keep = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = Trainer(
        max_steps=steps, accumulate_grad_batches=2, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        callbacks=[keep] if keeps else [], enable_checkpointing=keeps, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )
    checkpoint = start and folder / f"step={start}.ckpt"
    trainer.fit(model, SuperDataModule(hparams, ByEpoch(49), ByEpoch(49)), ckpt_path=checkpoint)
    if steps < 9:
        trainer.save_checkpoint(folder / "step=after 7.ckpt")
    return model.global_rank, {"seen": model.seen, "weight": model.weight.item(), "steps": trainer.global_step}

if __name__ == "__main__":
    rank, whole = fit(keeps=True)
    fit(steps=7)
    results = {start: fit(start)[1] for start in (3, 4, 6, "after 7")}
    (folder / f"{rank}.json").write_text(json.dumps({"whole": whole, **results}))
"""


def test_lightning_with_two_processes_trains_and_resumes_exactly(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(LIGHTNING)
    workers = (
        2 if multiprocessing.get_start_method() == "fork" else 0
    )  # others begin too slowly, epoch after epoch
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command, environment = (
        [sys.executable, script, tmp_path, str(workers)],
        {**os.environ, "PYTHONPATH": paths},
    )
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        results = json.loads((tmp_path / f"{rank}.json").read_text())
        whole = results.pop("whole")
        dataset = IterableDataset(
            SimpleNamespace(batch_size=3), Numbers(49), dp_rank=rank, dp_size=2
        )
        epoch = list(DataLoader(dataset, 3, num_workers=workers, collate_fn=list))
        assert len(epoch) == 8  # four steps of two batches
        epochs = [
            [[number + 100 * turn for number in batch] for batch in epoch]
            for turn in range(3)
        ]
        assert (whole["seen"], whole["steps"]) == (sum(epochs, [])[:18], 9)
        # in the first epoch, at its end, in the second one, and when `fit` had returned and counted its epoch as done
        for start, done_steps in (("3", 3), ("4", 4), ("6", 6), ("after 7", 7)):
            assert results[start] == {**whole, "seen": whole["seen"][2 * done_steps :]}


def test_the_last_batch_of_an_epoch_is_trained_on_again_if_it_is_saved_in_its_middle():
    """As OnExceptionCheckpoint does: Lightning calls it the last one as soon as it is fetched."""
    from nanoset_ref.streaming.datamodule import EpochLoader

    current = SimpleNamespace(ready=11, processed=10)
    counts = SimpleNamespace(
        total=SimpleNamespace(processed=10), current=current, is_last_batch=True
    )
    loops = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=counts))
    loader = EpochLoader(Numbers(43))
    loader.trainer = SimpleNamespace(fit_loop=loops)
    loader._total = 0
    assert loader.progress == {"epoch": 0, "batches": 10}
    current.processed = counts.total.processed = 11
    assert loader.progress == {"epoch": 1, "batches": 0}


def test_the_data_module_makes_map_and_iterable_loaders():
    from nanoset_ref.streaming.datamodule import SuperDataModule

    sizes = SimpleNamespace(batch_size=4, num_workers=0)
    module = SuperDataModule(
        sizes, Numbers(43), *map(Numbers, (7, 5, 3)), collate_fn=list
    )
    shuffled = [number for batch in module.train_dataloader() for number in batch]
    assert sorted(shuffled) == list(range(43)) != shuffled
    assert list(module.val_dataloader()) == [[0, 1, 2, 3], [4, 5, 6]]
    assert list(module.test_dataloader()) == [[0, 1, 2, 3], [4]]
    assert list(module.predict_dataloader()) == [[0, 1, 2]]
    assert isinstance(module.train_dataloader().dataset, MapDataset)
    with pytest.raises(ValueError, match="has no train_adapter"):
        SuperDataModule(sizes).train_dataloader()
    with pytest.raises(ValueError, match=r"hparams\.batch_size must be"):
        SuperDataModule(SimpleNamespace())
    assert SuperDataModule(sizes).val_dataloader() == []
    module = SuperDataModule(
        SimpleNamespace(batch_size=4, iterable=True), Numbers(43), collate_fn=list
    )
    for wrong in ({}, None, [], 1.5):
        with pytest.raises(ValueError, match="not a state"):
            module.load_state_dict(wrong)
    plan = {"batch_size": 4, "num_workers": 0, "world_size": 1}
    module.load_state_dict({"epoch": 2, "batches": 9, "plan": plan})
    assert module.state_dict() == {"epoch": 2, "batches": 9, "plan": plan}
    assert list(module.train_dataloader()) == [[36, 37, 38, 39], [40, 41, 42]]
    for name, other in (("batch_size", 3), ("num_workers", 2), ("world_size", 4)):
        state = {"epoch": 2, "batches": 9, "plan": plan | {name: other}}
        with pytest.raises(
            PlanMismatch, match=f"{name}: saved {other}, now {plan[name]}"
        ):
            module.load_state_dict(state)
    module.trainer = SimpleNamespace(reload_dataloaders_every_n_epochs=1)
    with pytest.raises(
        ValueError, match="leave reload_dataloaders_every_n_epochs at 0"
    ):
        module.train_dataloader()


class Tiny(torch.nn.Module):
    """Keeps what it was shown."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, input_ids, labels):
        self.seen.append(input_ids[:, 0].tolist())
        return {"loss": (self.weight - labels.float().mean()).square().sum()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_hf_trainer_reads_the_stream(tmp_path):
    from transformers import Trainer, TrainingArguments

    stream = TokenStream(
        write_text(tmp_path, [30] * 40),
        TOKENIZER,
        10,
        micro_batch_size=2,
        shuffle_buffer=8,
    )
    model = Tiny()
    arguments = TrainingArguments(
        str(tmp_path / "out"), max_steps=5, per_device_train_batch_size=2, gradient_accumulation_steps=2, use_cpu=True,
        report_to=[], save_strategy="no", logging_strategy="no", dataloader_num_workers=2, disable_tqdm=True,
        dataloader_pin_memory=False, remove_unused_columns=False,
    )  # fmt: skip
    Trainer(
        model, arguments, train_dataset=stream, data_collator=inputs_and_labels
    ).train()
    expected = DataLoader(stream, 2, collate_fn=inputs_and_labels)
    stream.seek()
    assert model.seen == [
        batch["input_ids"][:, 0].tolist() for batch in islice(expected, 10)
    ]


SAVE_BATCHES = {"every_n_train_steps": 1}
SAVE_VALIDATIONS = {"save_on_train_epoch_end": False}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("stops", "saves"),
    [
        # after the last batch of an epoch, then within the next one
        ((5, 7, 9, 16), SAVE_BATCHES),
        ((4, 5, 10, 16), SAVE_BATCHES),
        # after the validation that ends an epoch
        ((5, 10, 16), SAVE_VALIDATIONS),
        # the runs end there, and save then
        ((7, 9, 16), None),
        ((3, 10, 16), None),
    ],
)
def test_a_run_resumed_again_and_again_reads_every_batch_once(tmp_path, stops, saves):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from nanoset_ref.streaming.datamodule import SuperDataModule

    class Model(LightningModule):
        def training_step(self, batch, index):
            seen.append(batch)
            return self.weight.sum()

        def validation_step(self, batch, index):
            pass

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    taken = []
    checkpoint = None
    for stop in stops:
        seen = []
        model = Model()
        model.weight = torch.nn.Parameter(torch.zeros(1))
        hparams = SimpleNamespace(batch_size=4, iterable=True)
        valid = ByEpoch(3) if saves is SAVE_VALIDATIONS else None
        module = SuperDataModule(hparams, ByEpoch(18), valid, collate_fn=list)
        keep = ModelCheckpoint(
            tmp_path / str(stop), "{step}", save_top_k=-1, **saves or {}
        )
        trainer = Trainer(
            max_steps=-1 if saves else stop, max_epochs=4 if saves else -1, accelerator="cpu", devices=1, logger=False,
            callbacks=[keep] if saves else [], enable_checkpointing=bool(saves), enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(model, module, ckpt_path=checkpoint)
        checkpoint = tmp_path / str(stop) / f"step={stop}.ckpt"
        if not saves:
            trainer.save_checkpoint(checkpoint)
        taken += seen[: stop - len(taken)]
    assert [batch[0] for batch in taken] == [
        100 * turn + first for turn in range(4) for first in range(0, 18, 4)
    ][:16]
