"""What would happen if a saved run went on with another plan: which tokens would come again, which would be left out.

The two ways to go on are compared over the same positions: [consumed, until), the rest of the saved plan's epoch. Each
gives every token a number of readings; where the new plan reads a token more often than the saved one would have, it
repeats it, where less often, it loses it. Counting is by stretches of tokens: the greatest length that fits a whole
number of times into the samples' strides of both plans, so that plans of different sequence lengths can be compared. It
costs a number per sample and per stretch, and a look-up per position: seconds for a billion tokens.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders import Ledger, Order, StatelessOrder, build_order
from nanoset_ref.orders.plans import VERSION, describe_differences

MAX_EPOCHS = 1 << 16  # a damaged count would be followed for days
Key = tuple[str, int]


def loader_state(saved: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The state of a NanosetDataLoader in what was saved, and the stage it belongs to, if stages are named.

    Args:
        saved: that state itself; what a StagedLoader saved, whose last stage that had begun counts; or a checkpoint's
            state.json.

    Raises:
        KeyError, TypeError, AttributeError, IndexError: something else was saved.
    """
    state: Any = saved.get("state", saved)
    state = state.get("data", state)
    if "stages" not in state:
        return state, None
    stage = state["stages"][-1]
    consumed = stage["first_position"] + stage["consumed_train_samples"]
    return {"consumed_train_samples": consumed, "plan": stage["plan"]}, stage["name"]


@dataclasses.dataclass(frozen=True)
class FileDifference:
    """What changes for one file, in tokens.

    Attributes:
        file: its name. status: "kept", "added" (only the new plan reads it) or "dropped" (only the saved one).
        read_before: readings before the change, since the saved plan began. saved, new: readings in the stretch
            compared, by the saved and by the new plan.
        repeated: tokens that the new plan would read and the saved one would not have: of these `again` were already
            read before the change.
        lost: tokens that the saved plan would have read and the new one does not.
    """

    file: str
    status: str
    read_before: int
    saved: int
    new: int
    repeated: int
    again: int
    lost: int


@dataclasses.dataclass(frozen=True)
class Continuation:
    """The comparison, file by file. `exact`: every token would be read as often as by the saved plan, though perhaps
    elsewhere in the order. `differences`: a line for each part in which the plans differ, as `PlanMismatch` has them.
    """

    consumed_train_samples: int
    until: int
    exact: bool
    files: Sequence[FileDifference]
    differences: Sequence[str] = ()

    def __str__(self) -> str:
        at = f"{self.consumed_train_samples:,}"
        parts = "".join(f"the plans differ in {line}\n" for line in self.differences)
        if self.exact:
            return f"{parts}continuing at {at} reads the same tokens as the saved plan would, each as often"
        names = ("read before", "as saved", "new plan", "more", "of it again", "lost")
        lines = [
            f"from position {at} to {self.until:,}, in tokens, against going on as saved:",
            f"  {'file':<32} {'':<8}" + "".join(f" {name:>13}" for name in names),
        ]
        for it in self.files:
            file, status, *figures = dataclasses.astuple(it)
            lines.append(
                f"  {file[-32:]:<32} {status:<8}" + "".join(f" {figure:>13,}" for figure in figures)
            )
        return parts + "\n".join(lines)


