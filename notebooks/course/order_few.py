"""Of the appendix of notebook 17: which few samples cost something, also to a text that no run reads."""

import numpy as np

from course.order_runs import TEXTS, cost_among_few, reach, results, seeds
from course.order_tables import as_table

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks.order_arms import FEWER, LITTLE


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
