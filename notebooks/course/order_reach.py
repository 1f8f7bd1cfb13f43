"""Of the appendix of notebook 17: how far its tests reach, and what other weights and other rows would change."""

import numpy as np

from course.order_runs import (
    TEXTS,
    control_again,
    cost_of_few,
    finding,
    more,
    on_clean_rows,
    reach,
    results,
    seeds,
    star,
    tested,
)
from course.order_tables import as_table

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks import order_clean
from benchmarks.order_arms import EPOCHS, TOGETHER
from benchmarks.order_matters import RATE
from benchmarks.order_pieces import CLEAN
from benchmarks.order_questions import APART, BLENDED
from benchmarks.order_statistics import (
    RESAMPLES,
    RESULTS,
    corrected,
    detectable,
    rows_of,
    stars_with_both_errors,
)


def spreads():
    """The deviations of each number of epochs, and the interval of eight with the usual one."""
    rows = []
    for text, label in TEXTS.items():
        deviations = np.array(
            [
                np.std(more(text, "repetition", f"{n} epochs, same order", "fresh"), ddof=1)
                for n in EPOCHS
            ]
        )
        usual = (
            finding(text, "8 epochs").seeds.reach * np.sqrt(np.mean(deviations**2)) / deviations[2]
        )
        rows.append([label, *(f"{it:.3f}" for it in deviations), f"\u00b1 {usual:.3f}"])
    return as_table(["text", *(f"{n} epochs" for n in EPOCHS), "8, usual spread"], rows)


def weighted():
    """The shares of the training samples, and what orders of section 2 cost if sources had these weights."""
    ways = [
        "in file order",
        *("a buffer of 1,000" + kind for kind in ("", " that exchanges")),
        APART,
        TOGETHER,
        BLENDED,
    ]
    shares, lines = {}, {way: [way] for way in ways}
    for text in TEXTS:
        counts = {it: facts["training_samples"] for it, facts in results()["texts"][text].items()}
        shares[text] = {it: count / sum(counts.values()) for it, count in counts.items()}
        for way in ways:
            cost = sum(
                share * np.array(more(text, "buffers", way, "shuffled", source))
                for source, share in shares[text].items()
            )
            alike = finding(text, way).mean
            lines[way] += [f"{alike:+.2f}", f"{cost.mean():+.2f}"]
    said = "; ".join(
        ", ".join(f"{source} {share:.0%}" for source, share in of_text.items())
        for of_text in shares.values()
    )
    heads = [f"{text}: {how}" for text in ("corpus", "real") for how in ("alike", "by samples")]
    return as_table(["nats above the shuffle", *heads], lines.values()), said


def held_out():
    """How many rows a source is measured on, and how many documents these begin in."""
    said, counts = [], set()
    for text, sources in rows_of(RESULTS, results()["texts"]).items():
        documents = {it: len(np.unique(rows.documents)) for it, rows in sources.items()}
        counts |= {len(rows.documents) for rows in sources.values()}
        said.append(
            f"on {TEXTS[text]} from "
            + ", ".join(f"{n} documents of {it}" for it, n in documents.items())
        )
    [count] = counts
    return count, "; ".join(said)


def of_the_clean_rows():
    """What the page says of held-out documents that share no 13 tokens with a training one."""
    lines = []
    for label, (found, clean, difference) in on_clean_rows().items():
        cells = [f"{it.mean:+.2f} \u00b1 {it.reach:.2f}{star(it)}" for it in (found, clean)]
        cells.append(f"{difference.mean():+.2f} \u00b1 {reach(difference):.2f}")
        lines.append([label.replace(" - ", " against "), *cells])
        assert found.has_star and clean.has_star and found.mean * clean.mean > 0
    head = ["order", "usual rows", "clean rows", "clean less usual"]
    stored = results("order_clean")
    facts = {it: facts for it, facts in stored["texts"]["corpus"].items() if CLEAN in it}
    shuffled = [run["held_out"] for run in stored["runs"] if run["run"][3] == "shuffled"]
    ends = {"": [], CLEAN: []}
    for losses in shuffled:
        for prefix, found in ends.items():
            found.append([losses[prefix + it][-1] for it in order_clean.SOURCES])
    kept = [
        f"{it['clean_rows'] / it['rows_written']:.0%} of {name.removeprefix(CLEAN)}"
        for name, it in facts.items()
    ]
    return {
        "clean": as_table(head, lines),
        "kept": ", ".join(kept),
        "written": order_clean.WRITTEN,
        "clean_ends": [f"{np.mean(it):.2f}" for it in ends.values()],
        "clean_seeds": seeds("order_clean"),
    }


