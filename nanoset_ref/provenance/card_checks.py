"""What can be said of cards without their files: is one consistent, and where do two of them part?"""

import dataclasses
from typing import Any

import numpy as np

from nanoset_ref.provenance.card import Card, Facts, FileOrder, stop_of
from nanoset_ref.provenance.spread import Spread, Uneven, spread_over_steps, uneven_samples

COMPARED = "dtype", "window", "sources", "orders"
COUNTED = 1 << 28  # rows whose reads are counted, 4 bytes each


def audit_card(card: Card) -> list[dict[str, Any]]:
    """Checks as {"holds", "detail"}: of each order, then of the way of the stages through them.

    An order that cannot be computed from the card neither holds nor is broken: None.
    """
    checks = [_check_order(card, number) for number in range(len(card.facts["orders"]))]
    stops: dict[int, int] = {}
    for stage in card.facts["stages"]:
        number = stage["order"]
        due = stops.get(number, 0)
        start = stage["first_position"]
        stops[number] = stop_of(stage)
        detail = f"stage {stage['name']} reads positions {start:,} to {stops[number]:,}"
        if start != due:
            detail += f": order {number} was read up to {due:,}, so rows are skipped or read again"
        checks.append({"holds": start == due, "detail": f"{detail} of order {number}"})
    return checks


def _check_order(card: Card, number: int) -> dict[str, Any]:
    facts = card.facts["orders"][number]
    try:
        order = card.unchecked_order(number)
    except ValueError as error:
        return {"holds": None, "detail": f"order {number} cannot be computed: {error}"}
    probes = len(facts["probes"])
    wrong = len(card.wrong_probes(number, order)) if probes else 0
    rows = sum(card.lengths(number))
    samples = card.samples(number)
    detail = f"order {number} ({facts['name']}): {probes - wrong} of {probes} probes agree; "
    detail += f"{samples:,} positions, {samples / rows:.3f} times the {rows:,} rows of its files"
    return {"holds": wrong == 0, "detail": detail}


def spread_of_card(card: Card) -> list[list[Spread]]:
    """How evenly each stage reads its files, by their numbers in the card.

    Raises:
        ValueError: an order cannot be computed from the card, or disagrees with its probes.
    """
    found = []
    for stage in card.facts["stages"]:
        number = stage["order"]
        steps = range(stage["first_step"], stage["first_step"] + stage["steps"])
        schedule = card.schedule(stage)
        spreads = spread_over_steps(card.order(number), card.lengths(number), schedule, steps)
        sources = card.source_numbers(number)
        found.append([dataclasses.replace(it, file=sources[it.file]) for it in spreads])
    return found


def uneven_in_card(card: Card) -> list[Uneven] | None:
    """The samples that the whole run reads too often or too seldom; None: there are too many to count.

    Raises:
        ValueError: as `spread_of_card`.
    """
    numbers = range(len(card.facts["orders"]))
    orders: list[Any] = [card.order(number) for number in numbers]
    if any(isinstance(order, FileOrder) for order in orders):
        return []  # reads its rows in turn
    lengths: dict[int, int] = {}
    for number in numbers:
        lengths |= zip(card.source_numbers(number), card.lengths(number), strict=True)
    if sum(lengths.values()) > COUNTED:
        return None
    reads = [np.zeros(lengths.get(it, 0), dtype=np.uint32) for it in range(len(card.sources))]
    for stage in card.facts["stages"]:
        number = stage["order"]
        counts = orders[number].read_counts(stage["first_position"], stop_of(stage))
        for source, more in zip(card.source_numbers(number), counts, strict=True):
            reads[source] += more
    passes = 0
    if len(orders) == 1 and not orders[0].weighted:
        passes = orders[0].epoch_of(stop_of(card.facts["stages"][-1]))
    in_turn = all(order.name == "nanotron_main" for order in orders)
    return uneven_samples(reads, passes, in_turn=in_turn)


def compare_two_cards(one: Card, two: Card) -> dict[str, Any]:
    """What two cards say differently, and what follows from it.

    Returns:
        {"differences": lines, "steps": that both have, "step": the first one whose rows differ, or None,
        "rows": how many of its rows do, "problem": why that cannot be computed, or None}
    """
    from nanoset_ref.orders.plans import differences  # loads numba

    steps = min(one.num_steps, two.num_steps)
    facts = [_facts(card) for card in (one, two)]
    found: dict[str, Any] = {
        "differences": [_line(part) for part in differences(*facts)],
        "steps": steps,
        "step": None,
        "rows": 0,
        "problem": None,
    }
    if facts[0]["sources"] != facts[1]["sources"]:
        found |= {"step": 1, "rows": one.stage(1)["batch_size"]}
        return found
    if found["differences"]:
        try:
            found |= _first_other_step(one, two, steps)
        except ValueError as error:
            found["problem"] = str(error)
    return found


def _line(difference: Any) -> str:
    text = str(difference).replace(": saved ", ": first ", 1)
    return text.replace(", now ", ", second ")


def _facts(card: Card) -> Facts:
    """What decides the rows of a card's steps; probes follow from it."""
    facts = {name: card.facts[name] for name in COMPARED if name != "sources"}
    facts["sources"] = card.sources or card.facts["listed"]
    facts["orders"] = [order | {"probes": None} for order in facts["orders"]]
    placed = ("first_step", "steps", "order", "first_position", "batch_size")
    facts["stages"] = [{name: it[name] for name in placed} for it in card.facts["stages"]]
    return facts


def _first_other_step(one: Card, two: Card, steps: int) -> dict[str, int]:
    """The first step at which one card reads rows that the other does not, and how many; {} if none is."""
    for step in range(one.facts["stages"][0]["first_step"], steps + 1):
        read = one.samples_of(step)
        other = two.samples_of(step)
        if not np.array_equal(read, other):
            rows = {*map(tuple, read.tolist())} - {*map(tuple, other.tolist())}
            if rows:
                return {"step": step, "rows": len(rows)}
    return {}
