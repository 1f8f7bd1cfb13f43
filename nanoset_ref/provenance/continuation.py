"""What would happen if a saved run went on with another plan: which tokens would come again, which would be left out.

The two ways to go on are compared over the same positions: [consumed, until). Each gives every token a number of
readings; where the new plan reads a token more often than the saved one would have, it repeats it, where less often, it
loses it. Counting is by stretches of tokens: the greatest length that fits a whole number of times into the samples'
strides of both plans, so that plans of different sequence lengths can be compared. It costs a number per stretch and a
look-up per position: seconds for a billion tokens.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.nanoset import Nanoset
from nanoset_ref.orders import Ledger, Order, StatelessOrder, build_order

BLOCK = 1 << 20  # positions looked up at once


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


@dataclasses.dataclass(frozen=True, kw_only=True)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Continuation:
    """The comparison, file by file. `exact`: every token would be read as often as by the saved plan, though perhaps
    elsewhere in the order.
    """

    consumed_train_samples: int
    until: int
    exact: bool
    files: Sequence[FileDifference]

    def __str__(self) -> str:
        if self.exact:
            at = f"{self.consumed_train_samples:,}"
            return f"continuing at {at} reads the same tokens as the saved plan would, each as often"
        lines = [
            f"from position {self.consumed_train_samples:,} to {self.until:,}, in tokens, against going on as saved:"
        ]
        lines.append(
            f"  {'file':<32} {'':<8} {'read before':>13} {'as saved':>13} {'new plan':>13}"
            f" {'more':>13} {'of it again':>13} {'lost':>13}"
        )
        lines += [
            f"  {it.file[-32:]:<32} {it.status:<8} {it.read_before:>13,} {it.saved:>13,} {it.new:>13,}"
            f" {it.repeated:>13,} {it.again:>13,} {it.lost:>13,}"
            for it in self.files
        ]
        return "\n".join(lines)


def compare(state: Mapping[str, Any], dataset: Nanoset, until: int | None = None) -> Continuation:
    """What would repeat or be lost if the run that saved `state` went on with `dataset`.

    Args:
        state: {"consumed_train_samples": int, "plan": dict}, as NanosetDataLoader.state_dict gives it.
        dataset: the new plan. Position k continues to count samples, whatever their length.
        until: positions compared; default: the end of the saved plan's current epoch.

    Raises:
        ValueError: the state holds no plan, or one whose order cannot be built again (an order object was given to the
            Nanoset).
    """
    plan, consumed = _plan_of(state), state["consumed_train_samples"]
    lengths, strides = _shape(plan)
    epoch = sum(lengths)
    until = (consumed // epoch + 1) * epoch if until is None else until
    saved = _order_of(plan, until)
    first = saved.start.position if isinstance(saved, StatelessOrder) else 0
    new = _order_of(dataset.plan, until)
    if isinstance(new, StatelessOrder) and new.start.position > consumed:
        raise ValueError(
            f"the new plan begins at position {new.start.position}, the run that was saved had read up to {consumed}"
        )
    _, new_strides = _shape(dataset.plan)
    files = []
    theirs, ours = _places(plan), _places(dataset.plan)
    for key, file in {_key(file): file for file in [*plan["files"], *dataset.plan["files"]]}.items():
        old_index, new_index = theirs.get(key, []), ours.get(key, [])
        unit = math.gcd(*(strides[i] for i in old_index), *(new_strides[i] for i in new_index))
        size = -(-file["num_tokens"] // unit)
        before = _readings(saved, old_index, strides, first, consumed, unit, size)
        as_saved = _readings(saved, old_index, strides, consumed, until, unit, size)
        as_new = _readings(new, new_index, new_strides, consumed, until, unit, size)
        more = np.maximum(as_new - as_saved, 0)
        files.append(
            FileDifference(
                file=file["name"],
                status="kept" if old_index and new_index else "added" if not old_index else "dropped",
                read_before=int(before.sum()) * unit,
                saved=int(as_saved.sum()) * unit,
                new=int(as_new.sum()) * unit,
                repeated=int(more.sum()) * unit,
                again=int(more[before > 0].sum()) * unit,
                lost=int(np.maximum(as_saved - as_new, 0).sum()) * unit,
            )
        )
    exact = all(it.repeated == it.lost == 0 for it in files)
    return Continuation(consumed_train_samples=consumed, until=until, exact=exact, files=files)


def ledger_of(state: Mapping[str, Any]) -> Ledger:
    """How far the run that saved `state` had read each of its files, for a stateless order that goes on from there with
    other weights or more files.

    Raises:
        ValueError: as `compare`; the saved order was not "stateless".
    """
    order = _order_of(_plan_of(state), state["consumed_train_samples"])
    if not isinstance(order, StatelessOrder):
        raise ValueError(
            f"only order='stateless' reads its files through and goes on from counts; this is {order.name!r}"
        )
    return order.ledger(state["consumed_train_samples"])


def _plan_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    plan: Mapping[str, Any] | None = state.get("plan")
    if plan is None:
        raise ValueError("the state holds no plan; NanosetDataLoader.state_dict saves one")
    return plan


def _order_of(plan: Mapping[str, Any], num_samples: int) -> Order:
    """The order of a plan, built again."""
    lengths, _ = _shape(plan)
    arguments = plan["dataset_weights"], num_samples, plan["random_seed"]
    order = build_order(plan["order"], lengths, *arguments, **plan["order_options"])
    if order.fingerprint != plan["order_fingerprint"]:
        raise ValueError("the order cannot be built again from its plan: it was given to the Nanoset as an object")
    return order


def _key(file: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes two files of two plans the same file: content where it is known, else the name; and the size."""
    return file["checksum"] or file["name"], file["num_tokens"]


def _shape(plan: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Samples and stride in tokens of each file of a plan."""
    length = plan["sequence_length"]
    strides = [length + (file["windows"] == "disjoint") for file in plan["files"]]
    return [
        (file["num_tokens"] - length - 1) // stride + 1 for file, stride in zip(plan["files"], strides, strict=True)
    ], strides


def _places(plan: Mapping[str, Any]) -> dict[tuple[Any, ...], list[int]]:
    """The numbers under which a plan reads each file: more than one where it names a file twice."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for index, file in enumerate(plan["files"]):
        places.setdefault(_key(file), []).append(index)
    return places


def _readings(
    order: Order, places: Sequence[int], strides: Sequence[int], start: int, stop: int, unit: int, size: int
) -> NDArray[np.int64]:
    """How often each stretch of `unit` tokens of a file is read in positions [start, stop)."""
    edges = np.zeros(size + 1, dtype=np.int64)
    if not places:
        return edges[:-1]
    for first in range(start, stop, BLOCK):
        datasets, samples = order[np.arange(first, min(first + BLOCK, stop), dtype=np.int64)]
        for dataset in places:
            width = strides[dataset] // unit
            begins = samples[datasets == dataset] * width
            np.add.at(edges, begins, 1)
            np.add.at(edges, begins + width, -1)
    return np.cumsum(edges)[:-1]
