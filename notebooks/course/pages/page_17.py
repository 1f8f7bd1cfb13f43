"""Notebook 17: its opening, what its folds and figures show, and the rules of its exercises."""

import shutil
from pathlib import Path

import numpy as np
from IPython.display import Markdown, display

from course import show
from course.order_runs import (
    TEXTS,
    WIDTHS,
    control_again,
    cost_of_blocks,
    curves,
    ends_in_rounds,
    ends_of,
    finding,
    more,
    results,
    runs_of,
    said_of,
    star,
    tested,
    wider_less_narrower,
)
from course.order_two_widths import PARAMETERS
from course.pictures import show_table
from course.registry import answer, figure, rule
from figures import experiments as plots

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks import order_again
from benchmarks.order_arms import (
    ENDS,
    EXTREMES,
    HEADLINE,
    PEAKS,
    RATES,
    TOGETHER,
    shuffled,
)
from benchmarks.order_arms import buffers as buffers  # for the page, which has no path to it
from benchmarks.order_matters import RATE, at_the_end
from benchmarks.order_pieces import in_order
from benchmarks.order_questions import APART, BLENDED
from benchmarks.small_model import SIZES, Size, train
from benchmarks.small_text import documents_of, held_out_rows, prepare_text

UNREAD = "arithmetic"  # by all runs of section 5
N = 2048  # samples of the live runs
SENT = "documents shuffled, a buffer of 1,000"
BRACKETS = "*In brackets: the smallest and the largest of the ten seeds.*"
CONTROL = "control: arithmetic, unread (not fixed beforehand)"
SHOWN = [  # in the first answer
    "in file order",
    "in file order, sources reversed",
    "a buffer of 10",
    "a buffer of 100",
    "a buffer of 1,000",
    "a buffer of 100 that exchanges",
    "a buffer of 1,000 that exchanges",
    APART,
    TOGETHER,
    SENT,
    BLENDED,
    "shuffled again",
]