def of_the_tests():
    """What the page says of how far they reach."""
    stars = [it for it in tested() if it.has_star]
    both = stars_with_both_errors(tested(), seeds())
    assert all(it in stars for it in both)
    [lost] = [it for it in stars if it not in both]
    least = [
        f"{detectable(finding(text, 'shuffled again'), len(tested()), seeds()):.2f} nats on {label}"
        for text, label in TEXTS.items()
    ]
    controls = {2: [], 4: []}  # by the first of two sections
    pictured = how_many_are_pictured()
    assert sum(pictured) == len(tested())
    for found in tested():
        question = found.question
        if "shuffled again" in question.label and "unread" not in question.label:
            controls[4 if question.sources else 2].append(abs(found.mean))
    unread = [
        finding("corpus", f"{arm}: unread source")
        for arm in ("stateless, shuffled again", "blend, Nanotron", "blend, few samples")
    ]
    eight = finding("real", "8 epochs")
    unread.append(control_again())
    programs, arithmetic = cost_of_few("programs"), cost_of_few("arithmetic")
    few = programs, arithmetic, programs - arithmetic
    assert abs(few[2].mean()) < reach(few[2])
    real = finding("real", "blend, few samples: small source")
    assert real.mean > 2 * arithmetic.mean()
    families = [], []
    for found in tested():
        families[of_another_rate(found.question)].append(found)
    apart_stars = [[it.question for it in corrected(of) if it.has_star] for of in families]
    assert sorted([*apart_stars[0], *apart_stars[1]]) == sorted(it.question for it in stars)
    return {
        "main": len(families[0]),
        "apart_stars": [len(it) for it in apart_stars[::-1]],
        "few": [f"{it.mean():+.3f} \u00b1 {reach(it):.3f}" for it in few],
        "above": [int((it > 0).sum()) for it in few],
        "few_seeds": len(programs),
        "few_real": f"{real.mean:+.2f} \u00b1 {real.reach:.2f}",
        "count": len(tested()),
        "stars": len(stars),
        "both": len(both),
        "lost": f"{TEXTS[lost.text]}, {lost.question.label} ({lost.mean:+.2f})",
        "least": " and ".join(least),
        "moved": max(controls[2]),
        "moved_source": max(controls[4]),
        "moved_unread": abs(unread[0].mean),
        "pictured": pictured,
        "draws": RESAMPLES,
        "unread": [f"{it.mean:+.2f} \u00b1 {it.reach:.2f}" for it in unread],
        "narrow": eight.reach,
        "mean": eight.mean,
    }


def how_many_are_pictured():
    """How many comparisons: section 2's usual ones, section 4's picture, the rest of sections 3 to 5, all others."""
    counts = [0, 0, 0, 0]
    for found in tested():
        label = found.question.label
        if found.question.experiment != "buffers":
            counts[1 if "last fifth" in label and "better" in label else 2] += 1
        elif of_another_rate(found.question):
            assert found.has_star and found.mean > 0
            counts[3] += 1
        else:
            counts[0] += 1
    return counts


def of_another_rate(question):
    """Whether a comparison of section 2 is at another rate or in other batches than the usual ones."""
    return question.experiment == "buffers" and bool(RATE.search(question.arm).group())
