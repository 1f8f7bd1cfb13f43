"""The orders that `benchmarks.order_matters` compares: what stands at each position of each arm of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.small_model import Size
from nanoset_ref import NanotronOrder, StatelessOrder, plain
from nanoset_ref.orders import Order
from nanoset_ref.streaming.row_stream import Cursor, buffer_order

BUFFERS = (10, 100, 1_000, 10_000, 100_000)  # samples
ENDS = (20, 5, 1)  # percent of the steps
EPOCHS = (2, 4, 8, 16)
AGAIN = 1_000  # added to a seed, it is that of another shuffle
RATES = {  # what an arm's name says of its schedule
    "falling": "",
    "constant": ", constant rate",
    "cosine": ", cosine",
    "WSD": ", WSD",
}
PEAKS = {0.5: ", half the peak", 1.0: "", 2.0: ", twice the peak"}
OTHER_RATES = (("falling", 0.5), ("falling", 2.0), ("WSD", 1.0))  # of some of `buffers`
BATCHES = {8: ", batches of 8", 32: ", batches of 32"}  # of the same
LARGER = {64: 2.0, 128: 8**0.5, 256: 4.0}  # batches, and their peak by the root's rule
ROUNDS, MORE_ROUNDS = 10, 100
IN_ROUNDS = f"in file order, in {ROUNDS} rounds"
IN_MORE_ROUNDS = f"in file order, in {MORE_ROUNDS} rounds"
TOGETHER = "documents shuffled, rows together"
HEADLINE = (  # of `buffers`, for the medium size
    "shuffled",
    "in file order",
    "a buffer of 1,000",
    "one after another, each shuffled",
    "blended, each in file order",
    "shuffled again",
)
EXTREMES = HEADLINE[:2]  # for the sizes between "small" and "medium"
FEWER = ("the first few", "the next few", "few, spread out")  # samples of `few`
LITTLE = {1: ", 1% of the middle source", 5: ", 5% of the middle source"}  # of `few`

# instance numbers, file by file: what stands at each position
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Arm:
    """One order of an experiment: instance numbers int64 [N], with the schedule and peak of `small_model.train`.

    `batch` is in samples; None is the size's own.
    """

    numbers: Numbers
    schedule: str = "falling"
    peak: float = 1.0
    batch: int | None = None


def numbers_of(order: Order | NDArray[np.int64], lengths: Sequence[int]) -> Numbers:
    """The instance numbers of an order over files of these lengths, or of its pairs [N, 2]."""
    datasets, samples = order[:] if isinstance(order, Order) else order.T
    return (np.cumsum(lengths) - lengths)[datasets] + samples


def shuffled(
    lengths: Sequence[int], seed: int, positions: int | None = None
) -> Numbers:
    """The stateless order: a fresh shuffle for each epoch."""
    return numbers_of(
        StatelessOrder(lengths, None, positions or sum(lengths), seed), lengths
    )


def buffered(count: int, size: int, seed: int) -> Numbers:
    """Samples in file order through a shuffle buffer, like a `TokenStream`'s: collect `size`, hand them out, repeat."""
    firsts = range(0, count, size)
    windows = [
        first
        + np.array(buffer_order(min(size, count - first), seed, 0, Cursor(row=first)))
        for first in firsts
    ]
    return np.concatenate(windows)


def exchanged(count: int, size: int, seed: int) -> Numbers:
    """Samples in file order through a buffer that hands out a random one of its `size`, and puts the next in its place.

    At the end it hands out the rest, shuffled. This is the buffer of torch's Shuffler (torch 2.13).
    """
    random = np.random.default_rng(seed)
    held = np.arange(size)
    places = random.integers(size, size=count - size)
    handed = np.empty(count, dtype=np.int64)
    for position, place in enumerate(places):
        handed[position] = held[place]
        held[place] = size + position
    handed[count - size :] = random.permutation(held)
    return handed


def ending_shuffled(shuffle: Numbers, percent: int, batch: int) -> Numbers:
    """Samples in file order, but for the last steps of a run, which are those of this shuffle."""
    steps = len(shuffle) // batch
    begin = (steps - round(steps * percent / 100)) * batch
    return np.append(np.sort(shuffle[:begin]), shuffle[begin:])


def together(documents: Numbers, seed: int) -> Numbers:
    """Documents shuffled; the samples that begin in one are neighbors, in file order.

    Args:
        documents: the document [N] in which each sample begins.
    """
    names, places = np.unique(documents, return_inverse=True)
    turns = np.argsort(shuffled([len(names)], seed))  # of each document
    return np.argsort(turns[places], kind="stable")


