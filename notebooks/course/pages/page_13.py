"""Notebook 13: its opening, what its folds and figures show, and the rules of its exercises."""

from functools import cache

import numpy as np

from course import show
from course.registry import answer, figure, rule
from figures import permutations as plots
from figures.cells import colour_of
from figures.moving import Box, Moving, State
from nanoset_ref import NanotronOrder, StatelessOrder, permute, plain, unpermute

KEY, ROWS, COLUMNS = 7, 25, 16


def steps(number, rows, columns, key=KEY):
    """How far each column (in even rounds) or row (in odd ones) slides: its hash."""
    lines, side = (columns, rows) if number % 2 == 0 else (rows, columns)
    return [plain.slide_by(line, number, key, side) for line in range(lines)]


def slide(board, number, key=KEY):
    """One round: in even rounds every column slides down by its hash, in odd ones every row to the right."""
    board = board.copy()
    for line, step in enumerate(steps(number, *board.shape, key)):
        lane = board[:, line] if number % 2 == 0 else board[line]
        lane[:] = np.roll(lane, step)
    return board


@cache
def boards():
    """The opening's board at the start and after each of ten rounds."""
    found = [np.arange(400).reshape(ROWS, COLUMNS)]
    for number in range(10):
        found.append(slide(found[-1], number))
    return found


def walk(place, coins_of_stage):
    """Where a place of a window of 64 goes: the second half of `plain.window_of`.

    Args:
        place: 0 to 63.
        coins_of_stage: 64 bits for each stage; a pair of places flips that of its lower place.
    """
    for stage in range(12):
        stride = 2 ** (stage % 6)
        lower = place & ~stride  # of the two places that are `stride` apart
        if coins_of_stage[stage] >> lower & 1:
            place ^= stride  # swap; otherwise stay
    return place


def opening():
    titles = {0: "start", 1: "1: columns slide", 2: "2: rows slide", 3: "3: columns", 4: "4: rows"}
    titles |= {6: "6: rows", 10: "10: rows"}
    stages = [(title, boards()[done]) for done, title in titles.items()]
    stages.append(
        ("NumPy's shuffle", np.random.RandomState(0).permutation(400).reshape(ROWS, COLUMNS))
    )
    show(
        plots.rounds(
            stages,
            [206, 207],
            "Ten rounds of sliding make a shuffle, and neighbors part",
            range(1, 5),
        ),
        "The color is the number. The dots are 206 and 207; a line is the slide of the round (shown up to round "
        "4). What leaves the board on one side re-enters on the other.",
        "Eight boards of 25 by 16 colored cells: in order, after 1, 2, 3, 4, 6 and 10 rounds in which "
        "columns and rows slide in turn, and NumPy's shuffle. After round 1 bands are left, after 10 the "
        "board looks as random as NumPy's.",
    )


