"""The order of Nanotron's main branch, stage by stage, with the ledger that it keeps between stages.

Source: huggingface/nanotron 2411b022 (April 2026; so since April 2025, pull request 341): `run_train.py`,
`data/tokenized_bytes.py`, `data/nemo_dataset/blendable_dataset.py`. SmolLM3 was trained with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.files import listed
from nanoset_ref.io.kernels import njit
from nanoset_ref.orders.base import Int64Array, NumberedOrder, Weights, normalize_weights
from nanoset_ref.orders.nanotron import furthest_behind


class NanotronMainOrder(NumberedOrder):
    """One stage: position k reads the next row of the folder that lags most behind its weight.

    1. weights (None: all equal) are divided by their sum in float64
    2. for t = 0, 1, ... the folder with the largest ``weight * max(t, 1.0) - taken`` is next
    3. its rows are read in the order of its files, from ``offset`` on: nothing is shuffled

    Example, folders of 2 + 3 and 4 rows, weights 0.5, 0.5, offsets 1, 0::

        folder       0 1 0 1 0 1        row of the folder    1 0 2 1 3 2
        (file, row)  (0, 1) (2, 0) (1, 0) (2, 1) (1, 1) (2, 2)

    Ranks read blocks (``Schedule(layout="contiguous")``), rows of S + 1 tokens that share none.

    Args:
        dataset_lengths: rows in each file, folder after folder.
        dataset_weights: one number for each *folder*.
        num_samples, random_seed: see `Order`; the seed changes nothing here.
        folders: how many files each folder has. offsets: row that a folder is read from.

    Raises:
        ValueError: see `Order`; lists of other lengths; a folder runs out, an IndexError in Nanotron.
    """

    name = "nanotron_main"
    keeps_shares = False

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
        *,
        folders: Sequence[int] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        self.folders = list(folders or [1] * len(dataset_lengths))
        self.offsets = list(offsets or [0] * len(self.folders))
        if sum(self.folders) != len(dataset_lengths) or len(self.offsets) != len(self.folders):
            raise ValueError(
                f"folders count {len(dataset_lengths)} files, and each has an offset; got "
                f"folders={self.folders}, offsets={self.offsets}"
            )
        given = [1.0] * len(self.folders) if dataset_weights is None else dataset_weights
        self.folder_weights = normalize_weights(given, len(self.folders))
        self.options = {"folders": self.folders, "offsets": self.offsets}
        super().__init__(dataset_lengths, None, num_samples, random_seed)
        self._given_weights = np.asarray(given, dtype=float).tolist()

    @property
    def identity(self) -> dict[str, Any]:
        given = super().identity | self.options
        del given["random_seed"]
        return given | {"dataset_weights": self.folder_weights.tolist()}

    def _build(self) -> None:
        begins = np.cumsum([0, *self.folders])
        rows = np.append(0, np.cumsum(self.dataset_lengths))[begins]
        next_rows = rows[:-1] + self.offsets
        blended = blend_folders(self.folder_weights, max(self.num_samples, 1))
        taken = np.bincount(blended[: self.num_samples], minlength=len(self.folders))
        for folder in np.flatnonzero(next_rows + taken > rows[1:]):
            raise ValueError(
                f"folder {folder} has {rows[folder + 1] - rows[folder]} rows; this stage would read "
                f"{taken[folder]} from {self.offsets[folder]} on, where Nanotron raises IndexError"
            )
        self.numbers = np.empty(len(blended), dtype=np.int64)
        for folder, first in enumerate(next_rows):
            chosen = np.flatnonzero(blended == folder)
            self.numbers[chosen] = first + np.arange(len(chosen))

    def counted(self, first_step: int, last_step: int, global_batch_size: int) -> list[int]:
        """Rows of each folder that Nanotron counts as read in the steps first .. last of the run.

        It counts the places of the stage's blend that have the *run's* numbers, while the stage reads
        from place 0 on: so from the second change of stage on this is not what was read.
        """
        stop = last_step * global_batch_size
        places = blend_folders(self.folder_weights, stop)[(first_step - 1) * global_batch_size :]
        return np.bincount(places, minlength=len(self.folders)).tolist()


@njit(cache=True, nogil=True)
def blend_folders(weights, size):
    """The folders that `size` places are read from, int16 [size]; weights: float64 [folders], of sum 1."""
    taken = np.zeros(len(weights))
    limits = np.full(len(weights), np.inf)
    blended = np.empty(size, dtype=np.int16)
    for t in range(size):
        blended[t] = furthest_behind(weights, taken, limits, t)
        taken[blended[t]] += 1
    return blended


def nanotron_stages(
    config: Mapping[str, Any], rows: Mapping[str, Sequence[int]]
) -> list[NanotronMainOrder]:
    """The stages of a config of Nanotron, each from the ledger of those before.

    Args:
        config: Nanotron's YAML, parsed. Its global batch size holds for all stages.
        rows: for each dataset_folder the rows of S + 1 tokens in its .ds files, in the order of
            ``datatrove_files(folder, recursive=False)``; with shuffle_files also ``shuffle=True, seed=...``.

    Raises:
        KeyError: the config or `rows` lacks something. ValueError: see `NanotronMainOrder`; the config
            sets dataset_max_tokens or use_old_brrr_dataloader.
    """
    tokens = config["tokens"]
    batch = tokens["micro_batch_size"] * tokens["batch_accumulation_per_replica"]
    batch *= config["parallelism"]["dp"]
    stages = sorted(config["data_stages"], key=lambda stage: stage["start_training_step"])
    starts = [stage["start_training_step"] for stage in stages]
    ends = [*(start - 1 for start in starts[1:]), tokens["train_steps"]]
    consumed: dict[str, int] = {}
    orders = []
    for stage, first, last in zip(stages, starts, ends, strict=True):
        dataset = stage["data"]["dataset"]
        for option in ("dataset_max_tokens", "use_old_brrr_dataloader"):
            if dataset.get(option):
                raise ValueError(f"stage {stage['name']!r} sets {option}, which is not reproduced")
        names = listed(dataset["dataset_folder"])
        order = NanotronMainOrder(
            [length for name in names for length in rows[name]],
            dataset.get("dataset_weights"),
            (last - first + 1) * batch,
            folders=[len(rows[name]) for name in names],
            offsets=[consumed.get(name, 0) for name in names],
        )
        orders.append(order)
        # of a folder that is listed twice Nanotron keeps the last count
        counted = dict(zip(names, order.counted(first, last, batch), strict=True))
        for name, count in counted.items():
            consumed[name] = consumed.get(name, 0) + count
    return orders
