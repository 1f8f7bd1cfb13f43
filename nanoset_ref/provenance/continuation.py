"""The tokens that a saved run would read in addition, or lose, if it continued with another plan.

The saved and the new plan are compared over the same positions: [consumed, until), the rest of the
saved plan's epoch, or of the new run if that ends earlier. If the new plan reads a token more often
than the saved one, the token is additional; if less often, it is lost. Reads are counted per unit
of tokens: the greatest length that divides the strides of both plans, so plans of different
sequence lengths can be compared. The cost is a number per sample and per unit, and a lookup per
position: seconds for a billion tokens.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.types import Int64Array, IntegerArray, Json
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import consumed_in
from nanoset_ref.orders import Ledger, Order, StatelessOrder, build_order
from nanoset_ref.orders.plans import PLAN_VERSION, check_counts, describe_differences
from nanoset_ref.tokens.interface import count_samples

# of a report: the figures of a `FileDifference`
COLUMN_NAMES = "read before,saved plan,new plan,additional,read again,lost".split(",")
MAX_EPOCHS = 1 << 16  # a damaged count would take days to compare
# tokens between samples, besides the sequence length
GAPS = {"overlapping": 0, "disjoint": 1}
# of a file: (checksum, tokens, 0); without a checksum, the label (name, tokens, number of earlier
# files of its plan with this name and size)
Key = tuple[str, int, int]


def loader_state(saved: Mapping[str, Any]) -> tuple[Json, str | None]:
    """Find the state of a NanosetDataLoader in a saved state, and the name of its stage, if any.

    Args:
        saved: the state of a NanosetDataLoader or of a StagedLoader, whose latest stage is used; or
            the content of a checkpoint's state.json.

    Raises:
        ValueError: this is another kind of state.
    """
    try:
        # a checkpoint's state.json has it under "state"
        state = saved.get("state", saved)
        # and the trainer's state the loader's under "data"
        state = state.get("data", state)
        if "stages" not in state:
            return state, None
        stage = state["stages"][-1]
        consumed = stage["first_position"] + stage["consumed_train_samples"]
        loader = {"consumed_train_samples": consumed, "plan": stage["plan"]}
        return loader, stage["name"]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"this is not a saved state of a loader: {saved!r:.80}"
        ) from error


@dataclasses.dataclass(frozen=True)
class FileDifference:
    """The changes for one file, in tokens.

    Attributes:
        file: the file's name.
        status: "kept", "added" (only the new plan reads it) or "dropped" (only the saved one).
        read_before: tokens read before the change, since the saved plan began; here and below, a
            token counts each time it is read.
        saved: tokens that the saved plan reads at the compared positions.
        new: tokens that the new plan reads at these positions.
        additional: tokens that the new plan reads and the saved one does not.
        again: those of `additional` that were already read before the change.
        lost: tokens that the saved plan reads and the new one does not.
    """

    file: str
    status: str
    read_before: int
    saved: int
    new: int
    additional: int
    again: int
    lost: int


@dataclasses.dataclass(frozen=True)
class Continuation:
    """The comparison, file by file.

    Attributes:
        consumed_train_samples: the first of the compared positions.
        until: the first position after them.
        exact: whether both plans read every token equally often, perhaps at other positions.
        files: the changes for each file.
        differences: a line for each part in which the plans differ, as in `PlanMismatch`.
    """

    consumed_train_samples: int
    until: int
    exact: bool
    files: Sequence[FileDifference]
    differences: Sequence[str] = ()

    def __str__(self) -> str:
        start = f"{self.consumed_train_samples:,}"
        lines = [f"the plans differ in {line}" for line in self.differences]
        if self.exact:
            same = "reads the same tokens, the same number of times, as the saved plan would"
            return "\n".join([*lines, f"continuing at {start} {same}"])
        lines.append(
            f"tokens at positions {start} to {self.until:,}, compared with continuing under the "
            "saved plan:"
        )
        names = "".join(f" {name:>13}" for name in COLUMN_NAMES)
        lines.append(f"  {'file':<32} {'':<8}{names}")
        for difference in self.files:
            file, status, *figures = dataclasses.astuple(difference)
            columns = "".join(f" {figure:>13,}" for figure in figures)
            lines.append(f"  {file[-32:]:<32} {status:<8}{columns}")
        return "\n".join(lines)


def compare(state: Mapping[str, Any], dataset: Nanoset) -> Continuation:
    """Compare the rest of the epoch, or of the run, under the saved plan and that of `dataset`.

    1. Find which files are the same in both plans.
    2. Count how often each plan reads each sample, before and after the change.
    3. Compare the counts of each file, in units of tokens.

    Args:
        state: {"consumed_train_samples": int, "plan": dict}, as NanosetDataLoader.state_dict
            returns it.
        dataset: a dataset with the new plan. Positions continue to count samples, whatever their
            length.

    Raises:
        ValueError: the state holds no plan, or one whose order cannot be rebuilt, as `build_order`
            does not make it; or its counts do not continue in the dataset (see `check_counts`).
    """
    # 1. find the same files
    consumed = consumed_in(state)
    check_counts(state, len(dataset))
    saved = _PlanFiles(state.get("plan"))
    new = _PlanFiles(dataset.plan)
    differences = describe_differences(saved.plan, new.plan)
    if differences:
        _share_checksums(saved, new)
    else:
        saved.keys = new.keys  # the same files, whatever their names
    # 2. count the reads of each sample
    until = _end_of_epoch(saved, new, consumed)
    if consumed < len(dataset):  # some orders have no more positions
        until = min(until, len(dataset))
    old_order = saved.order(until)
    new_order = new.order(until)
    first = new_order.first_position
    if first > consumed:
        raise ValueError(
            f"the new plan begins at position {first}, but the saved run read up to {consumed}"
        )
    reads_before = old_order.reads_of_samples(old_order.first_position, consumed)
    reads_saved = old_order.reads_of_samples(consumed, until)
    reads_new = new_order.reads_of_samples(consumed, until)
    # 3. compare the reads of each file
    unit = math.gcd(*saved.strides, *new.strides)
    files = []
    for key, name in (saved.names | new.names).items():
        before = saved.reads_per_unit(reads_before, key, unit)
        expected = saved.reads_per_unit(reads_saved, key, unit)
        actual = new.reads_per_unit(reads_new, key, unit)
        more = np.maximum(actual - expected, 0)
        lost = np.maximum(expected - actual, 0)
        counts = [before, expected, actual, more, more[before > 0], lost]
        figures = [int(count.sum()) * unit for count in counts]
        dropped = "kept" if key in new.keys else "dropped"
        status = dropped if key in saved.keys else "added"
        files.append(FileDifference(name, status, *figures))
    exact = all(file.additional == file.lost == 0 for file in files)
    return Continuation(consumed, until, exact, files, differences)


def ledger_of(state: Mapping[str, Any]) -> Ledger:
    """Count how far the run that saved `state` had read each of its files.

    Returns:
        The position, and the samples read of each file. A stateless order can start from this
        ledger with other weights or more files.

    Raises:
        ValueError: as `compare`; or the saved order is not "stateless", or was read more than once.
    """
    consumed = consumed_in(state)
    length = state.get("num_samples", consumed)
    dropped = check_counts(state, length)
    if consumed > length:
        raise ValueError(
            f"the run read the {length:,} samples of its dataset more than once, and a ledger "
            "counts one pass: continue with the saved plan, or make datasets as long as the run"
        )
    if consumed == length:
        consumed -= dropped  # they were in no batch
    order = _PlanFiles(state.get("plan")).order(consumed)
    if not isinstance(order, StatelessOrder):
        raise ValueError(
            f"only order='stateless' can continue from counts per file; this is {order.name!r}"
        )
    return order.ledger(consumed)


class _PlanFiles:
    """A plan and its files.

    Attributes:
        plan: the plan, JSON.
        labels: the label of each file.
        keys: the key of each file.
        strides: tokens from one sample to the next in each file.
        lengths: samples in each file.
    """

    def __init__(self, plan: Any) -> None:
        if plan is None:
            raise ValueError(
                "the state holds no plan; NanosetDataLoader.state_dict saves one"
            )
        with _refusing_damage():
            version = plan.get("version")
            if version != PLAN_VERSION:
                raise ValueError(
                    f"the state holds a plan of version {version}, but this package reads "
                    f"{PLAN_VERSION}"
                )
            if plan["order"].get("kind") in ("megatron", "blend"):
                raise ValueError(
                    "only plans of token files can be compared; this state is for Megatron's "
                    "samples"
                )
            if "packing" in plan["rows"]:
                raise ValueError(
                    "plans are compared where samples follow each other in a file; these rows are "
                    "packed: continue with the saved plan"
                )
            self.plan = plan
            self.labels: list[Key] = []
            self.keys: list[Key] = []
            self.strides: list[int] = []
            self.lengths: list[int] = []
            length = plan["rows"]["sequence_length"]
            for file in plan["files"]:
                self._add(file, length)

    @property
    def names(self) -> dict[Key, str]:
        """{key of a file: its name}."""
        names = [file["name"] for file in self.plan["files"]]
        return dict(zip(self.keys, names, strict=True))

    def _add(self, file: Json, sequence_length: int) -> None:
        """Add a file of the plan; TypeError if its name or checksum is not a string."""
        name, tokens = file["name"], file["num_tokens"]
        checksum = file["checksum"] or name
        if not isinstance(name, str) or not isinstance(checksum, str):
            raise TypeError(
                f"a file has the name {name!r} and the checksum {checksum!r}"
            )
        stride = sequence_length + GAPS[file["windows"]]
        earlier = sum(label[:2] == (name, tokens) for label in self.labels)
        key = (name, tokens, earlier)
        self.labels.append(key)
        if file["checksum"]:
            key = (checksum, tokens, 0)
        self.keys.append(key)
        self.strides.append(stride)
        self.lengths.append(count_samples(tokens, sequence_length + 1, stride))

    def order(self, num_samples: int) -> Order:
        """Rebuild the order, with `num_samples` positions."""
        with _refusing_damage():
            recipe = self.plan["recipe"]
            if recipe is None:
                raise ValueError(
                    "the order cannot be built again from its plan: only those that have a name "
                    "can, not a SkippingOrder, that of a DatatroveNanoset, or one of your own"
                )
            order = build_order(
                recipe["name"],
                self.lengths,
                recipe["dataset_weights"],
                num_samples,
                recipe["random_seed"],
                **recipe["options"],
            )
            is_same = order.identity == self.plan["order"]
            for position, probe in self.plan["probes"].items():
                if int(position) < num_samples:
                    pair = list(order[int(position)])
                    is_same &= pair == probe[:2]
        if not is_same:
            raise ValueError(
                "the order cannot be built again from its plan: "
                "its algorithm or its file has changed"
            )
        return order

    def reads_per_unit(
        self,
        reads: list[IntegerArray],
        key: Key,
        unit: int,
    ) -> Int64Array:
        """Count the reads of each unit of tokens of a file.

        Args:
            reads: integers [samples] for each file, how often each sample is read.
            key: the file.
            unit: tokens of a unit.

        Returns:
            int64 [units].
        """
        total = np.zeros(math.ceil(key[1] / unit), dtype=np.int64)
        for other, counts, stride in zip(self.keys, reads, self.strides, strict=True):
            if other == key:
                per_unit = np.repeat(counts, stride // unit)
                total[: len(per_unit)] += per_unit
        return total


@contextlib.contextmanager
def _refusing_damage() -> Iterator[None]:
    """Raise ValueError where a plan lacks a field, or a field has a value of the wrong type."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            "the saved plan is damaged, or was edited: a field is missing or has a value of the "
            f"wrong type ({type(error).__name__}: {error}); use the state of an earlier checkpoint"
        ) from error