@figure("13.1")
def figure_1():
    def state(done, key):
        board = np.arange(64).reshape(8, 8)
        for number in range(done):
            board = slide(board, number, key)
        if done == 10:
            assert all(board.flat[plain.permute(x, 64, key)] == x for x in range(64))
        arrows = steps(done - 1, 8, 8, key) if done else [0] * 8
        down = {
            column + 0.49: f"↓ {step}" for column, step in enumerate(arrows) if done % 2 and step
        }
        names = [
            f"row {row}" + f" → {step}" * (done > 0 and done % 2 == 0)
            for row, step in enumerate(arrows)
        ]
        looks = {27: "thick", 28: "thick"}
        rows = {
            name: [
                Box(column, x, colour_of(x // 8), 1, looks.get(x, ""))
                for column, x in enumerate(line)
            ]
            for name, line in zip(names, board.tolist())
        }
        places = [divmod(int(np.flatnonzero(board.flat == x)[0]), 8) for x in (27, 28)]
        where = " and ".join(
            f"{x} in row {row}, column {column}" for x, (row, column) in zip((27, 28), places)
        )
        return State(
            f"Key {key}, {f'after round {done}' if done else 'at the start'}: {where}", rows, down
        )

    show(
        Moving({"rounds": list(range(11)), "key": [6, 7, 8]}, state, (1, 7), gliding=True),
        "The color is the row in which a number begins.",
        "A board of 8 by 8 numbers after round 1 with key 7: every column has slid down, by the number at "
        "the arrow above it. Numbers 27 and 28 have thick frames.",
    )


@answer("13.1", 0, words=("10 hashes",))
def answer_1():
    n, key = 10**12, np.uint64(1234)
    place = permute(123_456_789_012, n, key)  # compiled; the same rule
    assert place == plain.permute(123_456_789_012, n, 1234)
    assert unpermute(place, n, key) == 123_456_789_012
    print(f"10 hashes, to place {place:,}")
    print("no other number was placed, and the way back is as short")


@answer("13.2", 1, words=("Only one",))
def answer_2(three_tests):
    shuffles = {
        "permute": np.array([plain.permute(x, 3000, key=5) for x in range(3000)]),
        "NumPy": np.random.RandomState(0).permutation(3000),
        "617x mod 3000": np.arange(3000) * 617 % 3000,
    }
    for name, places in shuffles.items():
        assert sorted(places.tolist()) == list(range(3000))  # permutations, all three
        print(
            f"{name:<13}",
            {
                test: "passed" if good else "REJECTED"
                for test, good in three_tests(places)[0].items()
            },
        )
    show(
        plots.clouds(list(shuffles.items()), "Only the third has lines"),
        "All three fill every place once, so all three are permutations. The third is not a shuffle.",
        "Three clouds of 3,000 dots, place against number. Two are noise without structure; in the third, "
        "all dots lie on a regular grid of slanted lines.",
    )
    usual = [three_tests(np.random.RandomState(seed).permutation(3000))[1] for seed in range(300)]
    print(f"spread of 300 NumPy shuffles: {min(usual):.2f} to {max(usual):.2f}")
    print(f"spread of 617x mod 3000:     {three_tests(shuffles['617x mod 3000'])[1]:.2f}")


@answer("13.3", 2, words=("only totals are rounded",))
def answer_3(tree):
    totals = [plain.share_out(64 * window, tree)[1] for window in range(11)]
    print("turns of arithmetic:", np.diff(totals).tolist())
    print("total so far:       ", totals[1:])
    print("30% would be:       ", [round(19.2 * window, 1) for window in range(1, 11)])
    assert plain.share_out(10**12, tree) == {0: 5 * 10**11, 1: 3 * 10**11, 2: 2 * 10**11}


@figure("13.2")
def figure_2(tree, shares, names):
    show(
        plots.sharing(tree, shares, names),
        "The first window: half of it goes to the stories; of the other half, two fifths go to the "
        "programs and three fifths to arithmetic.",
        "Three levels of boxes as wide as their items: 64 turns; below them stories, 32, and 32 others; below these "
        "programs, 13, and arithmetic, 19.",
    )


@figure("13.3")
def figure_3(shares, sources, samples):
    laid = [source for source in shares for _ in range(shares[source])]
    coins = [plain.derive(1234, 0, 0, stage) for stage in range(12)]
    assert [laid[walk(place, coins)] for place in range(64)] == sources
    readings = [sources[:k].count(source) for k, source in enumerate(sources)]
    stages = {"1 · laid side by side": (laid, [""] * 64), "2 · mixed by coins": (sources, readings)}
    stages["3 · the sample of each"] = sources, samples
    show(
        plots.windows(stages),
        "Window 0, row by row: blue stories, orange arithmetic, green programs. In the middle each turn has its "
        "number, counted by source; on the right is the sample that it reads.",
        "Three boards of 64 cells in three colors: sorted by source; mixed, each cell with a running number of its "
        "source; mixed, with sample numbers 0 to 4 for stories, 0 to 2 for arithmetic, 0 and 1 for programs.",
    )


@answer("13.4", 4, words=("off by up to 28",), within=2)
def answer_4():
    run, lengths_10, weights_10 = 8000, [200, 1800], [0.1, 0.9]
    chosen = {
        "dice": np.random.RandomState(0).random(run) >= 0.1,
        "Nanotron": NanotronOrder(lengths_10, weights_10, run)[:][0],
        "windows of 64": StatelessOrder(lengths_10, weights_10, run)[:][0],
    }
    off = {
        name: np.cumsum(datasets == 0) - 0.1 * np.arange(1, run + 1)
        for name, datasets in chosen.items()
    }
    for name, values in off.items():
        print(f"{name:<14} off by up to {np.abs(values).max():>2.0f}")
    small = StatelessOrder([700, 295, 5], [0.7, 0.295, 0.005], 400 * 1024)[:][0] == 2
    rows = small.reshape(400, 1024).sum(axis=1)
    mean, spread = 1024 * 0.005, (1024 * 0.005 * 0.995) ** 0.5
    print("rows of a source of 0.5% in a batch of 1,024:")
    print(f"dice           {mean:.1f} ± {spread:.1f}, and none in one batch of {0.995**-1024:.0f}")
    print(f"windows of 64  {rows.min()} or {rows.max()}, in each of 400 batches")
    ends = dict(zip(off, [(8100, 25), (8100, -6), (8100, 0)]))
    show(
        plots.deviations(
            off, ends, "Dice wander off, Nanotron comes back once an epoch, windows never leave"
        ),
        "Samples of the 10% source read so far, less a tenth of all positions. Dashed: Nanotron.",
        "Three curves over 8,000 positions: dice drift to about 28 samples too many, Nanotron swings between"
        " -7 and 12 and returns to 0 every 2,000 positions, windows stay within 4.",
    )


@answer("13.5", 5, words=("Five: the run reads",), within=1)
def answer_5():
    huge = StatelessOrder([10**12, 3 * 10**11], [1, 2], num_samples=2 * 10**12)
    dataset, sample = huge[1_999_999_999_999]
    positions = huge.positions(dataset, sample)
    assert 1_999_999_999_999 in positions
    print(f"sample {sample:,} of source {dataset} is read at")
    print("\n".join(f"{k:>21,}" for k in positions.tolist()))


@rule("13.1", "without weights an epoch reads everything once; how long is an epoch?")
def rule_1(k):
    return StatelessOrder([100, 1000, 10_000], None, num_samples=100_000).counts(k).tolist() == [
        100,
        1000,
        10_000,
    ]


@rule(
    "13.2",
    "what went left before `last`, less what went left before `first`: round each of these, not the window",
)
def rule_2(turns):
    return all(
        turns(k, k + size, 3, 10)
        == plain.share_out(k + size, (0, 1, 3, 10))[0] - plain.share_out(k, (0, 1, 3, 10))[0]
        for k in range(0, 999, 7)
        for size in (7, 64)
    )


@rule("13.3", "four readings of 100 samples are what share of 8,000 positions?")
def rule_3(weight):
    return (
        StatelessOrder([10_000, 100], [1 - weight, weight], 8000, max_repetitions=4).counts()[1]
        > 396
    )


@rule(
    "13.4",
    "the last slide is undone first: round 2 (number 1) shifted the row sideways by a hash of its row number, "
    "round 1 (number 0) the column down by a hash of its column number, as in permute with back=True",
)
def rule_4(undo):
    return [undo(place) for place in range(400)] == boards()[2].ravel().tolist()
