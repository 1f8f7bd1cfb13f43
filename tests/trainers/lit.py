import contextlib

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from trainer_helpers import DATASET, FOLDER, Tiny, recipe, report, weight

exec(recipe("Lightning"), globals())


class Failure(Exception):
    pass


class Model(LightningModule):
    def __init__(self, steps, fails):
        super().__init__()
        self.tiny = Tiny()
        self.steps = steps
        self.fails = fails

    def training_step(self, batch, index):
        if self.fails and self.trainer.global_step == self.steps:
            raise Failure
        return self.tiny(batch["input_ids"], batch["label_ids"])

    def on_train_batch_end(self, *arguments):
        if not self.fails:
            self.trainer.should_stop = self.trainer.global_step == self.steps

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.1)


def fit(steps, start=None, *, fails=False):
    """Train up to a step, from the checkpoint of the run that stopped at `start`.

    A run that goes on asks for its loader anew in each epoch. One that fails does so in the first
    batch after the step, and saves the state that it then has.
    """
    model = Model(steps, fails)
    folder = FOLDER / str(steps)
    keep = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    if fails:
        keep = OnExceptionCheckpoint(folder, f"step={steps}")
    trainer = Trainer(
        max_epochs=2, accumulate_grad_batches=2, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        use_distributed_sampler=False, callbacks=[keep], enable_progress_bar=False, enable_model_summary=False,
        reload_dataloaders_every_n_epochs=0 if start is None else 1,
    )  # fmt: skip
    checkpoint = start and FOLDER / str(start) / f"step={start}.ckpt"
    with contextlib.suppress(Failure):
        trainer.fit(model, NanosetModule(DATASET, 2), ckpt_path=checkpoint)
    return model.tiny.seen, weight(model)


whole = fit(18)
first = fit(3)
# the 13th step ends the first epoch
seen = fit(13, 3)[0] + fit(15, 13, fails=True)[0]
rest, last_weight = fit(18, 15)
report(whole, first, (seen + rest, last_weight))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # its threads must not outlive the interpreter
