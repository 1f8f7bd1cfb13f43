"""A Lightning data module made from adapters; it requires the extra `lightning`.

Adapters become MapDatasets (or IterableDatasets with hparams.iterable) in DataLoaders. A checkpoint
in the middle of an epoch records the number of batches trained on, and the resumed run continues
after them, with or without workers.

The module keeps the state itself: from a loader without a length, Lightning prefetches one batch
more than it trains on, so the loader's own state would be a batch ahead, and that batch would be
lost. It counts the batches trained on since an iteration began: within an epoch, Lightning counts
differently after some resumes.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch.utils.data import DataLoader, default_collate

from nanoset_ref.io.extras import extra
from nanoset_ref.streaming.iterable import IterableDataset
from nanoset_ref.streaming.map_style import MapDataset
from nanoset_ref.streaming.resumable import State, checked_copy, required_count
from nanoset_ref.streaming.text_adapters import Adapter

with extra("lightning", "a Lightning data module"):
    from lightning.pytorch import LightningDataModule

LOADER_OPTIONS = ("num_workers", "pin_memory", "prefetch_factor")


class EpochLoader(DataLoader[Any]):
    """A loader that knows the progress in its IterableDataset, if it has a trainer.

    Each iteration is an epoch, or the rest of the first one. One that the trainer began without
    training on it, as after some resumes, is begun again.
    """

    trainer: Any = None
    epoch = 0
    batches = 0  # trained on in this epoch before the iteration began
    _total: int | None = None  # trained on in all epochs before it began

    def __iter__(self) -> Any:
        if self.trainer is not None:
            if self._num_trained:
                self.epoch += 1
                self.batches = 0
            self.dataset.restart(self.epoch)  # type: ignore[attr-defined]
            self._total = self._counts.total.processed
        return super().__iter__()

    @property
    def progress(self) -> State:
        """{"epoch", "batches"}: where training stands."""
        num_trained = self._num_trained
        if num_trained:
            counts = self._counts
            is_done = counts.current.ready == counts.current.processed
            if counts.is_last_batch and is_done:
                return {"epoch": self.epoch + 1, "batches": 0}
        return {"epoch": self.epoch, "batches": self.batches + num_trained}

    @property
    def _counts(self) -> Any:
        """Lightning's counts of the batches trained on."""
        return self.trainer.fit_loop.epoch_loop.batch_progress

    @property
    def _num_trained(self) -> int:
        """The number of batches of this iteration trained on."""
        return 0 if self._total is None else self._counts.total.processed - self._total


class SuperDataModule(LightningDataModule):
    """DataLoaders made from adapters.

    Args:
        hparams: an object with `batch_size`; optional: `iterable` (False), `num_workers` (0),
            `pin_memory` (False), `prefetch_factor`.
        train_adapter, valid_adapter, test_adapter, predict_adapter: one Adapter each, or None.
        collate_fn: makes a batch from elements.

    With a map dataset, training is shuffled and Lightning adds its DistributedSampler. An iterable
    dataset divides its elements among ranks and workers itself. Only the iterable dataset resumes
    exactly within an epoch, from a checkpoint (a second `fit` of one trainer begins the next epoch,
    as Lightning counts it); its order depends on the number of workers, which is therefore not
    taken from the machine: with `num_workers=os.cpu_count()` every logical CPU preprocesses.

    Raises:
        ValueError: hparams lack batch_size, or a loader's adapter is missing.
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
        required_count(hparams, "batch_size")
        self.hyperparameters = hparams  # `hparams` itself is Lightning's
        self.train_adapter = train_adapter
        self.valid_adapter = valid_adapter
        self.test_adapter = test_adapter
        self.predict_adapter = predict_adapter
        self.collate_fn = collate_fn
        self._start: State = {"epoch": 0, "batches": 0, "plan": self._plan}
        self._train_loader: EpochLoader | None = None

    @property
    def _plan(self) -> State:
        """The numbers that decide which elements a batch has."""
        return {
            "batch_size": self.hyperparameters.batch_size,
            "num_workers": getattr(self.hyperparameters, "num_workers", 0),
            "world_size": getattr(self.trainer, "world_size", 1),
        }

    def train_dataloader(self) -> Any:
        """The loader of `train_adapter`, from the saved batch on.

        Raises:
            ValueError: the trainer builds the loader again for later epochs, although an iterable
                dataset counts them.
        """
        is_iterable = getattr(self.hyperparameters, "iterable", False)
        if is_iterable and getattr(
            self.trainer, "reload_dataloaders_every_n_epochs", 0
        ):
            raise ValueError(
                "an iterable dataset counts its epochs, so its loader must stay: leave "
                "reload_dataloaders_every_n_epochs at 0"
            )
        epoch = self._start["epoch"]
        batches = self._start["batches"]
        loader = self._loader("train", epoch, batches)
        if is_iterable:
            loader.trainer = self.trainer
            loader.epoch = epoch
            loader.batches = batches
            self._train_loader = loader
        return loader

    def val_dataloader(self) -> Any:
        """The loader of `valid_adapter`; an empty list without one."""
        return [] if self.valid_adapter is None else self._loader("valid")

    def test_dataloader(self) -> Any:
        """The loader of `test_adapter`."""
        return self._loader("test")

    def predict_dataloader(self) -> Any:
        """The loader of `predict_adapter`."""
        return self._loader("predict")

    def state_dict(self) -> State:
        """Return {"epoch", "batches", "plan"}, the progress of one rank in an iterable dataset, and
        what it depends on, for Lightning's checkpoint.
        """
        loader = self._train_loader
        progress = self._start if loader is None else loader.progress
        return {**progress, "plan": self._plan}

    def load_state_dict(self, state_dict: State) -> None:
        """Keep the state for the loaders that are built next.

        Raises:
            PlanMismatch: the state was saved with another batch_size, num_workers or world_size.
            ValueError: it is not a state.
        """
        self._start = checked_copy(state_dict, self._start | {"plan": self._plan})

    def _loader(self, name: str, epoch: int = 0, batches: int = 0) -> Any:
        """Make the loader of an adapter, from an epoch and a number of batches on."""
        adapter = getattr(self, f"{name}_adapter")
        if adapter is None:
            raise ValueError(
                f"SuperDataModule has no {name}_adapter; pass one to use this loader"
            )
        hparams = self.hyperparameters
        options = {
            key: getattr(hparams, key)
            for key in LOADER_OPTIONS
            if hasattr(hparams, key)
        }
        if getattr(hparams, "iterable", False):
            # one batch per step, so that the dataset counts batches
            per_batch = SimpleNamespace(
                batch_size=hparams.batch_size, accumulate_grad_batches=1
            )
            dataset: Any = IterableDataset(
                per_batch, adapter, self.trainer, batches, start_from_epoch=epoch
            )
        else:
            dataset = MapDataset(hparams, adapter, self.trainer)
            options["shuffle"] = name == "train"
        return EpochLoader(
            dataset, hparams.batch_size, collate_fn=self.collate_fn, **options
        )