def compare(state: Mapping[str, Any], dataset: Nanoset) -> Continuation:
    """What would repeat or be lost in the rest of the epoch if the run that saved `state` went on with `dataset`.

    Args:
        state: {"consumed_train_samples": int, "plan": dict}, as NanosetDataLoader.state_dict gives it.
        dataset: the new plan. Position k continues to count samples, whatever their length.

    Raises:
        ValueError: the state holds no plan, or one whose order cannot be built again (an order object was given to the
            Nanoset).
    """
    consumed = state["consumed_train_samples"]
    saved, new = _Plan(state.get("plan")), _Plan(dataset.plan)
    apart = describe_differences(saved.plan, new.plan)
    _match_files(saved, new, agree=not apart)
    sizes = dict(new.keys)
    for content, tokens in saved.keys:
        if content.startswith("xxh3_128:") and sizes.get(content, tokens) != tokens:
            raise ValueError(
                f"the saved plan counts {tokens} tokens in a file that holds {sizes[content]}: damaged"
            )
    epoch = sum(saved.lengths)
    if not 0 <= consumed <= MAX_EPOCHS * epoch:
        raise ValueError(
            f"the saved run counts {consumed} samples, its plan has {epoch} in an epoch: it is damaged"
        )
    until = (consumed // epoch + 1) * epoch
    (going_on, first), (changed, begin) = saved.order(until), new.order(until)
    if begin > consumed:
        raise ValueError(
            f"the new plan begins at position {begin}, the saved run had read up to {consumed}"
        )
    before, as_saved = going_on.readings(first, consumed), going_on.readings(consumed, until)
    as_new = changed.readings(consumed, until)
    unit = math.gcd(*saved.strides, *new.strides)
    files = []
    for key, name in (saved.names | new.names).items():
        known, expected = saved.spread(before, key, unit), saved.spread(as_saved, key, unit)
        found = new.spread(as_new, key, unit)
        more = np.maximum(found - expected, 0)
        status = "added" if key not in saved.names else "kept" if key in new.names else "dropped"
        stretches = [known, expected, found, more, more[known > 0], np.maximum(expected - found, 0)]
        files.append(
            FileDifference(name, status, *[int(readings.sum()) * unit for readings in stretches])
        )
    exact = all(it.repeated == it.lost == 0 for it in files)
    return Continuation(consumed, until, exact, files, apart)


def ledger_of(state: Mapping[str, Any]) -> Ledger:
    """How far the run that saved `state` had read each of its files, for a stateless order that goes on from there with
    other weights or more files.

    Raises:
        ValueError: as `compare`; the saved order was not "stateless".
    """
    order, _ = _Plan(state.get("plan")).order(state["consumed_train_samples"])
    if not isinstance(order, StatelessOrder):
        raise ValueError(
            f"only order='stateless' reads its files through and goes on from counts; this is {order.name!r}"
        )
    return order.ledger(state["consumed_train_samples"])


class _Plan:
    """The files and samples of a plan.

    Attributes:
        keys: of each file, what it is known by: its checksum, or else its name, and its size. names: by these.
        strides: of each file, tokens from one sample to the next. lengths: samples in it.
    """

    def __init__(self, plan: Mapping[str, Any] | None) -> None:
        if plan is None:
            raise ValueError("the state holds no plan; NanosetDataLoader.state_dict saves one")
        if plan.get("version") != VERSION:
            raise ValueError(
                f"the state holds a plan of version {plan.get('version')}, this package reads {VERSION}"
            )
        self.plan, length, files = dict(plan), plan["rows"]["sequence_length"], plan["files"]
        if packed := [file["name"] for file in files if file["windows"] == "best-fit"]:
            what = "plans are compared where samples follow each other in a file"
            raise ValueError(
                f"{what}; {packed[0]} is packed by best fit: go on with the saved plan"
            )
        self.keys: list[Key] = [
            (file["checksum"] or file["name"], file["num_tokens"]) for file in files
        ]
        self.strides = [length + (file["windows"] == "disjoint") for file in files]
        self.lengths = [
            (tokens - length - 1) // stride + 1
            for (_, tokens), stride in zip(self.keys, self.strides, strict=True)
        ]

    @property
    def names(self) -> dict[Key, str]:
        return {key: file["name"] for key, file in zip(self.keys, self.plan["files"], strict=True)}

    def order(self, num_samples: int) -> tuple[Order, int]:
        """The order, built again, and the position at which it begins."""
        recipe = self.plan["recipe"]
        if recipe is None:
            raise ValueError(
                "the order cannot be built again from its plan: it was given to the Nanoset as an object"
            )
        arguments = recipe["dataset_weights"], num_samples, recipe["random_seed"]
        order = build_order(recipe["name"], self.lengths, *arguments, **recipe["options"])
        probed = [(int(position), probe[:2]) for position, probe in self.plan["probes"].items()]
        same = all(
            order[position] == tuple(pair) for position, pair in probed if position < num_samples
        )
        if order.identity != self.plan["order"] or not same:
            raise ValueError(
                "the order cannot be built again from its plan: its algorithm or its file is another by now"
            )
        return order, order.first_position

    def spread(self, readings: list[NDArray[np.uint32]], key: Key, unit: int) -> NDArray[np.int64]:
        """How often each stretch of `unit` tokens of a file is read, if its samples are that often."""
        stretches = np.zeros(-(-key[1] // unit), dtype=np.int64)
        for other, counts, stride in zip(self.keys, readings, self.strides, strict=True):
            if other == key:
                spread = np.repeat(counts, stride // unit)
                stretches[: len(spread)] += spread
        return stretches


def _match_files(saved: _Plan, new: _Plan, *, agree: bool) -> None:
    """Give one key to what is one file in both plans: if these agree, files of one number, whatever their names; else
    also files of one name and size where only one plan holds the checksum.
    """
    if agree:
        saved.keys = new.keys
        return
    known = {
        (file["name"], file["num_tokens"]): file["checksum"]
        for plan in (saved, new)
        for file in plan.plan["files"]
        if file["checksum"]
    }
    for plan in (saved, new):
        plan.keys = [(known.get(key, key[0]), key[1]) for key in plan.keys]
