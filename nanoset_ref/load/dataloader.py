"""The data loader of one rank: dataset, batch sampler and collator together.

`NanosetDataLoader` is torch's DataLoader plus one integer: the global count of samples delivered.
That integer and the dataset's plan are the whole state. It counts batches when they are delivered,
since the sampler runs ahead of the training loop by everything the workers prefetch.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import multiprocessing
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nanoset_ref.io.checks import unknown_key_problem, whole_number
from nanoset_ref.io.types import Json
from nanoset_ref.load.blocks import (
    BlockSizes,
    allocate_buffers,
    choose_sizes,
    count_buffers,
)
from nanoset_ref.load.collator import (
    Collator,
    DataCollatorForCLM,
    RowBlock,
    writable_copy,
)
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler, Tail, consumed_in
from nanoset_ref.load.rows import Rows
from nanoset_ref.load.schedule import Layout

if TYPE_CHECKING:
    from nanoset_ref.load.document_masks import DocumentOptions
    from nanoset_ref.orders.plans import Plan


# options that `build_nanoset_dataloader` has under another name
RENAMED_OPTIONS = {
    "num_workers": "use num_loading_workers",
    "batch_size": "use micro_batch_size",
    "batch_sampler": "use NanosetDataLoader, which takes one",
}
# the dataset's order and the batch sampler decide what is in a batch
OPTIONS_THAT_CHANGE_BATCHES = "shuffle", "sampler", "drop_last"


class EmptyInfiniteDataset(Dataset[dict[str, Any]]):
    """The dataset of pipeline ranks that need no data: `length` empty samples.

    Source: Nanotron's dataset of the same name.
    """

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, k: int) -> dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        return f"EmptyInfiniteDataset({self.length:,})"


class OneIterationLoader(DataLoader[Any], ABC):
    """A DataLoader that counts its batches, and therefore has one iteration at a time.

    A new iteration ends the one before, even if that is still held; so does `end_iteration`.
    """

    _iteration: weakref.ref[Generator[Any, None, None]] | None = None

    @abstractmethod
    def batches(self) -> Generator[Any, None, None]:
        """A new iteration; it starts from the loader's state when its first batch is requested."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.end_iteration()
        iteration = self.batches()
        self._iteration = weakref.ref(iteration)
        return iteration

    def end_iteration(self) -> None:
        """Close the current iteration; an iterator that is still held stops."""
        earlier = None if self._iteration is None else self._iteration()
        if earlier is not None:
            earlier.close()

    def torch_iterator(self) -> Iterator[Any]:
        """An iteration of torch's DataLoader, whose seed must be drawn on the CPU."""
        with torch.device("cpu"):
            return super().__iter__()

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy or a pickle, without the current iteration."""
        return vars(self) | {"_iteration": None}


class NanosetDataLoader(OneIterationLoader):
    """A DataLoader that knows how many samples it has delivered and can continue from there.

    Args:
        dataset: has `batch_sampler.num_samples` samples.
        batch_sampler: the positions that this rank reads; the loader counts in a copy of it.
        plan: the dataset's plan, kept in the state; a state with another plan is refused. With None
            nothing is compared. A function is called each time the plan or a state is requested.
        read_ahead: how many items a thread of this process makes ahead of time.
        **options: options of torch's DataLoader (num_workers, collate_fn, pin_memory, ...).

    Each iteration reads the rest of the current epoch, the next one a whole epoch: positions 0 to
    len(dataset) - 1, in the same order every time. For a new shuffle in every epoch, make the
    dataset as long as the run (`train_split_num_samples`) and iterate once. Only one iteration is
    live: a new one closes the old one and resumes after the last delivered batch.

    If `dataset` is Rows and `collate_fn` a Collator, the item that `read_ahead` and torch's
    `prefetch_factor` count is a block of many batches (see `nanoset_ref.load.blocks`). Any other
    function is called with a `SampleBlock` of one batch, in the worker if there is one, and any
    other dataset is read as torch's DataLoader does.

    accelerate's `prepare` (and so the HF Trainer) leaves this loader as it is, on any number of
    ranks: pass dp_rank and dp_size yourself.

    Attributes:
        consumed_train_samples: the samples in all batches delivered so far, over all epochs and
            ranks; the last batch of an epoch also counts the samples that `tail` drops.

    Raises:
        ValueError: the sampler counts other samples than the dataset has; an option that would
            change the batches; a Collator that does not mask the padding of its rows.
        TypeError: an unknown option, or a batch sampler of another class.
    """

    batch_sampler: ResumableBatchSampler  # type: ignore[assignment]
    # otherwise accelerate would shard the batches a second time
    _is_accelerate_prepared = True
    _dropped = 0  # samples that `tail` left out at the end of the last epoch

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_sampler: ResumableBatchSampler,
        plan: Plan | Callable[[], Plan] | None = None,
        *,
        read_ahead: int = 0,
        **options: Any,
    ) -> None:
        refuse_unknown_options(options, NanosetDataLoader, {})
        _refuse_options_that_change_batches(options)
        if not isinstance(batch_sampler, ResumableBatchSampler):
            raise TypeError(
                f"batch_sampler must be a ResumableBatchSampler, got {batch_sampler!r:.200}"
            )
        num_samples = len(dataset)  # type: ignore[arg-type]
        if num_samples != batch_sampler.num_samples:
            raise ValueError(
                f"the dataset has {num_samples:,} samples, but its batch_sampler counts "
                f"{batch_sampler.num_samples:,}: make the sampler with num_samples=len(dataset)"
            )
        # a copy: a sampler counts, and another loader may have been given the same one
        super().__init__(
            dataset,
            batch_sampler=copy.copy(batch_sampler),  # type: ignore[arg-type]
            **options,
        )
        if getattr(dataset, "padded", False):
            # only padded rows need it
            from nanoset_ref.load.collator_plan import require_masked_padding

            require_masked_padding(dataset, self.collate_fn)
        if self.num_workers and isinstance(dataset, Rows):
            from nanoset_ref.io.buckets import refuse_fork_workers  # for workers

            context = self.multiprocessing_context or multiprocessing
            refuse_fork_workers(
                (file.path for file in dataset.files), context.get_start_method()
            )
        self._plan = plan
        self.read_ahead = whole_number(read_ahead, "read_ahead", 0)
        self.consumed_train_samples = batch_sampler.consumed_train_samples
        self._options = options
        self._workers: Any = None  # persistent workers, reused by the next iteration

    def __getstate__(self) -> dict[str, Any]:
        """See OneIterationLoader; a copy also gets its own sampler, because a sampler counts."""
        return super().__getstate__() | {
            "batch_sampler": copy.copy(self.batch_sampler),
            "_workers": None,
            "_iterator": None,
        }

    # ---- counting: the state

    def batches(self) -> Generator[Any, None, None]:
        """The rest of the epoch; counts each batch as it is delivered."""
        sampler = self.batch_sampler
        consumed = self.consumed_train_samples
        # the sampler forgets what an abandoned iteration prefetched
        sampler.consumed_train_samples = consumed
        remaining = sampler.remaining(consumed)
        size = sampler.samples_per_micro_step
        last = consumed + remaining.num_batches * size
        # the count is set without torch's __setattr__, which would take a microsecond
        attributes = vars(self)
        try:
            # the iterator has no name: a traceback that is kept would keep its thread alive
            for batches in self._batches_by_block():
                for batch in batches:
                    consumed += size
                    # the last batch also counts the dropped tail
                    if consumed == last:
                        consumed = remaining.end
                        attributes["_dropped"] = remaining.dropped
                    attributes["consumed_train_samples"] = consumed
                    yield batch
        except (Exception, KeyboardInterrupt):
            # an interrupted queue may have lost items: the next iteration starts new workers
            self._workers = self._iterator = None
            # the thread of `read_ahead` may still be counting in this one
            attributes["batch_sampler"] = copy.copy(sampler)
            raise
        self.consumed_train_samples = remaining.end
        self._dropped = remaining.dropped

    def __len__(self) -> int:
        """Batches that the next iteration yields."""
        return self.batch_sampler.remaining(self.consumed_train_samples).num_batches

    @property
    def plan(self) -> Plan | None:
        """The dataset's plan, a fresh copy."""
        return self._plan() if callable(self._plan) else copy.deepcopy(self._plan)

    def state_dict(self) -> Json:
        """{"consumed_train_samples", "num_samples", "dropped", "plan"}: JSON-serializable, equal on
        all ranks. num_samples is the length of an epoch, dropped the samples that `tail` left out
        at the end of the last one.
        """
        return {
            "consumed_train_samples": self.consumed_train_samples,
            "num_samples": self.batch_sampler.num_samples,
            "dropped": self._dropped,
            "plan": self.plan,
        }

    def load_state_dict(self, state: Json) -> None:
        """Continue after the samples that `state` counts, and end an iteration under way.

        dp_size, micro_batch_size and the number of workers may differ from the saved run's. So may
        the length of the dataset, which its plan does not contain, in the first epoch of both.

        Raises:
            PlanMismatch: the state belongs to another plan, and the message lists what differs; or
                it is in a later epoch of a dataset of another length.
            ValueError: `state` is not a state.
        """
        consumed = consumed_in(state)
        from nanoset_ref.orders.plans import check_loader_state  # only states need it

        self._dropped = check_loader_state(state, self)
        self.end_iteration()
        self.consumed_train_samples = consumed
        self.batch_sampler.consumed_train_samples = consumed

    # ---- reading: the rows of a block, and its batches

    def _batches_by_block(self) -> Iterable[Iterable[Any]]:
        """For each block its batches; without blocks, lists of one batch."""
        dataset = self.dataset
        collator = self.collate_fn
        if isinstance(dataset, EmptyInfiniteDataset):
            return (
                [collator([{}] * len(positions))] for positions in self.batch_sampler
            )
        if isinstance(dataset, Rows) and isinstance(collator, Collator):
            collator.check_row_lengths({dataset.row_length})
            blocks = self._row_blocks(dataset, collator.needs_starts)
            return map(collator.split, self._prefetch(blocks))
        return ([batch] for batch in self._prefetch(self.torch_iterator()))

    def _row_blocks(self, dataset: Rows, needs_starts: bool) -> Iterable[RowBlock]:
        """The rows of the sampler's batches, read in blocks by this process or by workers."""
        # persistent workers that an earlier iteration started go on with the next epoch
        if self.num_workers and self.persistent_workers and self._workers is not None:
            return self._workers
        sampler = self.batch_sampler
        num_buffers = count_buffers(
            self.num_workers, self.prefetch_factor, self.read_ahead
        )
        sizes = choose_sizes(
            dataset,
            sampler.micro_batch_size,
            num_buffers,
            shared=self.num_workers > 0,
        )
        pinned = self.pin_memory and torch.accelerator.is_available()
        # pin_memory is a copy, too; torch keeps pinned memory and uses it again
        copy_tensor = Tensor.pin_memory if pinned else writable_copy
        if not self.num_workers:
            return read_blocks(dataset, sampler, sizes, needs_starts, copy_tensor)
        from nanoset_ref.load.prefetch import WorkerBlocks  # only workers need it

        self._workers = WorkerBlocks(
            dataset, sampler, sizes, needs_starts, copy_tensor, self._options
        )
        return self._workers

    def _prefetch(self, items: Iterable[Any]) -> Iterable[Any]:
        """The same items, made ahead of time by a thread if `read_ahead` asks for it."""
        if not self.read_ahead:
            return items
        # only a thread needs it
        from nanoset_ref.load.prefetch import prefetch_in_thread

        return prefetch_in_thread(items, self.read_ahead)

    # ---- display

    def __repr__(self) -> str:
        sampler = self.batch_sampler
        rank = f"rank {sampler.dp_rank} of {sampler.schedule.dp_size}"
        size = f"micro-batches of {sampler.micro_batch_size}"
        count = f"{len(self):,} batches left, at sample {self.consumed_train_samples:,}"
        workers = f"{self.num_workers} workers"
        return (
            f"NanosetDataLoader({self.dataset!r}, {rank}, {size}, {count}, {workers})"
        )

    def _repr_html_(self) -> str:
        # only notebooks need it
        from nanoset_ref.load.notebook_tables import loader_table

        return loader_table(self)


