"""Notebook 18: its opening, what its folds and figures show, and the rules of its exercises."""

import hashlib
import textwrap

from course import show
from course.registry import answer, rule
from figures import laws as plots
from figures import resume
from figures.draw import COLOURS
from nanoset_ref import laws

EPOCH = [3, 14, 6, 8, 1, 10, 0, 7, 4, 16, 15, 17, 13, 2, 12, 5, 9, 11]
BEFORE, AFTER = EPOCH[:6], EPOCH[9:]  # what the loader of section 1 reads


def bars(rows, colour):
    return [(EPOCH.index(row), str(row), colour, 1) for row in rows]


def rows_of(batches):
    """Batches as lists of row numbers."""
    return [[int(row) for row in rows] for rows in batches]


def uneven_sizes(loader, ranks, largest=48, batch_size=4):
    """The numbers of rows with which the ranks of a loader have unequal numbers of batches."""

    def counts(rows):
        return {len(list(loader(rows, rank, ranks, 0, batch_size))) for rank in range(ranks)}

    return [rows for rows in range(1, largest + 1) if len(counts(rows)) > 1]


def strip(finding):
    """The rows that a run should read, in order, and those of them that are never read."""
    steps = max(map(len, finding.expected))
    order = [
        row
        for step in range(steps)
        for rank in finding.expected
        for row in sum(rank[step : step + 1], ())
    ]
    return order, {*order} - {row for rank in finding.actual for rows in rank for row in rows}


def opening():
    before, lost, after = EPOCH[:9], EPOCH[9:12], EPOCH[12:]
    lives = {
        "one epoch": bars(EPOCH, COLOURS[5]),
        "before the stop": bars(before, COLOURS[0]),
        "after it": bars(after, COLOURS[0]),
        "never read": bars(lost, ""),
    }
    show(
        resume.lanes(
            lives, {len(before): "stopped"}, "Stopped and resumed: some rows are never read"
        ),
        "An epoch of 18 rows in batches of three, from left to right. The job is stopped after three batches "
        "and resumed. A row is a sample; the numbers say where it stands in the file.",
        "Four lines of numbered cells. An epoch has 18 rows. Before the stop the first nine are read, after "
        "it the last six. The three in between, rows 16, 15 and 17, are dashed: never read.",
    )


@answer("18.1", 9, words=("9. When the second batch",))
def answer_1(Loader, read):
    loader = Loader(18, 0, 1, seed=7, batch_size=3)
    batches = iter(loader)
    assert [*next(batches), *next(batches)] == BEFORE
    print("delivered: 6 | the state says", loader.done)
    assert read(Loader(18, 0, 1, seed=7, batch_size=3, done=loader.done)) == AFTER


@answer("18.2", 3, words=("Three, and you knew of one",))
def answer_2(report):
    assert report.broken == ["ranks", "epochs", "resume"]
    laws_and_epochs = str(report).partition("\nranks: ")[0].splitlines()  # the others are drawn
    for line in laws_and_epochs:
        if line and "not claimed" not in line:
            print(
                *textwrap.wrap(line, 90, subsequent_indent=" " * 22, drop_whitespace=False) or [""],
                sep="\n",
            )
    stopped, uneven = (report.outcomes[law].finding for law in ("resume", "ranks"))
    tables = {
        "resume": {
            "never stopped": rows_of(stopped.expected[0]),
            "stopped": rows_of(stopped.actual[0]),
        },
        "ranks": {f"rank {rank}": rows_of(batches) for rank, batches in enumerate(uneven.actual)},
    }
    show(
        plots.counterexamples(
            tables, "Of two rows one is lost; with only one, rank 0 waits forever"
        ),
        "Left: two rows on one rank, stopped after one step, step 0, and resumed; row 1 is lost. Right: one "
        "row on two ranks; rank 1 has no batch, and rank 0 waits for it.",
        "Two tables, rank by step. Left: the run that never stopped reads row 0, then row 1; the stopped one"
        " reads row 0, then a dashed cell says no batch. Right: rank 0 reads row 0, rank 1 has a dashed "
        "cell, no batch.",
    )


