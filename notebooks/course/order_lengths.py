"""Of the appendix of notebook 17: two widths, two lengths of a run, and blocks of one source in rounds."""

import numpy as np

from course.order_runs import (
    WIDTHS,
    apart,
    ends_at_constant_rate,
    ends_in_rounds,
    ends_of,
    in_file_order,
    more,
    reach,
    results,
    runs_of,
    said_of,
    small_in_rounds,
    wider_less_narrower,
)
from course.order_tables import as_table, cost_said, saved_said

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks.order_arms import IN_ROUNDS
from benchmarks.order_matters import at_the_end
from benchmarks.order_questions import BLENDED


def widths():
    rows = []
    for parameters, (short, long) in WIDTHS.items():
        ends = [ends_of(short), ends_of(long), ends_of(short, "real")]
        rows.append([parameters, *(said_of(*(it.mean() for it in pair)) for pair in ends)])
    return as_table(["model", "1.1M tokens", "11.2M tokens", "1.1M tokens of real text"], rows)


def of_the_widths():
    """What the page says of section 6."""
    where = {"1.1 million tokens": (", short", "generated"), "11.2 million": ("", "generated")}
    where["1.1 million of real text"] = (", short", "real")
    wider = {name: wider_less_narrower(*it) for name, it in where.items()}
    stories = [
        np.array([run["held_out"]["stories"] for run in in_file_order(size)])
        for _, size in WIDTHS.values()
    ]
    best = [it.min(axis=1).mean() for it in stories]
    end = [it[:, -1].mean() for it in stories]
    assert min(end) > np.log(512) > 4 * max(best)
    gains = []
    for text in ("generated", "real"):
        narrow, wide = ([it.mean() for it in ends_of(size, text)] for size, _ in WIDTHS.values())
        gains.append(narrow[1] - wide[1])
        assert abs(wide[0] - narrow[0]) < gains[-1]
    cost = {
        way: np.mean(more("generated", "buffers", way, "shuffled"))
        for way in (
            "in file order",
            "one after another, each shuffled",
            "a buffer of 1,000",
            BLENDED,
        )
    }
    whole, *others = cost.values()
    shuffled = ends_of("narrow")[1]
    costs = [
        ends_in_rounds() - shuffled,
        *(np.subtract(*ends_of(size)) for size in ("narrow, short", "narrow")),
    ]
    # the page says so
    assert abs(costs[0].mean() - costs[1].mean()) < reach(costs[0]) < costs[2].mean() / 3
    said = [f"{it.mean():+.2f} \u00b1 {reach(it):.2f}" for it in costs]
    less, half = apart(*costs[:2])
    return {
        "rounds_less_short": f"{less:+z.2f} \u00b1 {half:.2f}",
        "in_rounds": ends_in_rounds().mean(),
        "rounds_cost": said[0],
        "short_cost": said[1],
        "long_cost": said[2],
        "wider": ", ".join(
            f"{name} {mean:+.2f} \u00b1 {half:.2f}" for name, (mean, half) in wider.items()
        ),
        "best": [f"{it:.1f}" for it in best],
        "end": [f"{it:.1f}" for it in end],
        "guess": np.log(512),
        "gain": [f"{it:.1f}" for it in gains],
        "saved": [f"{1 - it / whole:z.0%}" for it in others],
    }


def of_the_rounds():
    """What the page says of ten rounds at a constant rate."""
    short, long = (ends_at_constant_rate(size) for size in ("narrow, short", "narrow"))
    small = small_in_rounds()
    long_falling = np.subtract(*ends_of("narrow")), ends_in_rounds() - ends_of("narrow")[1]
    short_falling = np.subtract(*ends_of("narrow, short"))
    wide, tiny = "118,000 parameters", "107,000, the course's corpus"
    runs = {  # by model, tokens, rate and steps of a block: one round and ten
        (wide, "11.2M", "falling", "910, 91"): long_falling,
        (wide, "11.2M", "constant", "910, 91"): np.subtract(long[:2], long[2]),
        (wide, "1.1M", "falling", "91, 9"): (short_falling, None),
        (wide, "1.1M", "constant", "91, 9"): np.subtract(short[:2], short[2]),
    }
    runs |= {(tiny, "0.3M", rate, "213, 21"): costs for rate, costs in small.items()}
    rows = [[*which, *map(cost_said, costs), *saved_said(*costs)] for which, costs in runs.items()]
    head = ["parameters", "tokens", "rate", "steps of a block", "one round", "ten rounds", "saved"]
    over = long[1] - long[2] - (short[0] - short[2])
    stored = results("order_steady_small")["runs"]
    assert over < 0 < small["falling"][1].mean() - small["falling"][0].mean()
    return {
        "rounds": as_table(head, rows),
        "steady": sum("steady" in run["run"] for run in stored)
        + len(results("order_steady")["runs"]),
        "saved_long": saved_said(*np.subtract(long[:2], long[2]))[0],
        "over_short": f"{over:+.2f}",
        "small_saved": " and ".join(
            f"{saved_said(*it)[0]} at a {rate} one" for rate, it in small.items()
        ),
        "small_programs": [
            f"{np.mean([*at_the_end(stored, 'programs')[way + ', constant rate'].values()]):.2f}"
            for way in ("in file order", IN_ROUNDS)
        ],
        "moved_again": moved_again(stored),
    }


def moved_again(runs):
    """How far repeated runs came from the first ones: the shuffle, file order, and the mean of that."""
    first, repeated = at_the_end(runs_of("corpus", "buffers")), at_the_end(runs)
    shuffle, file_order = (
        np.array([end - first[way][seed] for seed, end in repeated[way].items()])
        for way in ("shuffled, constant rate", "in file order, constant rate")
    )
    found = np.abs(shuffle).max(), np.abs(file_order).max(), abs(file_order.mean())
    return [f"{found[0]:.4f}", f"{found[1]:.2f}", f"{found[2]:.3f}"]
