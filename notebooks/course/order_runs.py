"""The stored runs of notebook 17: what they lost, and which of their differences were tested."""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY))  # the experiments are beside the notebooks

from benchmarks import order_again, order_blocks, order_clean, order_unread
from benchmarks.order_arms import FEWER, IN_ROUNDS, LARGER, OTHER_RATES, PEAKS, RATES
from benchmarks.order_matters import at_the_end, reference_of
from benchmarks.order_pieces import CLEAN
from benchmarks.order_questions import FEW
from benchmarks.order_statistics import (
    RESULTS,
    differences,
    findings,
    rows_of,
    t_of,
    t_test,
)
from benchmarks.small_model import SIZES

TEXTS = {"corpus": "the course's corpus", "real": "WikiText-2, Shakespeare"}
WIDTHS = {  # by parameters, the short and the long run of section 6
    "118,000 parameters": ("narrow, short", "narrow"),
    "560,000 parameters": ("medium, short", "medium"),
}

# later runs, which the page counts together
LATER = (
    "order_again",
    "order_batches",
    "order_rounds",
    "order_steady",
    "order_steady_small",
    "order_again_ten_rounds",
    "order_few",
    "order_clean",
    "order_blocks",
    "order_blocks_wide",
    "order_unread",
)


@cache
def results(name="order_matters"):
    """The stored runs of `python -m benchmarks.order_matters`; those of the larger model are "order_pieces"."""
    return json.loads(RESULTS.with_stem(name).read_text())


@cache
def tested():
    """Every comparison of the stored runs of the small model, with its tests."""
    return findings()


def finding(text, label):
    """What one comparison found on a text."""
    (found,) = (it for it in tested() if (it.text, it.question.label) == (text, label))
    return found


def seeds(name="order_matters"):
    """How many seeds the stored runs have."""
    return len({run["run"][4] for run in results(name)["runs"]})


def stored():
    """Say how many seeds the stored runs have, and what they took."""
    for name, parameters in {
        "order_matters": "107,000 parameters",
        "order_pieces": "560,000 parameters",
        "order_widths": "118,000 and 560,000, short",
        "order_lengths": "118,000 parameters",
    }.items():
        runs = results(name)["runs"]
        hours = sum(run["cpu_seconds"] for run in runs) / 3600
        print(f"{parameters}: {len(runs)} runs, seeds: {seeds(name)}, core hours: {hours:.1f}")
    later = sum(len(results(name)["runs"]) for name in LATER)
    print(f"later, for sections 2 and 5 to 7 (see the appendix): {later} runs")


def runs_of(text, experiment):
    """The stored runs of an experiment on a text; the larger model has a text of its own, "generated"."""
    name = "order_pieces" if text == "generated" else "order_matters"
    return [run for run in results(name)["runs"] if run["run"][1:3] == [text, experiment]]


def curves(text, experiment, arm, source):
    """Thousands of tokens read, and the held-out losses [seeds, points]."""
    runs = [run for run in runs_of(text, experiment) if run["run"][3] == arm]
    return np.array(runs[0]["tokens"]) / 1000, np.array([run["held_out"][source] for run in runs])


def more(text, experiment, arm, reference, source=None):
    """Nats per token that an arm loses more than the reference, seed by seed."""
    losses = at_the_end(runs_of(text, experiment), source)
    return [losses[arm][seed] - losses[reference][seed] for seed in losses[arm]]


def by_batch(text, way, against="shuffled"):
    """The batches that an order was read in, and what it lost more there than another [seeds, batches].

    In nats per token; if it is compared with none, its loss itself.
    """
    large = at_the_end(run for run in results("order_batches")["runs"] if run["run"][1] == text)
    ends = at_the_end(runs_of(text, "buffers")) | large
    count = len(next(iter(large.values())))  # fewer seeds have larger batches
    losses = {}
    for batch in (8, 16, 32, *LARGER):
        which = "" if batch == SIZES["small"].batch else f", batches of {batch}"
        found = np.array([ends[way + which][seed] for seed in range(count)])
        if against:
            found -= [ends[against + which][seed] for seed in range(count)]
        losses[batch] = found
    return [*losses], np.transpose([*losses.values()])


def best_ends(text, arm):
    """The loss of each seed that an order of section 2 ends with at the best of four schedules and peaks.

    A held-out document is measured at the rate that is best on the other half of the documents, even or odd;
    the mean of the seeds says which rate that is.
    """
    rates = ["", *(RATES[schedule] + PEAKS[peak] for schedule, peak in OTHER_RATES)]
    names = [run["run"][2:4] for run in results()["runs"] if run["run"][1] == text]
    chosen = [[name == ["buffers", arm + rate] for name in names] for rate in rates]
    losses, halves = {}, {}
    for source, rows in rows_of(RESULTS, results()["texts"])[text].items():
        losses[source] = np.array([rows.losses[runs] for runs in chosen])  # [rates, seeds, rows]
        halves[source] = rows.documents % 2
    by_half = [
        np.mean([losses[it][..., halves[it] == half].mean(axis=(1, 2)) for it in losses], axis=0)
        for half in (0, 1)
    ]
    best = np.argmin(by_half, axis=1)  # of each half
    return np.mean(
        [np.choose(best[1 - halves[it]], losses[it]).mean(axis=1) for it in losses], axis=0
    )


@cache
def control_again():
    """What the new seeds find on arithmetic, which no run of section 5 reads. (This was not fixed beforehand.)"""
    [found] = findings(order_again.RESULTS, ["blend, few samples: unread source"])
    return found