def trained_live():
    """Two seeds of a small model on N samples of stories, and on N / 16 of them sixteen times."""
    folder = Path("data/17")
    shutil.rmtree(folder, ignore_errors=True)
    size = Size(
        48, 2, 2, 32, 16, available=3000, samples=N, evaluations=8, held_out=64, learning_rate=3e-3
    )
    stories = documents_of("corpus", Path("data"), None)["stories"][:250]
    length = prepare_text({"stories": stories}, folder, size)["stories"]["training_samples"]
    held_out = {"stories": held_out_rows(folder / "stories_held_out_input_ids.npy", size)}
    live = {"fresh": [], "16 epochs": []}
    for seed in range(2):
        fresh = shuffled([length], seed)[:N]
        for name, numbers in (("fresh", fresh), ("16 epochs", fresh[shuffled([N // 16], seed, N)])):
            data = in_order(
                [folder / "stories_train_input_ids.npy"], numbers, 32, folder / "order.npy"
            )
            live[name].append(train(data, held_out, size, seed))
    return live


def opening():
    arms = ["shuffled", "in file order"]
    sources = list(results()["texts"]["corpus"])
    show(
        plots.bands(
            {
                source: {arm: curves("corpus", "buffers", arm, source) for arm in arms}
                for source in sources
            },
            "Read one after another, stories and arithmetic are forgotten",
        ),
        "Held-out loss of each source while a model reads stories, then arithmetic, then programs (red), or "
        "the same samples shuffled (black). Bars span the seeds.",
        "Three panels, one per source. In file order the loss on stories falls and then climbs above its "
        "first mark, the one on arithmetic falls late and climbs, too, and that on programs falls at the end. "
        "Shuffled, all fall together.",
    )


@answer("17.1", "blended", words=("Once every batch holds all sources",))
def answer_1():
    cost = {
        label: {way: more(text, "buffers", way, "shuffled") for way in SHOWN}
        for text, label in TEXTS.items()
    }
    drawn = {
        label: with_stars(text, "buffers", "shuffled", cost[label]) for text, label in TEXTS.items()
    }
    show(
        plots.differences(drawn, "Mixing the sources counts most", "shuffled"),
        "Held-out loss, the mean of the sources, compared with a full shuffle. A dot is a seed, the bar their mean.",
        "Dots for twelve orders on two texts. File order, either way round, buffers of 10, 100 and 1,000 samples, "
        "sources one after another and documents shuffled with their rows together lie far right of zero, a buffer of "
        "1,000 that exchanges less far; sources blended, each in file order, lie nearer to it, documents shuffled and "
        "sent through a buffer nearer still, and a second shuffle at it.",
    )
    for found in cost.values():
        assert 0 < np.mean(found[BLENDED]) < np.mean(found[APART])
    ways = ["a buffer of 1,000", "a buffer of 1,000 that exchanges", APART, BLENDED]
    ways += [TOGETHER, SENT]
    show_table(
        ["of file order's cost, saved by", *TEXTS.values()],
        [
            [way, *(saved(found[way], found["in file order"]) for found in cost.values())]
            for way in ways
        ],
    )

    display(Markdown(BRACKETS))


def share(cost, all_of_it):
    """The share of a cost that an order saves."""
    return f"{1 - np.mean(cost) / np.mean(all_of_it):z.0%}"


def saved(cost, all_of_it):
    """The same, and the least and the most of the seeds."""
    each = 1 - np.array(cost) / all_of_it
    return f"{share(cost, all_of_it)} ({each.min():.0%} to {each.max():.0%})"


@answer("17.2", 0, words=("fills once with 10,000",), within=0.1)
def answer_2():
    print("a buffer of 10,000:")
    for text, label in TEXTS.items():
        most = finding(text, "a buffer of 10,000")
        tail = runs_of(text, "buffers")[0]["tokens"][-1] // 32 - 10_000  # of the samples read
        print(
            f"{label:<24} {most.mean:+.2f} \u00b1 {most.reach:.2f}; the last {tail} samples are of one source"
        )
        assert abs(most.mean) < 0.1 and not most.has_star


@answer("17.3", 40, words=("About two fifths",), within=10)
def answer_3():
    percents = [0, *ENDS[::-1], 100]
    panels, table = {}, []
    for text, label in TEXTS.items():
        panels[label] = {}
        for rate, suffix in {"falling rate": "", "constant rate": RATES["constant"]}.items():
            costs = [
                more(text, "buffers", ended(percent) + suffix, "shuffled" + suffix)
                for percent in percents
            ]
            panels[label][rate] = (range(5), np.transpose(costs))
            table.append([f"{label}, {rate}", *(share(it, costs[0]) for it in costs[1:4])])
    axis = {"xlabel": "last steps that are shuffled, percent"}
    axis |= {"xticks": range(5), "xticklabels": percents}
    show(
        plots.bands(
            panels,
            "A shuffled end recovers only part of the cost",
            "nats per token above the shuffle",
            **axis,
        ),
        "Held-out loss at the end, mean of the sources: file order whose last steps are those of a full shuffle, "
        "compared with that shuffle under the same rate. 0 is file order, 100 the shuffle; the marks are evenly "
        "spaced, so the axis is not to scale. Bars span the seeds.",
        "Two panels, one per text, extra loss against the percent of shuffled last steps. Both lines fall at every "
        "mark (0, 1, 5, 20, 100 percent) and are still clearly above zero at 20. The line of the constant rate begins "
        "higher and falls faster.",
    )
    heads = [f"the last {percent}%" for percent in percents[1:4]]
    show_table(["of file order's cost, recovered by", *heads], table)


def ended(percent):
    """The name of the order whose last steps, so many percent, are those of the shuffle."""
    names = {0: "in file order", 100: "shuffled"}
    return names.get(percent, f"in file order, last {percent}% shuffled")


@answer("17.4", 16, words=("cost 0.4 to 0.6 nats",))
def answer_4():
    epochs, panels = [1, 2, 4, 8, 16], {}
    for text, label in TEXTS.items():
        above = {
            how: np.array([0 * np.array(more(text, "repetition", "fresh", "fresh"))]
                          + [more(text, "repetition", f"{n} epochs, {how}", "fresh") for n in epochs[1:]]).T
            for how in ("same order", "shuffled anew")
        }  # fmt: skip
        panels[label] = {how: (epochs, values) for how, values in above.items()}
        same = above["same order"]
        assert same[:, 2].mean() < 0.3 * (same[:, 4] - same[:, 2]).mean()
    table = []
    for n in epochs[1:]:
        gaps = [finding(text, f"{n} epochs, anew - same order") for text in TEXTS]
        table.append([f"{n} epochs", *(f"{it.mean:+z.3f}{star(it)}" for it in gaps)])
    show_table(["shuffled anew minus same order (\u2217: a star)", *TEXTS.values()], table)
    axis = {"xscale": "log", "xlabel": "epochs", "xticks": epochs, "xticklabels": epochs}
    show(
        plots.bands(
            panels,
            "Four epochs cost little, sixteen a lot",
            "nats per token above fresh text",
            **axis,
        ),
        "Held-out loss, mean of the sources, when the same number of tokens comes from fewer and fewer "
        "different samples. Bars span the seeds.",
        "Two panels, extra loss against the number of epochs. Both lines stay near zero up to 4 epochs and "
        "rise steeply from 8 to 16; the lines for the same order and for shuffling anew lie close together.",
    )


@answer("17.5", "training", words=("3.2 against 4.3",))
def answer_5(live):
    tokens = np.array(live["fresh"][0]["tokens"]) / 1000
    pair = {
        "training": {name: (tokens, [run["train"] for run in runs]) for name, runs in live.items()},
        "held out": {
            name: (tokens, [run["held_out"]["stories"] for run in runs])
            for name, runs in live.items()
        },
    }
    ends = {
        loss: {name: np.mean(values, axis=0)[-1] for name, (_, values) in it.items()}
        for loss, it in pair.items()
    }
    assert ends["training"]["16 epochs"] < ends["training"]["fresh"] - 0.3
    assert ends["held out"]["16 epochs"] > ends["held out"]["fresh"]
    show(
        plots.bands(pair, "Sixteen epochs look better and end worse", "loss, nats per token"),
        "Two seeds each, trained just now; bars span them. Left: the mean loss of the training steps. Right: the loss "
        "on held-out stories.",
        "Two panels of falling curves. On the left the run with 16 epochs falls below the fresh one by a "
        "wide margin. On the right it ends above it.",
    )


@answer("17.6", "constant", words=("almost stopped learning",))
def answer_6():
    panels = {}
    for text, best in {"corpus": "programs", "real": "Shakespeare"}.items():
        rows = {}
        for schedule in RATES:
            rows[f"{schedule}:"] = None
            for peak, height in PEAKS.items():
                found = finding(text, f"last fifth, {schedule}{height}: better source")
                name = f"{schedule}| peak {peak * SIZES['small'].learning_rate:g}"
                rows[name] = (found.mean, found.reach, star(found))
        panels[f"{best} last"] = rows
    show(
        plots.intervals(panels, "A source read last gains while the learning rate is still high"),
        "Held-out loss of the better source when it is read in the last fifth, compared with spread out under the "
        "same schedule and peak, with a 95% interval. The two scales differ.",
        "Two panels, one per text: an interval for each of four schedules and three peak rates. Under a constant rate "
        "and WSD all means lie left of zero; a falling rate and the cosine, with the lowest peak, have theirs right.",
    )
    for text in TEXTS:
        means = {
            label: finding(text, f"last fifth, {label}: better source").mean
            for label in ("constant", "WSD", "falling, half the peak", "cosine, half the peak")
        }
        assert [mean > 0 for mean in means.values()] == [False, False, True, True]
        assert not finding(text, "last fifth, falling: better source").has_star


@answer("17.7", "Shakespeare", words=("Shakespeare loses 0.3",))
def answer_7():
    few, again = "stateless, as few samples", "stateless, shuffled again"
    blends = {}
    for text, label in TEXTS.items():
        first, *_, last = results()["texts"][text]
        blends[label] = {
            "Nanotron, large source": more(text, "blend", "nanotron", "stateless", first),
            "Nanotron, small source": more(text, "blend", "nanotron", "stateless", last),
            "as few samples, small source": more(text, "blend", few, "stateless", last),
        }
        if text == "corpus":
            blends[label] |= {
                "Nanotron, unread source": more(text, "blend", "nanotron", "stateless", UNREAD),
                "as few samples, unread source": more(text, "blend", few, "stateless", UNREAD),
                "shuffled again, unread source": more(text, "blend", again, "stateless", UNREAD),
            }
    drawn = {}
    for text, label in TEXTS.items():
        drawn[label] = {
            way: (cost, finding(text, of_the_blend(way)).has_star)
            for way, cost in blends[label].items()
        }
    show(
        plots.differences(
            drawn,
            "On real text, reading only the first 116 samples is what costs",
            "stateless",
            "no unread source",
        ),
        "Nanotron's order, and the stateless one over the samples that Nanotron's reads, compared with the stateless "
        "one over all. Dots are seeds. Large and small source are stories and programs on the left, WikiText and "
        "Shakespeare on the right. The last three rows are controls, on arithmetic, which none of these runs reads.",
        "Two panels of dots. On the right the small source loses under Nanotron's order, and most of that under the "
        "stateless order over as few samples. On the left most dots of programs lie right of zero, and those of the "
        "unread arithmetic as far; under a second shuffle most of its dots lie left.",
    )
    real = blends[TEXTS["real"]]
    assert min(real["Nanotron, small source"]) > 0
    assert np.mean(real["as few samples, small source"]) > 0.5 * np.mean(
        real["Nanotron, small source"]
    )


def print_rounds(short, shuffle):
    """Of the narrower model: file order in ten rounds."""
    in_rounds = ends_in_rounds().mean()
    print(f"{'  in ten rounds':<18}{'':>21}{said_of(in_rounds, shuffle):>21}")
    # as much as in the short run
    assert abs(in_rounds - shuffle - short) < 0.05


def of_the_blend(way):
    """The label that a row of the picture of section 5 has among the comparisons."""
    order, source = way.split(", ")
    if order == "shuffled again":
        return f"stateless, {order}: {source}"
    return f"blend, {order.removeprefix('as ')}: {source}"


@answer("17.8", "as much", words=("the shuffle's gain",))
def answer_8():
    narrow, wide = "118,000 parameters, ", "560,000 parameters, "
    others = [way for way in HEADLINE if way not in EXTREMES]
    cost = {
        f"{tokens} tokens": {
            width + "in file order": np.subtract(*ends_of(name + length))
            for width, name in ((narrow, "narrow"), (wide, "medium"))
        }
        for tokens, length in (("1.1 million", ", short"), ("11.2 million", ""))
    }
    short, long = cost.values()
    long[narrow + "in ten rounds"] = ends_in_rounds() - ends_of("narrow")[1]
    long |= {wide + way: more("generated", "buffers", way, "shuffled") for way in others}
    show(
        plots.differences(
            {
                tokens: {way: (values, None) for way, values in found.items()}
                for tokens, found in cost.items()
            },
            "In the longer run file order costs 3.3 times as much; in the wider model, 1.9 times",
            "shuffled",
            "not run",
        ),
        "Held-out loss, the mean of the sources, compared with a full shuffle. Stories, arithmetic and programs of one "
        "generator, in rows of 256 tokens; a dot is one of five seeds. Black: too few seeds for section 7's tests.",
        "Two panels, one per length of the run. File order costs the narrower model 3.3 times as much in the long run, "
        "the wider one 1.9 times. There the narrower model in ten rounds lies where it lies in the short run. The "
        "wider one has four other orders: a buffer of 1,000 and sources one after another lie far from zero, the "
        "blend close to it, a second shuffle at it.",
    )
    assert (
        abs(long[narrow + "in file order"].mean() / long[wide + "in file order"].mean() - 1) < 0.1
    )
    assert all(
        values.mean() > 1.5 * short[way].mean() for way, values in long.items() if way in short
    )
    print("file order costs (its end - the shuffle's), in nats, rounded:")
    print(f"{'':<18}{'1.1M tokens':>21}{'11.2M tokens':>21}")
    for parameters, names in WIDTHS.items():
        ends = [[it.mean() for it in ends_of(name)] for name in names]
        costs = [file_order - shuffle for file_order, shuffle in ends]
        print(f"{parameters:<18}{said_of(*ends[0]):>21}{said_of(*ends[1]):>21}")
        if parameters in narrow:
            print_rounds(costs[0], ends[1][1])
        assert costs[1] > 1.5 * costs[0]
        # most of what the longer run adds to the cost is what the shuffle gains
        assert ends[0][1] - ends[1][1] > (costs[1] - costs[0]) / 2
        assert ends[1][0] > ends[0][0]
    wider = [wider_less_narrower(length) for length in (", short", "")]
    said = [f"{difference:+.2f} \u00b1 {half:.2f}" for difference, half in wider]
    print(f"{'wider - narrower':<18}{said[0]:>21}{said[1]:>21}   (95% intervals)")
    assert wider[0][0] > wider[0][1] and abs(wider[1][0]) < wider[1][1]
    draw_blocks()


def draw_blocks():
    """The small model and one twice as wide, in file order in 1, 10 and 100 rounds."""
    rounds, panels = [1, 10, 100], {}
    for text, label in TEXTS.items():
        panels[label] = {}
        for size, parameters in PARAMETERS.items():
            costs = cost_of_blocks(size, text)
            panels[label][f"{parameters} parameters"] = rounds, np.transpose([*costs.values()])
            one, ten, hundred = (it.mean() for it in costs.values())
            assert ten > one > 2 * hundred
    axis = {"xscale": "log", "xlabel": "rounds", "xticks": rounds, "xticklabels": rounds}
    show(
        plots.bands(
            panels,
            "Ten rounds cost more than one at either width, a hundred less than half",
            "nats per token above the shuffle",
            **axis,
        ),
        "The small model and one twice as wide, in file order cut into rounds, compared with a full shuffle. Bars span "
        "ten seeds.",
        "Two panels, one per text: extra loss against rounds. Both widths' lines rise a little from 1 round to 10 and "
        "fall steeply to 100, still above zero.",
    )


def with_stars(text, experiment, reference, cost):
    """The differences of each arm with whether its comparison over all sources has a star."""
    stars = {
        it.question.arm: it.has_star
        for it in tested()
        if (it.text, it.question.experiment, it.question.reference) == (text, experiment, reference)
        and not it.question.sources
    }
    return {arm: (values, stars[arm]) for arm, values in cost.items()}


@figure("17.1")
def figure_1():
    rows = []
    for claim, by_text in order_again.outcomes().items():
        row = [claim.label]
        for text, again in by_text.items():
            row += [f"{finding(text, claim.label).mean:+.2f}", said_again(again)]
        rows.append(row)
    control, again = finding("corpus", "blend, few samples: unread source"), control_again()
    rows.append(
        [CONTROL, f"{control.mean:+.2f}", f"{again.mean:+.2f} \u00b1 {again.reach:.2f}", "", ""]
    )
    heads = [
        f"{text}: {which}" for text in ("corpus", "real") for which in ("first ten", "new ten")
    ]
    show_table(["compared as in the pictures", *heads], rows)


def said_again(found):
    """A mean of the new seeds, half of its interval, and its star."""
    return f"{found.mean:+.2f} \u00b1 {found.reach:.2f}{star(found)}"


def orders_of_section_2():
    """The arms of section 2 at the usual learning rate."""
    arms = at_the_end(runs_of("real", "buffers"))
    return [arm for arm in arms if not RATE.search(arm).group() and arm != "shuffled again"]


@rule(
    "17.1", "a list of names, each with a mean difference below -0.03; compare how these orders end"
)
def rule_1(found):
    return all(
        (arm in found) == (np.mean(more("real", "buffers", arm, "shuffled", "shakespeare")) < -0.03)
        for arm in orders_of_section_2()
    )


@rule(
    "17.2",
    "a comparison agrees with probability 2 / 2**n, and does not with 1 - 2 / 2**n; what if none of the eight agrees?",
)
def rule_2(found):
    return found == next(n for n in range(1, 99) if 1 - (1 - 2 / 2**n) ** 8 < 0.01)


@rule(
    "17.3",
    "the observed signs are one of the ways, and distances from zero have no sign: [5, 4, -1] sums to 8, and"
    " 4 of its 8 ways reach 8 or -8",
)
def rule_3(f):
    return np.allclose(
        [f([1, 2, 3, 4, 5]), f([-3, -4]), f([5, 4, -1]), f([3, -1])], [2 / 32, 2 / 4, 4 / 8, 1]
    )
