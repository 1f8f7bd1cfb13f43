"""``order="nanotron_main"``: the rows that a stage of Nanotron's main branch reads, and its counts.

Source: huggingface/nanotron 2411b022 (April 2026; the same since April 2025, pull request 341):
`run_train.py`, `data/tokenized_bytes.py`, `data/nemo_dataset/blendable_dataset.py`. SmolLM3 was
trained with it.
"""

from collections.abc import Sequence

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.njit import njit
from nanoset_ref.io.paths import as_list
from nanoset_ref.io.types import Float64Array, Int64Array, Json
from nanoset_ref.orders.base import (
    NO_POSITIONS,
    Order,
    Pairs,
    Weights,
    normalize_weights,
)
from nanoset_ref.orders.greedy_blend import furthest_behind

# positions that are blended at once; only the counts are kept of those before them
POSITIONS_PER_BLOCK = 1 << 14


class NanotronMainOrder(Order):
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
        folders: the number of files of each folder; of a single one also as a number.
        offsets: the first row that is read of each folder; likewise.

    Raises:
        ValueError: see `Order`; lists of other lengths, or of other than whole numbers from 0 on; a
            folder runs out, where Nanotron raises IndexError.
    """

    name = "nanotron_main"
    seeded = False
    keeps_shares = False

    def __init__(
        self,
        dataset_lengths: Sequence[int] | Int64Array,
        dataset_weights: Weights | None,
        num_samples: int,
        random_seed: int = 1234,
        *,
        folders: Sequence[int] | int | None = None,
        offsets: Sequence[int] | int | None = None,
    ) -> None:
        numbers = as_list(folders or [1] * len(dataset_lengths), int)
        self.folders = [
            whole_number(value, "a number of files", 0) for value in numbers
        ]
        numbers = as_list(offsets or [0] * len(self.folders), int)
        self.offsets = [whole_number(value, "an offset", 0) for value in numbers]
        counts_all = sum(self.folders) == len(dataset_lengths)
        if not counts_all or len(self.offsets) != len(self.folders):
            raise ValueError(
                f"folders count {len(dataset_lengths)} files, and each has an offset; got "
                f"folders={self.folders}, offsets={self.offsets}"
            )
        weights = np.ones(len(self.folders))
        if dataset_weights is not None:
            weights = np.array(dataset_weights, dtype=np.float64)
        self.folder_weights = normalize_weights(weights, len(self.folders))
        self.options = {"folders": self.folders, "offsets": self.offsets}
        super().__init__(dataset_lengths, None, num_samples, random_seed)
        self._given_weights = weights.tolist()
        self.weighted = True

    @property
    def identity(self) -> Json:
        """See `Order.identity`; the weights are those of the folders."""
        return super().identity | {"dataset_weights": self.folder_weights.tolist()}

    def build(self) -> None:
        """Steps 1 and 2: the counts before each block. ValueError if a folder runs out."""
        count = len(self.folders)
        numbers = np.arange(count)
        self._folder_of = np.repeat(numbers, self.folders)  # of each file
        first_files = np.cumsum([0, *self.folders[:-1]])
        self._folder_starts = np.append(self.source_offsets, 0)[first_files]
        self._states = blend_states(self.folder_weights, self.num_samples)
        rows = np.bincount(self._folder_of, self.dataset_lengths, count)
        # a file has its share of the rows of its folder
        shares = self.dataset_lengths / np.maximum(rows, 1)[self._folder_of]
        self.dataset_weights = self.folder_weights[self._folder_of] * shares
        ends = self.offsets + self._states[-1]
        for folder in np.flatnonzero(ends > rows):
            raise ValueError(
                f"folder {folder} has {rows[folder]:.0f} rows; this stage would read "
                f"{self._states[-1, folder]:.0f} from {self.offsets[folder]} on, where Nanotron "
                "raises IndexError"
            )

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        instances = np.empty_like(positions)
        starts = self._folder_starts + self.offsets
        blocks, indices_in_block = np.divmod(positions, POSITIONS_PER_BLOCK)
        for block in np.unique(blocks).tolist():
            is_here = blocks == block
            folders, turns = self._blend_block(block)
            read = starts[folders] + turns
            instances[is_here] = read[indices_in_block[is_here]]
        return self.pairs(instances)

    def reverse_lookup(
        self,
        source: int,
        sample: int,
        until: int,
    ) -> Int64Array:
        """See `Order.reverse_lookup`."""
        folder = self._folder_of[source]
        row = self.source_offsets[source] - self._folder_starts[folder] + sample
        turn = row - self.offsets[folder]
        if not 0 <= turn < self._states[-1, folder]:
            return NO_POSITIONS
        taken_before = self._states[:-1, folder]
        block = np.searchsorted(taken_before, turn, side="right") - 1
        folders, turns = self._blend_block(block)
        is_read = (folders == folder) & (turns == turn)
        positions = block * POSITIONS_PER_BLOCK + np.flatnonzero(is_read)
        return positions[positions < until]

    def _blend_block(self, block: int) -> Pairs:
        """The folder at each position of a block, and how often it was read before."""
        return blend_block(self.folder_weights, self._states[block], block)

    def rows_counted_by_nanotron(
        self,
        first_step: int,
        last_step: int,
        global_batch_size: int,
    ) -> list[int]:
        """Rows of each folder that Nanotron counts as read in the steps first .. last of the run.

        Nanotron looks up the *run's* step numbers in the stage's blend, but the stage reads the
        blend from position 0 on: from the second change of stage on, these are not the rows read.
        """
        start = (first_step - 1) * global_batch_size
        stop = last_step * global_batch_size
        before = blend_states(self.folder_weights, start)[-1]
        after = blend_states(self.folder_weights, stop)[-1]
        counts = after - before
        return counts.astype(np.int64).tolist()


def blend_states(
    weights: Float64Array,
    size: int,
) -> Float64Array:
    """Rows taken of each folder before every block of positions, and after `size` positions.

    float64 [blocks + 1, folders], exact below 2**53; weights: float64 [folders], of sum 1.
    """
    states = [np.zeros(len(weights))]
    for block in range(-(-size // POSITIONS_PER_BLOCK)):
        folders, _ = blend_block(weights, states[-1], block)
        read = folders[: size - block * POSITIONS_PER_BLOCK]
        counts = np.bincount(read, minlength=len(weights))
        states.append(states[-1] + counts)
    return np.array(states)


@njit
def blend_block(weights, state, block):
    """The folder at each position of a block, and its turns before it.

    Args: as of `blend_states`; `state` is its row `block`.
    """
    taken = state.copy()
    limits = np.full(len(weights), np.inf)
    folders = np.empty(POSITIONS_PER_BLOCK, dtype=np.int64)
    turns = np.empty(POSITIONS_PER_BLOCK, dtype=np.int64)
    for position in range(POSITIONS_PER_BLOCK):
        folder = furthest_behind(
            weights, taken, limits, block * POSITIONS_PER_BLOCK + position
        )
        folders[position] = folder
        turns[position] = taken[folder]
        taken[folder] += 1
    return folders, turns