def cost_of_few(source):
    """Nats per token that the few samples of programs cost a source of the corpus, in both series of seeds."""
    costs = []
    for name in ("order_matters", "order_again"):
        runs = [run for run in results(name)["runs"] if run["run"][1:3] == ["corpus", "blend"]]
        losses = at_the_end(runs, source)
        costs += [end - losses["stateless"][seed] for seed, end in losses[FEW].items()]
    return np.array(costs)


def of_size(size, text="generated"):
    """The stored runs of one of the four sizes with rows of 256 tokens."""
    name = {"medium": "order_pieces", "narrow": "order_lengths"}.get(size, "order_widths")
    return [run for run in results(name)["runs"] if run["run"][:2] == [size, text]]


def in_file_order(size):
    """Those of them that read generated text in file order."""
    return [run for run in of_size(size) if run["run"][3] == "in file order"]


def ends_of(size, text="generated"):
    """Nats per token at the end, seed by seed: in file order, shuffled."""
    ends = at_the_end(of_size(size, text))
    return [
        np.array([ends[arm][seed] for seed in range(5)]) for arm in ("in file order", "shuffled")
    ]


def ends_in_rounds():
    """Nats per token at the end of the long run of the narrow model, seed by seed, in file order in ten rounds."""
    ends = at_the_end(results("order_rounds")["runs"])[IN_ROUNDS]
    return np.array([ends[seed] for seed in range(5)])


def ends_at_constant_rate(size):
    """Nats per token at the end of the one seed: in file order, the same in ten rounds, shuffled."""
    ends = at_the_end(run for run in results("order_steady")["runs"] if run["run"][0] == size)
    ways = ("in file order", IN_ROUNDS, "shuffled")
    return [ends[way + RATES["constant"]][0] for way in ways]


def small_in_rounds():
    """By rate, what file order costs the small model on the corpus [seeds]: in one round and in ten."""
    ends = at_the_end(runs_of("corpus", "buffers"))
    ends |= at_the_end(results("order_steady_small")["runs"])
    count = seeds("order_steady_small")
    return {
        rate: [
            np.array([ends[way + which][it] - ends["shuffled" + which][it] for it in range(count)])
            for way in ("in file order", IN_ROUNDS)
        ]
        for rate, which in {"falling": "", "constant": RATES["constant"]}.items()
    }


def said_of(file_order, shuffle):
    """What file order costs, and the two losses that it is taken from."""
    return f"{file_order - shuffle:+.2f} ({file_order:.2f} - {shuffle:.2f})"


def wider_less_narrower(length, text="generated"):
    """How much more file order costs the wider model in runs of this length, and half of the interval."""
    return apart(*(np.subtract(*ends_of(width + length, text)) for width in ("medium", "narrow")))


def star(found):
    """The mark of a comparison that survives."""
    return "\u2217" if found.has_star else ""


def reach(values):
    """Half of the 95% interval of a mean (Student's)."""
    return t_test(np.asarray(values)).reach


def apart(first, second):
    """By how much the mean of one model's runs exceeds that of another's, and half of the 95% interval.

    Seeds of two models are no pairs, as their first weights differ: Welch's interval, not that of a paired test.
    """
    first, second = np.asarray(first), np.asarray(second)
    errors = [it.var(ddof=1) / len(it) for it in (first, second)]
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(it) - 1) for error, it in zip(errors, (first, second), strict=True)
    )
    half = t_of(0.05, int(freedom)) * np.sqrt(sum(errors))  # rounded down: a little too wide
    return first.mean() - second.mean(), half


def cost_among_few(text, arm, source, warmest=False, name="order_few"):
    """Nats per token [seeds] that fewer samples cost a source, compared with all of them, in the runs of a result.

    If `warmest`, each model is measured at the temperature that is best for it.
    """
    runs = [run for run in results(name)["runs"] if run["run"][1] == text]
    losses = at_the_end(runs, source)
    if warmest:
        losses = {}
        for run in runs:
            *_, name, seed = run["run"]
            losses.setdefault(name, {})[seed] = min(run["softened"][source])
    against = losses[reference_of("few", arm)]
    return np.array([end - against[seed] for seed, end in losses[arm].items()])


@cache
def unread_found():
    """By arm and text, what few samples and another shuffle do to Shakespeare and to two texts that no run reads."""
    return {(it.question.arm, it.question.sources[0]): it for it in order_unread.outcomes()}


def beyond_unread(unread, arm=FEWER[0]):
    """Nats per token [seeds] that few samples cost Shakespeare more than a text that no run reads."""
    costs = [
        cost_among_few("real", arm, source, name="order_unread")
        for source in ("shakespeare", unread)
    ]
    return np.subtract(*costs)


@cache
def blocks_found():
    """By size, text and label, what the comparisons of blocks say."""
    return {
        (size, it.text, it.question.label): it
        for size, found in order_blocks.outcomes().items()
        for it in found
    }


@cache
def cost_of_blocks(size, text, source=None):
    """By order, nats per token [seeds] that file order in 1, 10 and 100 rounds costs a model, on a source or on all."""
    stored = results(order_blocks.RESULTS[size].stem)["runs"]
    ends = at_the_end((run for run in stored if run["run"][1] == text), source)
    return {
        way: np.array([ends[way][seed] - end for seed, end in ends["shuffled"].items()])
        for way in order_blocks.WAYS
    }


def on_clean_rows():
    """By comparison: on the held-out rows, on those without shared text, and how much more it is there [seeds]."""
    runs = results("order_clean")["runs"]
    rows = {}
    for found, clean in zip(order_clean.outcomes(), order_clean.outcomes(CLEAN), strict=True):
        here, there = (differences(runs, "corpus", it.question) for it in (found, clean))
        rows[found.question.label] = found, clean, there - here
    return rows
