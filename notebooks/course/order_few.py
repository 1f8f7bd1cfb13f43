"""Of the appendix of notebook 17: which few samples cost something, also to a text that no run reads."""

import numpy as np

from course.order_runs import (
    TEXTS,
    beyond_unread,
    cost_among_few,
    reach,
    results,
    seeds,
    star,
    unread_found,
)
from course.order_tables import as_table, cost_said, interval

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks import order_unread
from benchmarks.order_arms import FEWER, LITTLE
from benchmarks.order_statistics import rows_of


def of_the_few():
    """What the page says of other samples as few as Nanotron's, with a little of the unread source."""
    begin = results("order_few")["documents_of_the_last_source"]
    costs, lines = {}, []
    for arm in [*FEWER, *(FEWER[0] + which for which in LITTLE.values())]:
        costs[arm] = [cost_among_few("corpus", arm, "arithmetic", warm) for warm in (False, True)]
        costs[arm].append(cost_among_few("corpus", arm, "programs"))
        if arm in FEWER:
            costs[arm].append(cost_among_few("real", arm, "shakespeare"))
        said = [f"{it.mean():+z.3f} \u00b1 {reach(it):.3f}" for it in costs[arm]]
        lines.append(
            [arm.replace("the middle source", "arithmetic"), *said, *[""] * (4 - len(said))]
        )
    head = ["samples", "arithmetic", "arithmetic, softened", "programs", "Shakespeare"]
    unread = {arm: unread_on_its_way(arm) for arm in ("all samples", FEWER[0])}
    first, following, spread = (costs[arm] for arm in FEWER)
    return {
        "of_few": as_table(head, lines),
        "begin": [", ".join(str(begin[text][it]) for it in FEWER) for text in TEXTS],
        "few_seeds_new": f"{seeds('order_few')} new seeds (from 20 on)",
        "control_failed": f"{first[0].mean():+.2f} \u00b1 {reach(first[0]):.2f}",
        "others_cost": [f"{it[0].mean():+.2f}" for it in (following, spread)],
        "little_costs": [
            f"{it.mean():+z.2f} \u00b1 {reach(it):.2f}"
            for it in (costs[FEWER[0] + which][0] for which in LITTLE.values())
        ],
        "softer": f"{1 - first[1].mean() / first[0].mean():.0%}",
        "plays": [f"{it[3].mean():+.2f}" for it in (first, following, spread)],
        "least_at": [f"{(np.argmin(it) + 1) / len(it):.0%}" for it in unread.values()],
        "risen": [f"{it[-1] - it.min():.2f}" for it in unread.values()],
    }


def unread_on_its_way(arm):
    """The mean loss on arithmetic after each eighth of a run that reads none."""
    runs = [run for run in results("order_few")["runs"] if run["run"][1] == "corpus"]
    losses = [run["held_out"]["arithmetic"] for run in runs if run["run"][3] == arm]
    return np.mean(losses, axis=0)


def of_the_unread():
    """What the page says of real text that no run reads."""
    found, name = unread_found(), "order_unread"
    unread = order_unread.MEASURED[1:]
    lines = []
    for arm in (*FEWER, order_unread.AGAIN):
        mine = [found[arm, source] for source in order_unread.MEASURED]
        cells = [interval(it.mean, it.reach, star(it)) for it in mine]
        warm = [cost_among_few("real", arm, it, warmest=True, name=name) for it in unread]
        cells += [interval(it.mean(), reach(it)) for it in warm]
        lines.append([arm, *cells])
    head = ["samples", "Shakespeare", "novel", "code", "novel, softened", "code, softened"]
    first, again = ([found[arm, it] for it in unread] for arm in (FEWER[0], order_unread.AGAIN))
    warm = [cost_among_few("real", FEWER[0], it, warmest=True, name=name) for it in unread]
    plays = found[FEWER[0], "shakespeare"].mean
    documents = rows_of(order_unread.RESULTS, results(name)["texts"])["real"]
    return {
        "of_unread": as_table(head, lines),
        "unread_seeds": seeds(name),
        "unread_documents": [len(np.unique(documents[it].documents)) for it in unread],
        "beyond_spread": cost_said(beyond_unread(unread[0], FEWER[2])),
        "beyond": [cost_said(beyond_unread(it)) for it in unread],
        "unread_plays": ", ".join(f"{found[it, 'shakespeare'].mean:+.2f}" for it in FEWER),
        "unread_again": all_said(again),
        "unread_costs": all_said(first),
        "unread_shares": ", ".join(f"{it.mean / plays:.0%}" for it in first),
        "unread_softer": ", ".join(
            f"{1 - cool.mean() / it.mean:.0%}" for cool, it in zip(warm, first, strict=True)
        ),
    }


def all_said(found):
    return ", ".join(f"{it.mean:+z.2f} \u00b1 {it.reach:.2f}{star(it)}" for it in found)