def read_blocks(
    dataset: Rows,
    sampler: ResumableBatchSampler,
    sizes: BlockSizes,
    needs_starts: bool,
    copy_tensor: Callable[[Tensor], Tensor],
) -> Iterator[RowBlock]:
    """Read the rows of the sampler's batches in this process.

    Args:
        dataset: the rows.
        sampler: names their positions.
        sizes: of the blocks.
        needs_starts: whether the blocks have `starts`.
        copy_tensor: see `RowBlock`.
    """
    buffers = allocate_buffers(sizes.num_buffers, sizes.shape, dataset.row_dtype)
    next_buffer = itertools.cycle(buffers)
    for positions in sampler.blocks(sizes.max_batches):
        rows = next(next_buffer)[: len(positions)]
        starts = dataset.starts(positions) if needs_starts else None
        # a batch may still share this memory (copy-on-write): numpy() separates them first
        dataset.fill(positions, rows.numpy())
        yield RowBlock(rows, sampler.micro_batch_size, starts, copy_tensor)


def build_nanoset_dataloader(
    dataset: Rows,
    *,
    micro_batch_size: int,
    dp_rank: int = 0,
    dp_size: int = 1,
    input_pp_rank: int = 0,
    output_pp_rank: int = 0,
    current_pp_rank: int = 0,
    consumed_train_samples: int = 0,
    num_loading_workers: int = 0,
    seed: int = 1234,
    layout: Layout = "strided",
    tail: Tail = "drop",
    read_ahead: int = 0,
    documents: DocumentOptions | None = None,
    collate_fn: Callable[[Any], Any] | None = None,
    **options: Any,
) -> NanosetDataLoader:
    """Build the DataLoader of one rank.

    Args:
        dataset: a Nanoset or any other Rows, the same in every rank.
        micro_batch_size: samples per batch of one rank.
        dp_rank: this data-parallel rank; its tensor-parallel ranks pass the same number.
        dp_size: number of data-parallel ranks.
        input_pp_rank, output_pp_rank, current_pp_rank: see DataCollatorForCLM. A rank that is
            neither input nor output gets placeholders and no workers.
        consumed_train_samples: global count to continue from.
        num_loading_workers: worker processes; 0 reads in this process.
        seed: the run's seed; seeds of workers derive from it.
        layout: "strided" or "contiguous"; see Schedule.
        tail: "drop", "pad" or "loop"; see ResumableBatchSampler.
        read_ahead: blocks that a thread prefetches; 2 hides the reads behind the training step as
            well as workers do. A bucket needs it, because forked workers are refused there.
        documents: position ids and masks of the documents in a row, see DataCollatorForCLM.
            Padded rows always come with eod_mask_loss, and need no eos_token_id.
        collate_fn: instead of DataCollatorForCLM: another Collator, which reads in blocks, or any
            function from samples to a batch.
        **options: options of torch's DataLoader (pin_memory, prefetch_factor, ...).

    Returns:
        A NanosetDataLoader; its batches are described by DataCollatorForCLM, or `collate_fn`.

    Raises:
        ValueError: both `documents` and `collate_fn`; see also NanosetDataLoader and
            ResumableBatchSampler.
        IndexError: the `tail` fills the last batch from the beginning of the epoch, and the order
            continues another one, so that it has no position 0 (see `Order.first_position`).
        TypeError: an unknown option; `dataset` is not Rows.
    """
    num_workers = whole_number(num_loading_workers, "num_loading_workers", 0)
    seed = whole_number(seed, "seed")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must lie in -2**63 .. 2**64 - 1, got {seed}")
    refuse_unknown_options(options, build_nanoset_dataloader, RENAMED_OPTIONS)
    documents = _resolve_documents(documents, dataset, collate_fn)
    sampler = ResumableBatchSampler(
        len(dataset),
        micro_batch_size,
        dp_rank,
        dp_size,
        consumed_train_samples,
        layout=layout,
        tail=tail,
    )
    if tail != "drop":
        # raises now if position 0, which fills the last batch, cannot be read
        dataset.origin(0)
    # also with a `collate_fn`: a rank without data turns empty samples into placeholders
    default_collator = DataCollatorForCLM(
        dataset.sequence_length,
        input_pp_rank,
        output_pp_rank,
        current_pp_rank,
        documents,
    )
    # torch draws a number when it starts workers: not from the global state, which the model uses
    options.setdefault("generator", torch.Generator().manual_seed(seed))
    has_data = current_pp_rank in (input_pp_rank, output_pp_rank)
    if num_workers:
        # only workers need it
        from nanoset_ref.load.worker_init import set_worker_options

        set_worker_options(options, num_workers, has_data, seed, dp_rank)
    if collate_fn is None:
        collate_fn = default_collator
    return NanosetDataLoader(
        dataset if has_data else EmptyInfiniteDataset(len(dataset)),
        sampler,
        functools.partial(_plan_of, dataset, collate_fn),
        collate_fn=collate_fn if has_data else default_collator,
        read_ahead=read_ahead,
        **options,
    )


