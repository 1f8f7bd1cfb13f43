"""``order="llm_c"``: the batches of llm.c, which each rank draws from a stream of its own.

Source: karpathy/llm.c f1e2ace (May 2025), `llmc/dataloader.h` and `llmc/rand.h`. Its training
shuffles (``shuffle=1``); its validation reads from front to back (``shuffle=0``).
"""

from typing import Any

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Int64Array
from nanoset_ref.orders.base import Order, Pairs

SEED = 42  # llm.c has no other


class LlmCOrder(Order):
    """In step t rank r reads `micro_batch_size` neighboring samples of a file of its own choice.

    1. file f has ``samples // (ranks * micro_batch_size)`` batches; the rest of it is never read
    2. rank r draws from one mt19937(42 + r): in every epoch it shuffles the files, beginning with
       their last order, and then the batches 0 1 2 ... of each file, when it comes to the file
    3. of batch i rank r reads the samples (i * ranks + r) * micro_batch_size + 0, 1, ...

    Ranks read blocks of positions (``Schedule(layout="contiguous")``).

    Example, files of 4 and 6 samples, 2 ranks, 1 sample each; (file, sample) of the first epoch::

        rank 0    (1, 2) (1, 0) (1, 4) (0, 2) (0, 0)
        rank 1    (1, 5) (1, 3) (1, 1) (0, 1) (0, 3)

    Args:
        dataset_lengths, dataset_weights, num_samples: see `Order`; the weights are None, and the
            seed changes nothing.
        micro_batch_size: B, rows of a rank in a step.
        dp_size: ranks.
        shuffle: whether batches are shuffled; if not, ranks read batch after batch.

    Raises:
        ValueError: see `Order`; a file without a whole batch, which llm.c refuses, too.
    """

    name = "llm_c"
    seeded = False
    keeps_shares = False

    def __init__(
        self,
        *order_arguments: Any,
        micro_batch_size: int = 1,
        dp_size: int = 1,
        shuffle: bool = True,
        **named: Any,
    ) -> None:
        self._micro_batch_size = whole_number(micro_batch_size, "micro_batch_size", 1)
        self._dp_size = whole_number(dp_size, "dp_size", 1)
        self._global_batch_size = self._micro_batch_size * self._dp_size
        self.options = {
            "micro_batch_size": self._micro_batch_size,
            "dp_size": self._dp_size,
            "shuffle": bool(shuffle),
        }
        super().__init__(*order_arguments, **named)

    def build(self) -> None:
        """Steps 1 and 2: each rank's batches in all epochs."""
        # 1.
        batches = self.dataset_lengths // self._global_batch_size
        if batches.min() < 1:
            raise ValueError(
                f"every file must fill a batch of {self._global_batch_size} samples; "
                f"file {batches.argmin()} has {self.dataset_lengths.min()}: leave it out, "
                "or use smaller batches"
            )
        self._ends = np.cumsum(batches)
        self._first_batches = self._ends - batches
        self._epoch_length = int(self._ends[-1]) * self._global_batch_size
        # 2.
        epochs = -(-self.num_samples // self._epoch_length)
        numbers = [self._batches_of(rank, epochs) for rank in range(self._dp_size)]
        self._numbers = np.array(numbers, dtype=np.int64)

    def _batches_of(self, rank: int, epochs: int) -> list[int]:
        """The batches that a rank reads in its steps, numbered file by file."""
        if not self.options["shuffle"]:
            one_epoch = list(range(self._ends[-1]))
            return one_epoch * epochs
        generator = np.random.RandomState(SEED + rank)
        files = list(range(len(self._ends)))
        numbers = []
        for _ in range(epochs):
            shuffle_from_the_end(files, generator)
            for file in files:
                first = self._first_batches[file]
                batches = list(range(first, self._ends[file]))
                shuffle_from_the_end(batches, generator)
                numbers += batches
        return numbers

    def lookup(self, positions: Int64Array) -> Pairs:
        """See `Order.lookup`."""
        steps, indices_in_batch = np.divmod(positions, self._global_batch_size)
        ranks = indices_in_batch // self._micro_batch_size
        numbers = self._numbers[ranks, steps]
        files = np.searchsorted(self._ends, numbers, side="right")
        batches = numbers - self._first_batches[files]
        # 3.
        return files, batches * self._global_batch_size + indices_in_batch

    def epoch_of(self, position: int) -> int:
        """See `Order.epoch_of`."""
        return position // self._epoch_length


def shuffle_from_the_end(
    values: list[int],
    generator: np.random.RandomState,
) -> None:
    """Shuffle in place, with one word of the generator for each value but one."""
    last = len(values) - 1
    words = generator.randint(0, 2**32, last, dtype=np.uint32)
    for i in range(last, 0, -1):
        word = int(words[last - i])
        j = word % (i + 1)
        values[i], values[j] = values[j], values[i]
