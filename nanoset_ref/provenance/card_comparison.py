"""Two cards compared without their token files: where they differ, and from which step on."""

from collections import Counter
from itertools import chain

import numpy as np

from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.orders.plans import differences
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_facts import first_occurrences

COMPARED_FIELDS = "dtype", "window", "orders"
COMPARED_STAGE_FIELDS = "first_step", "steps", "order", "first_position", "batch_size"


def compare_two_cards(one: Card, two: Card) -> Json:
    """Compare two cards.

    Returns:
        {"differences": lines,
        "assumed": [name, name] of files assumed to be the same, because they have no checksums,
        "steps": the number of steps that both have,
        "step": the first step that reads different rows, or None,
        "rows": how many rows of that step differ,
        "problem": why the step cannot be computed, or None}
    """
    first = max(card.stages[0]["first_step"] for card in (one, two))
    steps = range(first, min(one.last_step, two.last_step) + 1)
    lines = []
    for difference in differences(_compared_facts(one), _compared_facts(two)):
        line = str(difference).replace(": saved ", ": first ", 1)
        lines.append(line.replace(", now ", ", second "))
    matched = _MatchedSources(one, two)
    comparison = {
        "differences": lines,
        "assumed": matched.assumed,
        "steps": len(steps),
        "step": None,
        "rows": 0,
        "problem": None,
    }
    are_all_different = matched.are_all_different or any(
        one.facts.get(name) != two.facts.get(name)
        for name in ("listed", "dtype", "window")
    )
    if not steps:
        comparison["problem"] = "they have no step in common"
    elif are_all_different:
        rows = max(card.stage(first)["batch_size"] for card in (one, two))
        comparison |= {"step": first, "rows": rows}
    elif lines or matched.are_reordered:
        try:
            comparison |= _first_differing_step(one, two, steps, matched)
        except ValueError as error:
            comparison["problem"] = str(error)
    return comparison


class _MatchedSources:
    """The sources of two cards; files that may be the same have one number in common.

    Two files are the same if their sizes agree, and their checksums or, without checksums, their
    names. Of the rest, two files are taken for the same if size and number agree. Copies of a file
    in one card, with equal checksums, have the number of the first of them.

    Attributes:
        numbers_of_one: for each source of the first card, its number; int64 [sources].
        numbers_of_two: for each source of the second card, its number in the first, or a new one;
            int64 [sources].
        assumed: the names of files that are taken for the same.
        are_all_different: whether both cards list files, and have none in common.
        are_reordered: whether a file has another number in the second card.
    """

    def __init__(self, one: Card, two: Card) -> None:
        left = dict(enumerate(one.sources))
        by_key: dict[str, list[int]] = {}
        for number, source in left.items():
            for key in _keys(source):
                by_key.setdefault(key, []).append(number)
        numbers = {}
        self.assumed = []
        for number, source in enumerate(two.sources):
            for k in chain.from_iterable(by_key.get(key, ()) for key in _keys(source)):
                if k in left and _are_same(left[k], source, by_name=True):
                    numbers[number] = k
                    del left[k]
                    break
        for number, source in enumerate(two.sources):
            other = left.get(number)
            if number in numbers or other is None:
                continue
            if _are_same(other, source, by_name=False):
                numbers[number] = number
                self.assumed.append([other["name"], source["name"]])
        self.are_all_different = bool(one.sources and two.sources) and not numbers
        first_new = len(one.sources)
        self.numbers_of_one = _first_copies(one.sources)
        found = [
            self.numbers_of_one[numbers[k]] if k in numbers else first_new + k
            for k in range(len(two.sources))
        ]
        self.numbers_of_two = np.array(found, dtype=int)[_first_copies(two.sources)]
        self.are_reordered = any(k != number for k, number in numbers.items())


def _first_copies(sources: list[Json]) -> Int64Array:
    """For each source, the number of the first one with its checksum."""
    keys = [source.get("checksum") or k for k, source in enumerate(sources)]
    return first_occurrences(keys)


def _are_same(one: Json, two: Json, *, by_name: bool) -> bool:
    """Whether two sources may be one file; names count if there are no checksums to compare."""
    if differences({"source": one}, {"source": two}):
        return False
    has_checksums = one.get("checksum") and two.get("checksum")
    return bool(has_checksums) or not by_name or _base_name(one) == _base_name(two)


def _base_name(source: Json) -> str:
    """The name of a file without its folders."""
    return source["name"].rpartition("/")[2]


def _keys(source: Json) -> list[str]:
    """The keys of a source. Two sources that are the same file share one of them."""
    return [*filter(None, [source.get("checksum")]), _base_name(source)]


def _compared_facts(card: Card) -> Json:
    """The facts that decide the rows of each step; the probes follow from them."""
    facts = {name: card.facts[name] for name in COMPARED_FIELDS}
    facts["sources"] = card.sources or card.facts["listed"]
    # names are not compared, and an order's name is its kind
    facts["orders"] = [
        order | {"kind": order["name"], "probes": None} for order in facts["orders"]
    ]
    facts["stages"] = [
        {name: stage[name] for name in COMPARED_STAGE_FIELDS} for stage in card.stages
    ]
    return facts


def _first_differing_step(
    one: Card,
    two: Card,
    steps: range,
    matched: _MatchedSources,
) -> dict[str, int]:
    """{"step", "rows"} of the first step at which one of the cards reads rows that the other does
    not; or {}.
    """
    for step in steps:
        read = one.samples_of(step)
        other = two.samples_of(step)
        read[:, 0] = matched.numbers_of_one[read[:, 0]]
        other[:, 0] = matched.numbers_of_two[other[:, 0]]
        if np.array_equal(read, other):
            continue
        rows = Counter(map(tuple, read.tolist()))
        others = Counter(map(tuple, other.tolist()))
        differing = max((rows - others).total(), (others - rows).total())
        if differing:
            return {"step": step, "rows": differing}
    return {}
