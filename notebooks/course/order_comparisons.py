"""Of the appendix of notebook 17: its runs, all comparisons, the six that were repeated, other rates and batches."""

import json

import numpy as np

from course.order_runs import (
    TEXTS,
    best_ends,
    by_batch,
    curves,
    finding,
    more,
    reach,
    results,
    runs_of,
    seeds,
    star,
    tested,
)
from course.order_tables import as_table, cost_said, interval

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks import order_again
from benchmarks.order_arms import BATCHES, PEAKS, RATES, TOGETHER, exchanged
from benchmarks.order_matters import at_the_end
from benchmarks.order_questions import BLENDED
from benchmarks.order_statistics import RESULTS
from benchmarks.small_model import SIZES, SmallModel

SECTIONS = {  # by experiment, where notebook 17 has its comparisons
    "buffers": "Section 2: file order, buffers, documents",
    "repetition": "Section 3: epochs",
    "annealing": "Section 4: the best source last",
    "blend": "Section 5: a blend that is cut",
}
NOTES = {  # below the tables
    "annealing": """
Programs gain more at a constant 0.0015 than under WSD from 0.003, although the rate of its last fifth is slightly
higher on average, 0.00165. So the rate at the end is not the whole story.
"""
}
COMMANDS = {  # of each stored result
    "order_matters": "1,720 of 107,000 parameters",
    "order_pieces": "30 of 560,000 parameters, long",
    "order_widths": "40 of both widths, short",
    "order_lengths": "10 of 118,000 parameters, long",
    "order_again": "220 of 107,000 parameters, new seeds",
    "order_again_ten_rounds": "220 of 107,000 parameters, the same with today's shuffle",
    "order_batches": "90 of 107,000 parameters, larger batches",
    "order_rounds": "5 of 118,000 parameters, long, in ten rounds",
    "order_steady": "6 of 118,000 parameters, long and short, at a constant rate",
    "order_steady_small": "20 of 107,000 parameters, in ten rounds, at two rates",
    "order_few": "120 of 107,000 parameters, other few samples, with today's shuffle",
    "order_clean": "50 of 107,000 parameters, on clean text too, with today's shuffle",
    "order_blocks": "80 of 107,000 parameters, in 1, 10 and 100 rounds, with today's shuffle",
    "order_blocks_wide": "80 of 324,000 parameters, in the same rounds, with today's shuffle",
    "order_unread": "50 of 107,000 parameters, on unread text too, with today's shuffle",
}


def comparisons():
    """A table for each section, a row for each comparison."""
    parts = []
    for experiment, heading in SECTIONS.items():
        mine = [it for it in tested() if it.question.experiment == experiment]
        rows = []
        for label in dict.fromkeys(it.question.label for it in mine):
            cells = {
                it.text: interval(it.mean, it.reach, star(it))
                for it in mine
                if it.question.label == label
            }
            rows.append(
                [label.replace(" - ", " against "), *(cells.get(text, "") for text in TEXTS)]
            )
        table = as_table(["order", *TEXTS.values()], rows)
        parts.append(f"### {heading}\n\n{table}\n{NOTES.get(experiment, '')}")
    return "\n".join(parts)


def commands():
    rows = []
    for name, runs in COMMANDS.items():
        path = RESULTS.with_stem(name)
        stored = json.loads(path.read_text())
        hours = sum(run["cpu_seconds"] for run in stored["runs"]) / 3600
        rows.append(f"| {runs} | `{stored['command']}` | {hours:.{1 if hours > 0.05 else 2}f} |")
        assert len(stored["runs"]) == int(runs.split()[0].replace(",", ""))
    return "\n".join(rows)


def again():
    """What each claim should show, and what each series of runs says of it on each text."""
    rows, agree, agree_today, moved = [], [], [], []
    today = order_again.outcomes(order_again.TEN_ROUNDS)
    for claim, by_text in order_again.outcomes().items():
        for text, found in by_text.items():
            expected = "a cost" if claim.sign > 0 else "a gain"
            expected += ", \u2217" if text in claim.stars else ""
            series = [finding(text, claim.label), found, today[claim][text]]
            agree.append(order_again.agrees(claim, found))
            agree_today.append(order_again.agrees(claim, series[2]))
            moved.append(abs(series[2].mean - found.mean))
            rows.append(
                [
                    f"{claim.label.replace(' - ', ' against ')}: {TEXTS[text]}",
                    expected,
                    *(interval(it.mean, it.reach, star(it)) for it in series),
                ]
            )
    head = ["order: text", "should be", "seeds 0 to 9", "new seeds", "with today's shuffle"]
    return {
        "again": as_table(head, rows),
        "agree": sum(agree),
        "all": len(agree),
        "told": f"{sum(agree) - 1} of the {len(agree)}",
        "agree_today": sum(agree_today),
        "moved_today": max(moved),
        "first": order_again.SEEDS[0],
        "last": order_again.SEEDS[-1],
    }


