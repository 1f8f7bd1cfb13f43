"""The resume contract: what every loader of the package must hold, written once.

A loader is given as a factory of its layout; tokens are range(N) or rows are numbered, so that a delivered batch tells
which positions it holds. The contract
stops and resumes it in every way that happens on a cluster, and asks for one thing: over all ranks, every position
    exactly once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, cycle, islice
from typing import Any

# (dp_rank, dp_size, micro_batch_size, num_workers) -> a fresh loader, with __iter__, state_dict and load_state_dict
Factory = Callable[[int, int, int, int], Any]


def in_global_order(step: Iterable[list[int]], layout: str) -> Iterable[int]:
    """One global batch as the sequence of positions it stands for: strided ranks interleave, contiguous ranks follow
    each other.
    """
    rows = step if layout == "contiguous" else zip(*step, strict=True)
    return chain.from_iterable(rows)


def check_resume_contract(
    factory: Factory,
    positions_of: Callable[[Any], list[int]],
    num_samples: int,
    *,
    layout: str = "strided",
    layouts: Iterable[tuple[int, int]] = ((4, 2), (2, 3), (3, 1)),
    workers: Iterable[int] = (0, 1, 3),
    stops: Iterable[int] = (0, 1, 3),
    epochs: bool = True,
) -> None:
    """Assert exact resume.

    Args:
        factory: makes the loader of one rank; see Factory.
        positions_of: the positions 0..num_samples-1 that a delivered batch holds, in its order.
        num_samples: positions in an epoch; must be a multiple of no layout in particular.
        layout: how ranks share a global batch, "strided" or "contiguous".
        layouts: (dp_size, micro_batch_size) of successive resumes, each continuing from the state of the one before;
            the first pair is also used alone. A single pair for loaders whose layout is fixed.
        workers: numbers of DataLoader workers; the resumed loader uses another number than the stopped one where there
            are several.
        stops: batches after which a run is stopped.
        epochs: whether the loader can be iterated again for the next epoch.
    """
    layouts, workers, stops = list(layouts), list(workers), list(stops)
    dp_size, micro_batch_size = layouts[0]
    step_size = dp_size * micro_batch_size
    whole = num_samples - num_samples % step_size

    def fresh(
        layout_: tuple[int, int], num_workers: int, before: Iterable[Any] = ()
    ) -> list[Any]:
        """The loaders of all ranks, which go on where those `before` stand; an additional rank takes any state."""
        states = [loader.state_dict() for loader in before]
        loaders = [factory(rank, *layout_, num_workers) for rank in range(layout_[0])]
        for loader, state in zip(loaders, cycle(states), strict=False):
            loader.load_state_dict(state)
        return loaders

    def take(loaders: list[Any], batches: int | None) -> list[int]:
        """The positions of the next `batches` batches (None: of the epoch); all ranks must give equally many."""
        streams = [
            list(map(positions_of, islice(loader, batches))) if batches != 0 else []
            for loader in loaders
        ]
        return [
            position
            for step in zip(*streams, strict=True)
            for position in in_global_order(step, layout)
        ]

    # 1. An uninterrupted epoch reads every position once, in order, whatever the number of workers.
    for num_workers in workers:
        assert take(fresh(layouts[0], num_workers), None) == list(range(whole))

    # 2. Stop and resume, with another number of workers; prefetched batches are neither lost nor repeated.
    for stop in stops:
        for index, num_workers in enumerate(workers):
            loaders = fresh(layouts[0], num_workers)
            before = take(loaders, stop)
            after = take(fresh(layouts[0], workers[index - 1], loaders), None)
            assert before + after == list(range(whole)), (
                f"stopped after {stop} batches with {num_workers} workers"
            )

    # 3. A second resume from a resumed run.
    first = fresh(layouts[0], workers[0])
    seen = take(first, 1)
    second = fresh(layouts[0], workers[-1], first)
    seen += take(second, 1)
    seen += take(fresh(layouts[0], workers[0], second), None)
    assert seen == list(range(whole))

    # 4. Resume in the second epoch: the skip happens once, the epoch after it is whole again.
    if epochs:
        loaders = fresh(layouts[0], workers[0])
        take(loaders, None)
        seen = take(loaders, 2)
        assert seen == list(range(min(2 * step_size, whole)))
        resumed = fresh(layouts[0], workers[-1], loaders)
        assert seen + take(resumed, None) == list(range(whole))
        assert take(resumed, None) == list(range(whole))

    # 5. Every resume on another number of ranks and another micro-batch: nothing repeats, nothing is lost.
    seen, loaders = [], []
    for index, next_layout in enumerate(layouts):
        loaders = fresh(next_layout, workers[index % len(workers)], loaders)
        seen += take(loaders, 2)
        assert seen == list(range(len(seen))), (
            f"after continuing with (dp_size, micro_batch_size) = {next_layout}"
        )