def own_document_rows(documents: Numbers) -> float:
    """How many samples the document of a sample has: the mean over samples, so that long documents count more.

    Args:
        documents: the document [N] in which each sample begins.

    >>> own_document_rows(np.array([0, 1, 1, 1]))
    2.5
    """
    counts = np.unique(documents, return_counts=True)[1]
    return float((counts**2).sum() / counts.sum())


def buffers(
    lengths: Sequence[int], size: Size, seed: int, documents: Numbers | None = None
) -> dict[str, Arm]:
    """The arms of this experiment; documents are shuffled if those of the samples are known."""
    orders = whole_runs(lengths, seed) | through_buffers(sum(lengths), seed)
    if documents is not None:
        whole = together(documents, seed)
        orders[TOGETHER] = whole
        orders["documents shuffled, a buffer of 1,000"] = whole[
            buffered(len(whole), 1_000, seed)
        ]
    ends = {
        f"in file order, last {percent}% shuffled": ending_shuffled(
            orders["shuffled"], percent, size.batch
        )
        for percent in ENDS
    }
    orders |= ends
    arms = {name: Arm(numbers) for name, numbers in orders.items()}
    for name in ("in file order", "a buffer of 1,000", "shuffled", *ends):
        if name in orders:
            arms[name + RATES["constant"]] = Arm(orders[name], "constant")
    for name in ("in file order", "blended, each in file order", "shuffled"):
        for schedule, peak in OTHER_RATES:
            arm = Arm(orders[name], schedule, peak)
            arms[name + RATES[schedule] + PEAKS[peak]] = arm
    for name in ("in file order", "blended, each in file order", TOGETHER, "shuffled"):
        for batch, which in BATCHES.items():
            if name in orders:
                arms[name + which] = Arm(orders[name], batch=batch)
    return arms


def whole_runs(lengths: Sequence[int], seed: int) -> dict[str, Numbers]:
    """Orders of `buffers` that follow one rule from the first sample to the last."""
    count, first = sum(lengths), np.cumsum(lengths) - lengths
    sources = np.split(np.arange(count), first[1:])
    return {
        "in file order": np.arange(count),
        "in file order, sources reversed": np.concatenate(sources[::-1]),
        "shuffled": shuffled(lengths, seed),
        "shuffled again": shuffled(lengths, seed + AGAIN),
        "one after another, each shuffled": np.concatenate(
            [
                begin + shuffled([length], seed)
                for begin, length in zip(first, lengths, strict=True)
            ]
        ),
        "blended, each in file order": numbers_of(
            plain.greedy_blend(plain.normalize(lengths), count, np.array(lengths)),
            lengths,
        ),
    }


def through_buffers(count: int, seed: int) -> dict[str, Numbers]:
    useful = [size for size in BUFFERS if size < count]
    emptied = {f"a buffer of {size:,}": buffered(count, size, seed) for size in useful}
    return emptied | {
        f"a buffer of {size:,} that exchanges": exchanged(count, size, seed)
        for size in useful
    }


