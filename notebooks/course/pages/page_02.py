"""Notebook 02: its opening, what its folds and figures show, and the rules of its exercises."""

import numpy as np

from course import show
from course.registry import answer, figure, rule
from figures import orders
from figures.draw import SOURCES as COLOURS
from figures.moving import Box, Moving, State
from nanoset_ref import NanotronOrder, StatelessOrder, plain

SOURCES = ["stories", "arithmetic", "programs"]
LENGTHS = [922, 1364, 1298]  # samples in each file; section 5 makes the files


def readings(order):
    datasets, samples = order[:]
    return {
        name: np.bincount(samples[datasets == d], minlength=length)
        for d, (name, length) in enumerate(zip(SOURCES, order.dataset_lengths))
    }


def opening():
    blend = readings(NanotronOrder(LENGTHS, [8, 1, 1], num_samples=3 * sum(LENGTHS)))
    show(
        orders.times_read(
            blend,
            "The shares are right, yet most of the arithmetic and of the programs is never read",
        ),
        "Three epochs of Nanotron's order with weights 8 : 1 : 1. The height is how often a sample is read.",
        "Three panels, one per source, along the samples of its file. Stories are read 9 or 12 times each; "
        "the first quarter of arithmetic and of programs is read 3 times, and the rest, 1,005 and 940 "
        "samples, is marked as never read",
    )


@answer("02.1", "saps", words=("largest share goes first",))
def answer_1():
    greedy = plain.greedy_blend(plain.normalize([5, 3, 2]), 10)
    print([SOURCES[dataset] for dataset in greedy[:4, 0]])
    show(
        orders.greedy_choice(dict(zip(SOURCES, [0.5, 0.3, 0.2])), greedy[:, 0]),
        "From position 1 on, every line rises by its share at each position; at a dot it drops by one sample.",
        "Three saw-tooth lines, one per source, over positions 0 to 9: each climbs by its share, and drops "
        "by one at the dots where that source gives a sample; the order of the dots is stories, arithmetic, "
        "programs, stories, and so on",
    )


@answer("02.2", (10, 20), words=("one epoch and copies it",))
def answer_2(tiny):
    first, second, third = tiny.dataset_sample_index.reshape(3, 10)
    assert tiny.order.positions(source=0, sample=3).tolist() == [0, 10, 20]
    print(
        "epoch 1 = epoch 2 = epoch 3:",
        np.array_equal(first, second) and np.array_equal(second, third),
    )
    runs = {"nanotron: the same epoch again": NanotronOrder([300], None, 900)[:][1]}
    runs["stateless: a new shuffle each time"] = StatelessOrder([300], None, 900)[:][1]
    show(
        orders.epochs(runs, samples_per_epoch=300, followed=156),
        "One file of 300 samples, three epochs. Each dot is a reading of one of its samples 140 to 172; the numbers "
        "count the positions from one reading of sample 156 to the next.",
        "Two clouds of dots, sample against position, over three epochs. On the left the cloud repeats, and "
        "the followed sample returns every 300 positions; on the right every epoch differs and the distances"
        " are unequal",
    )


@answer("02.3", 200, words=("Only 200",), within=20)
def answer_3():
    two = NanotronOrder([1000, 1000], [0.9, 0.1], num_samples=10_000)
    datasets, samples = two[:]
    second = samples[datasets == 1]
    print(
        len(second),
        "draws,",
        len(set(second.tolist())),
        "different samples, the last of them is",
        second.max(),
    )


@answer("02.4", 1000, words=("All 1,000",))
def answer_4():
    datasets, samples = StatelessOrder([1000, 1000], [0.9, 0.1], num_samples=10_000)[:]
    second = samples[datasets == 1]
    print(len(second), "draws,", len(set(second.tolist())), "different samples")


@answer("02.5", 2, words=("The two larger ones",))
def answer_5():
    equal = readings(NanotronOrder(LENGTHS, [1, 1, 1], num_samples=3 * sum(LENGTHS)))
    print("never read:", {name: int((counts == 0).sum()) for name, counts in equal.items()})


@figure("02.1")
def figure_1():
    def state(order, weight, epochs):
        found = readings(ORDERS[order](LENGTHS, [weight, 1, 1], num_samples=epochs * sum(LENGTHS)))
        rows = {}
        for name, counts in found.items():
            row = rows[f"{name} {counts.sum() / (epochs * sum(LENGTHS)):.1%}"] = []
            for times, width in list(zip(*np.unique(counts, return_counts=True)))[::-1]:
                left = sum(box.width for box in row)
                text = {0: f"never: {width:,}", 1: "once"}.get(times, f"{times} times")
                short = f"{times}\u00d7" if times > 1 and width > 50 else ""
                colour, look = (COLOURS[name][0], "") if times else ("", "lost")
                row.append(Box(left, text if width > 110 else short, colour, int(width), look))
        never = sum(int((counts == 0).sum()) for counts in found.values())
        says = (
            f"{never:,} of {sum(LENGTHS):,} samples are never read"
            if never
            else "Every sample is read"
        )
        return State(f"{says} ({order}, {weight} : 1 : 1, epochs: {epochs})", rows)

    ORDERS = {"Nanotron": NanotronOrder, "stateless": StatelessOrder}
    controls = {
        "order": [*ORDERS],
        "weight of stories": [1, 2, 4, 8, 16],
        "epochs": [1, 2, 3, 4, 10, 30, 100, 300],
    }
    show(
        Moving(controls, state, ("stateless", 8, 3), length=max(LENGTHS) + 4),
        "The samples of each file by how often they are read; at the left, the share that the file got. "
        "The Nanosets of 2024 read the beginning of a file and never its end; the stateless order reads samples from "
        "all over it.",
        "Three bars, as long as their files. With the stateless order, weights 8 : 1 : 1 and three epochs, "
        "stories are read 10 or 9 times, and most of arithmetic and programs once; 289 and 223 samples are dashed: "
        "never read.",
    )


@rule(
    "02.1",
    "an epoch has 4 + 6 positions, half of them for the first file, which begins again after sample 3",
)
def rule_1(found):
    return (
        list(found) == readings(NanotronOrder([4, 6], [1, 1], num_samples=10))["stories"].tolist()
    )


@rule(
    "02.2",
    "no file may be cut off: its share of the epoch's sum(LENGTHS) positions must be its length",
)
def rule_2(found):
    return all(
        (count == 1).all()
        for count in readings(NanotronOrder(LENGTHS, found, sum(LENGTHS))).values()
    )


@rule(
    "02.3",
    "after P positions file d has given w_d P samples, with weights that sum to 1: which file is the last one done?",
)
def rule_3(positions):
    def reads_everything(lengths, weights, size):
        return all(
            (count > 0).all()
            for count in readings(StatelessOrder(lengths, weights, int(size))).values()
        )

    return all(
        reads_everything(lengths, weights, 1.05 * positions(lengths, weights))
        and not reads_everything(lengths, weights, 0.95 * positions(lengths, weights))
        for lengths, weights in [
            (LENGTHS, [8, 1, 1]),
            ([1000, 1000], [0.9, 0.1]),
            ([800, 200, 500], [10, 50, 30]),
        ]
    )
