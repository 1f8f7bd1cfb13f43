"""A `Schedule` as a torch sampler: the batches of positions that one data-parallel rank reads.

`ResumableBatchSampler` is arithmetic: a batch is a `range` object, so it starts at any position at
once and stores nothing, with 10 or with 10^12 samples. torch's DistributedSampler builds a list of
the whole dataset in every rank and epoch; Nanotron's resume iterates over the batches it skips.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.load.schedule import Layout, Schedule

logger = logging.getLogger(__name__)

Tail = Literal["drop", "pad", "loop"]


class RestOfEpoch(NamedTuple):
    """The rest of an epoch, from a global count on.

    Attributes:
        num_batches: batches of each rank.
        dropped: positions that no rank reads, over all ranks.
        repeated: positions read again to fill the last batch, over all ranks; in a short epoch,
            some of them several times.
        end: the global count at the end of the epoch.
    """

    num_batches: int
    dropped: int
    repeated: int
    end: int


class ResumableBatchSampler(Iterable[Sequence[int]]):
    """Micro-batches of positions for one data-parallel rank, starting at any global count.

    Args:
        num_samples: N, positions in one epoch (the length of the dataset).
        micro_batch_size: B, samples per batch of one rank.
        dp_rank: r, this rank, 0 <= r < dp_size.
        dp_size: D, number of data-parallel ranks.
        consumed_train_samples: c, samples delivered to all ranks together, over all epochs: c // N
            whole epochs and c % N positions of the next. It need not be a multiple of anything;
            iteration begins at exactly that position.
        layout: "strided" or "contiguous", see `nanoset_ref.load.schedule`.
        tail: how an epoch ends if its last positions do not fill a batch on every rank.
            "drop": these positions are not read; the last batch counts them as consumed.
            "pad": they make a last, shorter batch. Positions from the beginning of the epoch fill
            it to a multiple of D, as in torch's DistributedSampler(drop_last=False).
            "loop": positions from the beginning of the epoch fill the last batch to B on every
            rank, as in transformers' DistributedSamplerWithLoop.
            All ranks always read equally many positions; `remaining` counts the dropped and
            the repeated ones.

    Iterating yields the batches of the rest of the current epoch; the next iteration begins a new
    one.

    Attributes:
        samples_per_micro_step: D x B, the samples that all ranks together read in a micro-step.
        consumed_train_samples: the global count after the batches yielded so far. A DataLoader with
            workers asks for batches in advance, so count delivered ones instead
            (`NanosetDataLoader` and StatefulDataLoader do).

    Raises:
        ValueError: an argument out of its range; with tail="drop", fewer samples than in a batch of
            all ranks, since every epoch would be empty.
    """

    def __init__(
        self,
        num_samples: int,
        micro_batch_size: int,
        dp_rank: int = 0,
        dp_size: int = 1,
        consumed_train_samples: int = 0,
        *,
        layout: Layout = "strided",
        tail: Tail = "drop",
    ) -> None:
        self.schedule = Schedule(
            dp_size=dp_size, micro_batch_size=micro_batch_size, layout=layout
        )
        self.num_samples = whole_number(num_samples, "num_samples", 1)
        self.dp_rank = whole_number(dp_rank, "dp_rank", 0)
        if dp_rank >= self.schedule.dp_size:
            raise ValueError(
                f"dp_rank must be at least 0 and below dp_size={dp_size}, got {dp_rank}"
            )
        if tail not in get_args(Tail):
            raise ValueError(f"tail must be one of {get_args(Tail)}, got {tail!r}")
        self.micro_batch_size = self.schedule.micro_batch_size
        self.samples_per_micro_step = self.schedule.samples_per_micro_step
        if tail == "drop" and num_samples < self.samples_per_micro_step:
            raise ValueError(
                f"{num_samples:,} samples do not fill one batch of {self.samples_per_micro_step:,} "
                f"(dp_size={dp_size} x micro_batch_size={micro_batch_size}), so every epoch would "
                "be empty; use fewer ranks, a smaller micro-batch, more samples, or tail='pad' or "
                "'loop'"
            )
        self.tail: Tail = tail
        self.consumed_train_samples = whole_number(
            consumed_train_samples, "consumed_train_samples", 0, bits=63
        )

    def remaining(self, consumed_train_samples: int) -> RestOfEpoch:
        """The rest of the epoch at a global count, the same on every rank."""
        left = self.num_samples - consumed_train_samples % self.num_samples
        full, rest = divmod(left, self.samples_per_micro_step)
        end = consumed_train_samples + left
        if self.tail == "drop":
            return RestOfEpoch(full, dropped=rest, repeated=0, end=end)
        batches = full + (rest > 0)
        multiple = self.samples_per_micro_step
        if self.tail == "pad":
            multiple = self.schedule.dp_size
        repeated = -rest % multiple
        return RestOfEpoch(batches, dropped=0, repeated=repeated, end=end)

    def __len__(self) -> int:
        return self.remaining(self.consumed_train_samples).num_batches

    def __iter__(self) -> Iterator[Sequence[int]]:
        consumed = self.consumed_train_samples
        _, dropped, repeated, end = self.remaining(consumed)
        if dropped or repeated:
            logger.info(
                "at the end of this epoch, at %d, %d samples are dropped, %d repeated",
                end,
                dropped,
                repeated,
            )
        stop = end - dropped + repeated  # where the last batch ends
        for global_start in range(consumed, stop, self.samples_per_micro_step):
            size = min(self.samples_per_micro_step, stop - global_start)
            is_last = global_start + size == stop
            self.consumed_train_samples = end if is_last else global_start + size
            start = global_start % self.num_samples
            positions = self.schedule.rank_positions(start, size, self.dp_rank)
            if start + size > self.num_samples:  # repeats the beginning of the epoch
                yield [position % self.num_samples for position in positions]
            else:
                yield positions
        self.consumed_train_samples = end

    def blocks(self, max_batches: int) -> Iterator[Int64Array]:
        """The positions that iterating yields, many batches at a time.

        Args:
            max_batches: the maximum number of batches in a block. The first have 1, 2, 4, ...

        Yields int64 [batches * B]. A last batch made by `tail` is a block by itself. The global
        count advances when a block is yielded.
        """
        # not read again: another iteration may move the count of the sampler
        consumed = self.consumed_train_samples
        end = self.remaining(consumed).end
        batches_left = (end - consumed) // self.samples_per_micro_step
        block_size = 1  # in batches
        while batches_left:
            count = min(block_size, max_batches, batches_left)
            start = consumed % self.num_samples
            consumed += count * self.samples_per_micro_step
            self.consumed_train_samples = consumed
            batches_left -= count
            block_size *= 2
            yield self.schedule.rank_batches(start, self.dp_rank, count).ravel()
        self.consumed_train_samples = consumed
        if consumed < end:
            # the last batch, which `tail` fills or shortens; with "drop" this only moves the count
            for positions in self:
                yield np.array(positions)

    def state_dict(self) -> dict[str, int]:
        """{"consumed_train_samples": int}, the samples in all batches yielded so far."""
        return {"consumed_train_samples": self.consumed_train_samples}

    def load_state_dict(self, state: Json) -> None:
        """Continue after the samples that `state` counts."""
        self.consumed_train_samples = consumed_in(state)

    def __repr__(self) -> str:
        return (
            f"ResumableBatchSampler(rank {self.dp_rank} of {self.schedule.dp_size}, "
            f"{self.num_samples:,} samples in micro-batches of {self.micro_batch_size}, "
            f"{self.schedule.layout}, "
            f"at {self.consumed_train_samples:,})"
        )


def consumed_in(state: Any) -> int:
    """The global count in a state.

    Raises:
        ValueError: the state is not a dict with a count of 0 .. 2**63 - 1.
    """
    try:
        consumed = state["consumed_train_samples"]
        return whole_number(consumed, "consumed_train_samples", 0, bits=63)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            "a state holds consumed_train_samples, an integer of 0 .. 2**63 - 1; "
            f"got {str(state)[:200]}"
        ) from error