def mean_curve(text, arm):
    """Shares of the run, and the held-out loss there: the mean of sources and seeds."""
    read = [curves(text, "buffers", arm, source) for source in results()["texts"][text]]
    tokens = read[0][0]
    return tokens / tokens[-1], np.mean([losses for _, losses in read], axis=(0, 1))


def ending():
    """What a run in file order with a shuffled fifth still costs, source by source."""
    arm, rows = "in file order, last 20% shuffled", []
    for text, label in TEXTS.items():
        steps, shuffle = mean_curve(text, "shuffled")
        place = np.interp(-mean_curve(text, arm)[1][-1], -shuffle, steps)
        costs = [
            f"{source} {np.mean(more(text, 'buffers', arm, 'shuffled', source)):+.2f}"
            for source in results()["texts"][text]
        ]
        rows.append([label, ", ".join(costs), f"{place:.0%} of its steps"])
        assert finding(text, arm).has_star and 0.3 < place < 0.7
    return as_table(["text", "cost", "ends where the shuffle is after"], rows)


def of_the_runs():
    """What the page says of the small model's runs."""
    samples = results()["runs"][0]["tokens"][-1] // 32
    ends = {}
    for experiment, arm in (("buffers", "shuffled"), ("repetition", "fresh")):
        for text in TEXTS:
            losses = at_the_end(runs_of(text, experiment))[arm].values()
            ends.setdefault(arm, []).append(f"{np.mean([*losses]):.2f}")
    parameters = sum(it.numel() for it in SmallModel(SIZES["small"]).parameters())
    count = sum(it["training_samples"] for it in results()["texts"]["corpus"].values())
    late = np.arange(count) - exchanged(count, 1_000, seed=0)
    return {
        "samples": f"{samples:,}",
        "ratio": 32 * samples / parameters,
        "ends": ends["shuffled"],
        "fresh": ends["fresh"],
        "late": np.mean(late > 1_000),
        "ending": ending(),
    }


def other_rates():
    """What file order and the blend cost at each rate and batch, and each order at its best rate."""
    kinds = {
        "as usual": "",
        "half the peak": PEAKS[0.5],
        "twice the peak": PEAKS[2.0],
        "WSD": RATES["WSD"],
        "a constant rate": RATES["constant"],
        "batches of 8": BATCHES[8],
        "batches of 32": BATCHES[32],
    }
    labels = {(it.text, it.question.label): it.mean for it in tested()}
    columns = [(text, way) for text in TEXTS for way in ("in file order", BLENDED)]
    lines = []
    for kind, which in kinds.items():
        means = [labels.get((text, way + which)) for text, way in columns]
        lines.append([kind, *("not run" if it is None else f"{it:+.2f}" for it in means)])
    best = []
    for text in TEXTS:
        shuffle, *ends = (best_ends(text, arm) for arm in ("shuffled", "in file order", BLENDED))
        costs = [end - shuffle for end in ends]
        best += map(cost_said, costs)
        assert 0.1 < costs[1].mean() < 0.5 * costs[0].mean()
    lines.append(["each order at its best of four", *best])
    heads = [f"{TEXTS[text]}: {way.partition(',')[0]}" for text, way in columns]
    return as_table(["nats above the shuffle", *heads], lines)


def larger():
    """What shuffled documents cost in batches of 8 to 256, by text."""
    lines = []
    for text, label in TEXTS.items():
        rows = results("order_batches")["rows_of_own_document"][text]
        batches, whole = by_batch(text, "in file order")
        _, costs = by_batch(text, TOGETHER)
        _, shuffles = by_batch(text, "shuffled", against=None)
        for batch, cost, all_of_it, end in zip(batches, costs.T, whole.T, shuffles.T, strict=True):
            said = [label, str(batch), f"{rows / batch:.1f}"]
            said += [f"{cost.mean():+.2f} \u00b1 {reach(cost):.2f}"]
            said += [f"{cost.mean() / all_of_it.mean():.0%}", f"{end.mean():.2f}"]
            lines.append(said)
    head = ["text", "batch", "rows of a document / of a batch", "nats above the shuffle"]
    return as_table([*head, "of what file order costs", "the shuffle ends at"], lines)


def of_the_batches():
    """What the page says of larger batches."""
    own = results("order_batches")["rows_of_own_document"]
    means = []
    for text in TEXTS:
        facts = results()["texts"][text].values()
        samples = sum(it["training_samples"] for it in facts)
        documents = sum(it["documents_that_samples_begin_in"] for it in facts)
        means.append(f"{samples / documents:.0f}")
    return {
        "larger": larger(),
        "batch_seeds": seeds("order_batches"),
        "largest_ends": " and ".join(
            f"{by_batch(text, 'shuffled', against=None)[1][:, -1].mean():.1f}" for text in TEXTS
        ),
        "own": " and ".join(f"{own[text]:.0f} on {label}" for text, label in TEXTS.items()),
        "mean_rows": " and ".join(means),
    }
