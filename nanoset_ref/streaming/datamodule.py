"""A Lightning data module made from adapters. Needs the extra `lightning`; nothing else here imports this module.

Adapters become MapDatasets or, with hparams.iterable, IterableDatasets; these become DataLoaders. A checkpoint in the
middle of an epoch records how many batches were trained on, and the resumed run continues after them, with or without
workers.

The module keeps the state, because Lightning prefetches one batch more than it trains on from a loader without a
length: the loader's own state would be a batch ahead, and that batch would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch.utils.data import DataLoader, default_collate

from nanoset_ref.io.extras import extra
from nanoset_ref.streaming.adapters import Adapter
from nanoset_ref.streaming.iterable import IterableDataset
from nanoset_ref.streaming.mapped import MapDataset
from nanoset_ref.streaming.resumable import State, check_state, required

with extra("lightning", "a Lightning data module"):
    from lightning.pytorch import LightningDataModule

LOADER_OPTIONS = ("num_workers", "pin_memory", "prefetch_factor")


class SuperDataModule(LightningDataModule):
    """Adapters in, DataLoaders out.

    Args:
        hparams: with `batch_size`; optional: `iterable` (False), `num_workers` (0), `pin_memory` (False),
            `prefetch_factor`.
        train_adapter, valid_adapter, test_adapter, predict_adapter: one Adapter each, or None.
        collate_fn: elements to a batch.

    With a map dataset, training is shuffled and Lightning adds its DistributedSampler. An iterable dataset shares its
    elements among ranks and workers itself, and only it resumes exactly within an epoch.

    Raises:
        ValueError: hparams without batch_size, a loader for which there is no adapter.
    """

    def __init__(
        self,
        hparams: Any,
        train_adapter: Adapter | None = None,
        valid_adapter: Adapter | None = None,
        test_adapter: Adapter | None = None,
        predict_adapter: Adapter | None = None,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        super().__init__()
        required(hparams, "batch_size")
        self.hyperparameters = hparams  # `hparams` itself is Lightning's
        self.train_adapter = train_adapter
        self.valid_adapter = valid_adapter
        self.test_adapter = test_adapter
        self.predict_adapter = predict_adapter
        self.collate_fn = collate_fn
        self._start = {"epoch": 0, "batches": 0}

    def train_dataloader(self) -> Any:
        return self._loader("train", **self._start)

    def val_dataloader(self) -> Any:
        return [] if self.valid_adapter is None else self._loader("valid")

    def test_dataloader(self) -> Any:
        return self._loader("test")

    def predict_dataloader(self) -> Any:
        return self._loader("predict")

    def state_dict(self) -> State:
        """{"epoch", "batches"}: where training stands, in batches of one rank; goes into Lightning's checkpoint."""
        if self.trainer is None:
            return dict(self._start)
        done: Any = self.trainer.fit_loop.epoch_loop.batch_progress
        # current_epoch already names the next epoch when fit has ended; the number of epochs begun does not
        epoch = max(0, self.trainer.fit_loop.epoch_progress.current.ready - 1)
        if done.is_last_batch:
            return {"epoch": epoch + 1, "batches": 0}
        return {"epoch": epoch, "batches": done.current.processed}

    def load_state_dict(self, state_dict: State) -> None:
        self._start = check_state(state_dict, self._start)

    def _loader(self, name: str, epoch: int = 0, batches: int = 0) -> Any:
        adapter = getattr(self, f"{name}_adapter")
        if adapter is None:
            raise ValueError(f"SuperDataModule has no {name}_adapter; pass one to use this loader")
        hparams = self.hyperparameters
        options = {key: getattr(hparams, key) for key in LOADER_OPTIONS if hasattr(hparams, key)}
        if getattr(hparams, "iterable", False):
            # one batch per step, so that the dataset counts batches
            per_batch = SimpleNamespace(batch_size=hparams.batch_size, accumulate_grad_batches=1)
            dataset: Any = IterableDataset(
                per_batch, adapter, self.trainer, batches, start_from_epoch=epoch
            )
        else:
            dataset = MapDataset(hparams, adapter, self.trainer)
            options["shuffle"] = name == "train"
        return DataLoader(dataset, hparams.batch_size, collate_fn=self.collate_fn, **options)
