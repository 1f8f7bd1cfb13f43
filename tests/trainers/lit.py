import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from parts import DATASET, FOLDER, Tiny, recipe, report, weight

exec(recipe("Lightning"), globals())


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.tiny = Tiny()

    def training_step(self, batch, index):
        return self.tiny(batch["input_ids"], batch["label_ids"])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.1)


def fit(steps, checkpoint=None):
    model = Model()
    keep = ModelCheckpoint(FOLDER, "{step}", every_n_train_steps=3, save_top_k=-1)
    trainer = Trainer(
        max_steps=steps, accumulate_grad_batches=2, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        use_distributed_sampler=False, callbacks=[keep], enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, NanosetModule(DATASET, 2), ckpt_path=checkpoint)
    return model.tiny.seen, weight(model)


report(fit(15), fit(3), fit(15, FOLDER / "step=3.ckpt"))