def run_length(lengths: Sequence[int], size: Size) -> int:
    """N: a multiple of all epochs and batches, for which nine tenths come from all sources but the last."""
    return min(size.samples, sum(lengths[:-1]) * 10 // 9) // 64 * 64


def repetition(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    count = run_length(lengths, size)
    fresh = shuffled(lengths, seed)[:count]
    again = fresh[shuffled([count], seed + AGAIN)]
    arms = {"fresh": Arm(fresh), "fresh, shuffled again": Arm(again)}
    for epochs in EPOCHS:
        part = [count // epochs]
        anew = fresh[shuffled(part, seed, count)]
        same = np.tile(anew[: part[0]], epochs)
        arms[f"{epochs} epochs, same order"] = Arm(same)
        arms[f"{epochs} epochs, shuffled anew"] = Arm(anew)
    for name in ("fresh", "4 epochs, same order", "16 epochs, same order"):
        arms[name + RATES["constant"]] = Arm(arms[name].numbers, "constant")
    return arms


def annealing(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    count = run_length(lengths, size)
    better = count // 10
    others, last = list(lengths[:-1]), sum(lengths[:-1])
    common = shuffled(others, seed)[: count - better]
    special = last + shuffled([lengths[-1]], seed)[:better]
    fifth = 2 * better

    def mixed(commons: Numbers, specials: Numbers, seed: int = seed) -> Numbers:
        return np.concatenate([commons, specials])[
            shuffled([len(commons), len(specials)], seed)
        ]

    rest = common[: count - fifth], common[count - fifth :]
    spread = mixed(common, special)
    end = np.append(rest[0], mixed(rest[1], special))
    begin = np.append(mixed(rest[1], special), rest[0])
    arms = {"spread out, shuffled again": Arm(mixed(common, special, seed + AGAIN))}
    for schedule, rate in RATES.items():
        for peak, height in PEAKS.items():
            arms["spread out" + rate + height] = Arm(spread, schedule, peak)
            arms["in the last fifth" + rate + height] = Arm(end, schedule, peak)
    for schedule in ("falling", "constant"):
        arms["in the first fifth" + RATES[schedule]] = Arm(begin, schedule)
    return arms


def blend(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    first = np.cumsum(lengths) - lengths
    count = run_length(lengths, size)
    large, small = count // 8, count // 16  # of the first and the last source

    def read(kind: type[Order], small: int, seed: int = seed) -> Numbers:
        datasets, samples = kind([large, small], [9, 1], count, seed)[:]
        return first[[0, -1]][datasets] + samples

    nanotron = read(NanotronOrder, small)
    few = len(np.unique(nanotron[nanotron >= first[-1]]))
    orders = {
        "nanotron": nanotron,
        "stateless": read(StatelessOrder, small),
        "stateless, shuffled again": read(StatelessOrder, small, seed + AGAIN),
        "stateless, as few samples": read(StatelessOrder, few),
    }
    return {name: Arm(numbers) for name, numbers in orders.items()}


def few(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    """Is it these few samples that cost something in `blend`, and why does a source that is not read get worse?

    All arms are stateless, and read the first source and the last one as often as `blend` does. Of the last source
    they read all of its samples, or as few as Nanotron's order: the first ones, the next ones, or some of all parts.
    Where there is a source in the middle, which `blend` never reads, two of them give 1% or 5% of the run to it.

    Written down before the first of these runs was trained:

    1. With new seeds and another shuffle, the first few cost the middle source something again (it was +0.11).
    2. If that comes from which samples they are, the next few and those of all parts cost it less than half as much.
    3. If it is transfer (fewer programs teach less of what arithmetic needs), the first few cost arithmetic something
       when a little of it is read, too: the interval lies above zero at 1% and at 5%.
    4. If it is overfitting (the model gets too sure, and nothing holds it where it reads nothing), they do not, and
       with none read the best of `small_model.TEMPERATURES` takes away more than half of the cost.
    5. On Shakespeare any few samples cost about the same, +0.24 by no more than a third.

    What came is in docs/order_tests.md.
    """
    first = np.cumsum(lengths) - lengths
    count = run_length(lengths, size)
    large, small = count // 8, count // 16  # as in `blend`
    cut = NanotronOrder([large, small], [9, 1], count, seed)[:]
    number = len(np.unique(cut[1][cut[0] == 1]))
    parts = {
        "all samples": np.arange(small),
        FEWER[0]: np.arange(number),
        FEWER[1]: number + np.arange(number),
        FEWER[2]: np.linspace(0, small - 1, number).astype(np.int64),
    }
    files = {name: [np.arange(large), first[-1] + part] for name, part in parts.items()}
    orders = {name: stateless_of(it, [9, 1], count, seed) for name, it in files.items()}
    if len(lengths) > 2:
        for percent, which in LITTLE.items():
            middle = first[1] + np.arange(count * percent // 100 + 1)
            shares = [90 - percent, 10, percent]
            for name in ("all samples", FEWER[0]):
                three = [*files[name], middle]
                orders[name + which] = stateless_of(three, shares, count, seed)
    return {name: Arm(numbers) for name, numbers in orders.items()}


def unread(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    """`few`, and all samples in another shuffle; models are measured on text that no arm reads, too.

    On the corpus the control of `few` fails: the first few programs cost arithmetic, which no arm reads, as much as
    they cost programs. `benchmarks.order_unread` asks it of real text. Its arms read WikiText and Shakespeare, and two
    texts that none of them reads are measured: a novel and C++.

    Written down before the first of these runs was trained:

    1. The first few cost Shakespeare +0.245 again, the next few +0.088, those of all parts +0.043: each within 0.06,
       in this order.
    2. Another shuffle moves neither unread text with a star.
    3. The control fails again, but less: the first few cost both unread texts something, C++ with a star, neither more
       than a third of what they cost Shakespeare.
    4. The cost to Shakespeare less that to an unread text lies above zero with its interval over seeds, for either
       one. If it does not for one of them, the cost of Shakespeare says nothing of Shakespeare.
    5. The best of `small_model.TEMPERATURES` takes away more than half of what an unread text loses.

    What came is in docs/order_tests.md.
    """
    again = few(lengths, size, seed + AGAIN)["all samples"]
    return few(lengths, size, seed) | {"all samples, shuffled again": again}


def stateless_of(
    files: Sequence[Numbers], shares: Sequence[int], count: int, seed: int
) -> Numbers:
    """The stateless order over files that have these instance numbers."""
    lengths = list(map(len, files))
    order = StatelessOrder(lengths, list(shares), count, seed)
    return np.concatenate(files)[numbers_of(order, lengths)]


def batches(
    lengths: Sequence[int], size: Size, seed: int, documents: Numbers | None = None
) -> dict[str, Arm]:
    """File order, shuffled documents and the shuffle in larger batches than `buffers` has.

    The learning rate grows with the square root of the batch, from the size's own.
    """
    known = buffers(lengths, size, seed, documents)
    return {
        f"{way}, batches of {batch}": Arm(known[way].numbers, peak=peak, batch=batch)
        for batch, peak in LARGER.items()
        for way in ("in file order", TOGETHER, "shuffled")
        if way in known
    }


def in_turn(lengths: Sequence[int], count: int) -> Numbers:
    """File order cut into so many parts of each source: the first parts, source by source, then the second ones.

    >>> in_turn([4, 2], 2).tolist()
    [0, 1, 4, 2, 3, 5]
    """
    first = np.cumsum(lengths) - lengths
    parts = [
        np.array_split(begin + np.arange(length), count)
        for begin, length in zip(first, lengths, strict=True)
    ]
    turns = [part for turn in zip(*parts, strict=True) for part in turn]
    return np.concatenate(turns)


def rounds(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    """File order in ten rounds."""
    return {IN_ROUNDS: Arm(in_turn(lengths, ROUNDS))}


def blocks(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    """File order in 1, 10 and 100 rounds, and the shuffle: do shorter blocks of one source cost less, at any width?

    It is run at two widths, "small" and "small, wide", on both texts. A block has some 213 steps of the corpus in one
    round, 21 in ten and 2 in a hundred; on real text it has 320, 32 and 3.

    Written down before the first of these runs was trained. Known were ten rounds of "small" on the corpus, which save
    nothing (+2.25 instead of +2.01 nats), and those of the long run of "narrow", which save 70%.

    1. File order in 1, 10 and 100 rounds costs something at both widths on both texts, with a star each.
    2. Ten rounds save less than a quarter of the cost of one, at both widths on the corpus. On real text they save
       more than a quarter at both.
    3. A hundred rounds cost less than ten, with a star, and save more than half of the cost of one: at both widths, on
       both texts.
    4. One round costs the wider model more, on both texts, as its shuffle ends lower. The shares that ten and a
       hundred rounds save differ between the widths by less than 20 points.

    What came is in docs/order_tests.md.
    """
    numbers = {
        "in file order": np.arange(sum(lengths)),
        IN_ROUNDS: in_turn(lengths, ROUNDS),
        IN_MORE_ROUNDS: in_turn(lengths, MORE_ROUNDS),
        "shuffled": shuffled(lengths, seed),
    }
    return {way: Arm(it) for way, it in numbers.items()}


def steady(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    """File order, file order in rounds and the shuffle, all at a constant rate.

    Under a falling rate the last of ten rounds is read at 0.19 to 0.10 of the peak, while the last source of one round
    begins at 0.4. So the rate may do what the length of the blocks seems to do. In the long run of "narrow", under the
    falling rate, ten rounds save 70% of what file order costs (+1.36 instead of +4.55 nats).

    Written down before the first of these runs was trained:

    1. One round costs more than at the falling rate, ten rounds, too. Ten rounds save less than 70%, some 45% to 65%.
    2. The length of the blocks has an effect of its own if they save at least 35%, half of that. If they save less,
       the rate is the main cause, and the page has to say so.
    3. The long run in ten rounds costs more than the short one in one round at this rate, by up to 1 nat.
    4. The small model says the same of the corpus: ten rounds save at either rate, less at the constant one.

    What came is in docs/order_tests.md.
    """
    numbers = {
        "in file order": np.arange(sum(lengths)),
        IN_ROUNDS: in_turn(lengths, ROUNDS),
        "shuffled": shuffled(lengths, seed),
    }
    constant = RATES["constant"]
    return {way + constant: Arm(it, "constant") for way, it in numbers.items()}


# of the first series; the others came later, and have results of their own
FIRST = ("buffers", "repetition", "annealing", "blend")
EXPERIMENTS = {
    "buffers": buffers,
    "repetition": repetition,
    "annealing": annealing,
    "blend": blend,
    "batches": batches,
    "rounds": rounds,
    "steady": steady,
    "few": few,
    "unread": unread,
    "blocks": blocks,
}
