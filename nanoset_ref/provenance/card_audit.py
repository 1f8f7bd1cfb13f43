"""Checks of a card without its token files: is it consistent, and how evenly are files read?"""

import dataclasses

import numpy as np

from nanoset_ref.io.types import IntegerArray, Json
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_facts import steps_of, stop_of
from nanoset_ref.provenance.spread import (
    Spread,
    UnevenSamples,
    spread_over_steps,
    uneven_samples,
)

MAX_COUNTED = 1 << 28  # samples; 4 bytes of memory each


def audit_card(card: Card) -> list[Json]:
    """Check each order of a card, and that its stages read the orders without a gap.

    Returns:
        {"holds", "detail"} for each check; "holds" is None for an order that cannot be computed
        from the card.
    """
    checks = [_check_order(card, number) for number in range(len(card.facts["orders"]))]
    stops: dict[int, int] = {}
    for stage in card.stages:
        number = stage["order"]
        start = stage["first_position"]
        stop = stop_of(stage)
        # an order that continues from a ledger was read up to there by the stages before
        ledger = card.facts["orders"][number].get("options", {}).get("start")
        expected = stops.get(number, ledger["position"] if ledger else 0)
        stops[number] = stop
        detail = f"stage {stage['name']} reads positions {start:,} to {stop:,} of order {number}"
        if start != expected:
            detail += (
                f", which was read up to {expected:,}: rows are skipped or read again"
            )
        checks.append({"holds": start == expected, "detail": detail})
    return checks


def _check_order(card: Card, number: int) -> Json:
    """The check that an order can be computed and agrees with the probes."""
    facts = card.facts["orders"][number]
    try:
        order = card.unchecked_order(number)
    except ValueError as error:
        return {"holds": None, "detail": f"order {number} cannot be computed: {error}"}
    probes = len(facts["probes"])
    wrong = len(card.wrong_probes(number, order))
    samples = order.samples_per_epoch
    total = card.num_positions(number)
    agreement = "no probes confirm the sizes"
    if probes:
        agreement = f"{probes - wrong} of {probes} probes agree"
    detail = f"order {number} ({facts['name']}): {agreement}; "
    detail += f"{total:,} positions, {total / samples:.3f} times the {samples:,} samples of its files"
    return {"holds": wrong == 0, "detail": detail}


def spread_of_card(card: Card) -> list[list[Spread]]:
    """Measure how evenly each stage reads its files, which have their numbers in the card.

    Raises:
        ValueError: an order cannot be computed from the card, or disagrees with its probes.
    """
    by_stage = []
    for stage in card.stages:
        number = stage["order"]
        sources = card.source_numbers(number)
        schedule = card.schedule(stage)
        spreads = spread_over_steps(card.order(number), schedule, steps_of(stage))
        by_stage.append(
            [
                dataclasses.replace(spread, file=sources[spread.file])
                for spread in spreads
            ]
        )
    return by_stage


def uneven_in_card(card: Card) -> list[UnevenSamples] | None:
    """Find the samples that the whole run reads too often or too seldom.

    Returns:
        None if the files hold more than MAX_COUNTED samples, too many to count.

    Raises:
        ValueError: as `spread_of_card`.
    """
    orders = [card.order(number) for number in range(len(card.facts["orders"]))]
    if any(order.name == "identity" for order in orders):
        return []  # it reads its rows one after another
    lengths = [0] * len(card.sources)
    for number in range(len(orders)):
        for source in card.source_numbers(number):
            lengths[source] = card.num_samples(source)
    if sum(lengths) > MAX_COUNTED:
        return None
    reads: list[IntegerArray] = [np.zeros(length, np.uint32) for length in lengths]
    for stage in card.stages:
        number = stage["order"]
        counts = orders[number].reads_of_samples(
            stage["first_position"], stop_of(stage)
        )
        for source, more in zip(card.source_numbers(number), counts, strict=True):
            reads[source] = reads[source] + more  # may be int64
    passes = 0
    if len(orders) == 1 and not orders[0].weighted:
        passes = orders[0].epoch_of(stop_of(card.stages[-1]))
    in_sequence = all(order.name == "nanotron_main" for order in orders)
    return uneven_samples(reads, passes, in_sequence=in_sequence)