# ---- checks of options


def refuse_unknown_options(
    options: Json, function: Callable[..., Any], refused: dict[str, str]
) -> None:
    """Refuse options that neither `function` nor torch's DataLoader has.

    Args:
        options: given by the caller.
        function: takes them.
        refused: options of the DataLoader that `function` cannot have, each with its way out.
    """
    own = inspect.signature(function).parameters
    torch_options = inspect.signature(DataLoader).parameters
    # "options" is the name of **options itself
    known = {*own, *torch_options} - {"options"}
    for name in options:
        problem = refused.get(name)
        if name not in known:
            allowed = known.difference(refused, OPTIONS_THAT_CHANGE_BATCHES)
            problem = unknown_key_problem(name, allowed)
        if problem:
            raise TypeError(f"{function.__name__}: {name}: {problem}")


def _refuse_options_that_change_batches(options: Json) -> None:
    """Raise ValueError if an option of torch would change what is in a batch, or their order."""
    refused = [name for name in OPTIONS_THAT_CHANGE_BATCHES if options.get(name)]
    if options.get("batch_size", 1) != 1:
        refused.append("batch_size")
    if refused:
        raise ValueError(
            f"{refused[0]} cannot be set: the dataset's order and the batch sampler decide what is "
            "in a batch; use order, micro_batch_size and tail instead"
        )
    if not options.get("in_order", True):
        raise ValueError(
            "in_order must be True: batches delivered out of order cannot be counted for a resume"
        )


def _plan_of(dataset: Rows, collate_fn: Any) -> Plan:
    """The plan of a dataset and its masks."""
    # only states need it
    from nanoset_ref.load.collator_plan import plan_with_masks

    return plan_with_masks(dataset, collate_fn)


def _resolve_documents(
    documents: DocumentOptions | None, dataset: Rows, collate_fn: Any
) -> DocumentOptions | None:
    """See `options_for_rows`; without options, only rows with padding need some."""
    if not isinstance(dataset, Rows):
        raise TypeError(
            f"dataset must be Rows (NanosetDataLoader takes any dataset), got {dataset!r:.200}"
        )
    if documents is None and not dataset.padded:
        return None
    # only document masks and padded rows need it
    from nanoset_ref.load.document_masks import options_for_rows

    return options_for_rows(documents, dataset, collate_fn)