def _share_checksums(saved: _PlanFiles, new: _PlanFiles) -> None:
    """If only one plan has a file's checksum, the other one uses it.

    So files of one label share a key.
    """
    checksums = {}
    for compared in (saved, new):
        for label, key in zip(compared.labels, compared.keys, strict=True):
            if key != label:
                checksums[label] = key
    for compared in (saved, new):
        compared.keys = [checksums.get(key, key) for key in compared.keys]


def _end_of_epoch(
    saved: _PlanFiles,
    new: _PlanFiles,
    consumed: int,
) -> int:
    """The first position after the saved plan's epoch.

    Refuses a damaged state, because its counts would take too much memory or time.
    """
    sizes = {content: tokens for content, tokens, _ in new.keys}
    for content, tokens, _ in saved.keys:
        size = sizes.get(content, tokens)
        if content.startswith("xxh3_128:") and size != tokens:
            raise ValueError(
                f"damaged state: {tokens} tokens in a file of {size}; use an older checkpoint"
            )
    epoch = sum(saved.lengths)
    if not 0 <= consumed < MAX_EPOCHS * epoch:
        raise ValueError(
            f"the saved run counts {consumed} samples, but its plan has {epoch} in an epoch: "
            "the state is damaged; use an earlier checkpoint"
        )
    return (consumed // epoch + 1) * epoch