@answer("18.3", 0, words=("None. This loader hangs",))
def answer_3(Loader):
    ROUND = range(8, 49, 8)
    uneven_rows = {f"{ranks} ranks": uneven_sizes(Loader, ranks) for ranks in (2, 3, 4, 8)}
    assert sum(map(len, uneven_rows.values())) == 37
    assert not any({*ROUND} & {*broken} for broken in uneven_rows.values())
    show(
        plots.sizes(
            uneven_rows, 48, ROUND, "37 of 192 cases hang, and none of the 24 with a round size"
        ),
        "Red: the ranks have unequal numbers of batches of 4. Framed: sizes that a test would choose.",
        "Four lines of 48 cells for 2, 3, 4 and 8 ranks. Red cells stand just behind multiples of 8, 12, 16 "
        "and 32. The framed columns 8, 16, 24, 32, 40 and 48 hold no red cell.",
    )


@answer("18.4", 12, words=("nothing is left to lose",))
def answer_4(breaks, trail):
    strips = [
        (f"{case.rows} rows, {case.world_size} \u00d7 {case.batch_size}", *strip(breaks(case)))
        for case in trail
    ]
    assert [len(strips[place][2]) for place in (0, -1)] == [12, 1]
    assert trail[-1].rows == 2
    show(
        plots.shrinking(strips, "53 rows shrink to two, and the bug stays"),
        "One line for each smaller case that still breaks the law. A cell is a row, in the order in which it"
        " should be read; dashed ones are never read. At the left: rows, and ranks \u00d7 batch size.",
        "Lines of cells, each shorter than the one above. Of 53 rows 12 are lost as drawn; with one rank and"
        " batches of one it is a single row; then the rows shrink to two, and one of the two is lost.",
    )


@answer("18.5", "hang", words=("never ends",))
def answer_5(make_padded):
    finding = laws.judge(make_padded, "ranks", laws.Case(rows=1, world_size=2))
    print(str(finding).partition(", in make_padded")[0])  # and the line that ran after a second


@rule("18.1", "the state does not know of the batch that was delivered last")
def rule_1(kind):
    return hashlib.sha256(kind.encode()).hexdigest().startswith("c43fb05de4d8a9a0")


@rule("18.2", "how many rows are left after the last step that is full on all ranks?")
def rule_2(hangs, Loader):
    sizes = [(ranks, batch_size) for ranks in (1, 2, 3, 4, 8) for batch_size in (1, 2, 3, 4)]
    found = {size: uneven_sizes(Loader, size[0], 60, size[1]) for size in sizes}
    return all(
        [rows for rows in range(1, 61) if hangs(rows, *size)] == found[size] for size in sizes
    )


@rule(
    "18.3",
    "three things change as it runs: the place in the source, the buffer, random.bit_generator.state",
)
def rule_3(loader):
    def make(data, *, seed, state=None, **place):
        made = loader(data, seed)
        if state is not None:
            made.load_state_dict(state)
        return made

    options = {
        "claims": "resume",
        "max_ranks": 1,
        "max_batch_size": 1,
        "max_rows": 30,
        "examples": 15,
    }
    return not laws.check(make, state_of=lambda made: made.state_dict(), **options).broken


@rule(
    "18.4",
    "five claims; which rows are left out (tail=)? does make pass on all that it gets, state too?",
)
def rule_4(adapter):
    stopped_once = laws.Case(rows=9, stops=(2,))
    return (
        {*adapter.claims.split()} >= {"once", "ranks", "seed", "epochs", "resume"}
        and laws.check(adapter, examples=15, budget=600).broken == ["resume"]
        and laws.judge(adapter, "resume", stopped_once) is None
    )
