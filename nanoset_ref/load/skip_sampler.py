"""`SkipBatchSampler` of Nanotron (2024), for code that wraps samplers; without its defects."""

import itertools
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import Sampler

from nanoset_ref.io.checks import whole_number


class SkipBatchSampler(Sampler[Any]):
    """Skips the first items of another sampler, in the first iteration only, to resume.

    Args:
        batch_sampler: yields samples or batches of samples. If it can be sliced
            (`batch_sampler[n:]`), no item is walked through; otherwise the skipped items are taken
            from it and dropped.
        skip_samples: the items that all ranks together have consumed. An item is what the sampler
            yields: a sample, or a batch of one micro-batch.
        dp_size: number of data-parallel ranks; each rank skips skip_samples / dp_size.

    Raises:
        ValueError: skip_samples is not a multiple of dp_size, so no number of items per rank is
            exact (ResumableBatchSampler can start anywhere), or exceeds the sampler's items.

    Source: nanotron's SkipBatchSampler, which skips again in every later epoch and rounds down.
    """

    def __init__(
        self, batch_sampler: Iterable[Any], skip_samples: int, dp_size: int
    ) -> None:
        skip_samples = whole_number(skip_samples, "skip_samples", 0)
        dp_size = whole_number(dp_size, "dp_size", 1)
        what = f"skip_samples={skip_samples} over dp_size={dp_size} ranks"
        if skip_samples % dp_size:
            raise ValueError(
                f"{what} is not a multiple of dp_size: the ranks would continue at different "
                "samples; ResumableBatchSampler(consumed_train_samples=...) starts at any position"
            )
        self.batch_sampler = batch_sampler
        self.skip_samples = skip_samples // dp_size
        self._skipped = 0
        if isinstance(batch_sampler, Sized) and self.skip_samples > len(batch_sampler):
            raise ValueError(f"{what} exceeds the sampler's {len(batch_sampler)} items")

    def __iter__(self) -> Iterator[Any]:
        # a generator runs when its first item is asked for: an unused generator skips nothing
        skip = self.skip_samples
        self.skip_samples = 0
        self._skipped = skip
        try:
            if hasattr(self.batch_sampler, "__getitem__"):
                yield from self.batch_sampler[skip:]
            else:
                yield from itertools.islice(self.batch_sampler, skip, None)
        finally:
            self._skipped = 0

    def __len__(self) -> int:
        """Items of the current iteration or, if there is none, of the next."""
        skipped = max(self.skip_samples, self._skipped)
        return len(self.batch_sampler) - skipped  # type: ignore[arg-type]
