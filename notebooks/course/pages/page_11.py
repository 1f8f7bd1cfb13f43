"""Notebook 11: its opening, what its folds and figures show, and the rules of its exercises."""

import json
import shutil
import textwrap
import time
import warnings
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from course import DOCUMENTS, pieces, show
from course.registry import answer, figure, rule
from figures import streaming as plots
from figures.draw import COLOURS
from figures.draw import SOURCES as FILLS
from figures.moving import Box, Moving, State
from nanoset_ref import (
    Nanoset,
    TokenFile,
    build_nanoset_dataloader,
    load_tokenizer,
    plain,
    prepare_corpus,
)
from nanoset_ref.preprocess import preprocess
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader

ROOT = Path("data/11")


class Text(NamedTuple):
    """The embedded corpus: its files by source, its tokenizer, and the tokenizer's folder."""

    files: list
    tokenizer: Any
    folder: Path


@cache
def text():
    """The text that the opening streams."""
    corpus = prepare_corpus("data")
    return Text(list(corpus.domains.values()), load_tokenizer(corpus.tokenizer), corpus.tokenizer)


def rows_of_text(**options):
    """The rows of the whole embedded corpus, 128 + 1 tokens each, as bytes."""
    stream = TokenStream(text().files, text().tokenizer, 128, append_eod=True, **options)
    return (row["input_ids"].tobytes() for row in stream)


@cache
def numbers():
    """The number of each row in the text."""
    return {row: number for number, row in enumerate(rows_of_text())}


@cache
def lengths():
    """The rows of each source."""
    streams = [TokenStream(path, text().tokenizer, 128, append_eod=True) for path in text().files]
    return [sum(1 for _ in stream) for stream in streams]


@cache
def sources():
    """The source of each row of the text."""
    return np.searchsorted(np.cumsum(lengths()[:2]), range(len(numbers())), "right")


@cache
def order(size):
    """Which row of the text a stream with a buffer of `size` rows gives at each position."""
    return np.array([numbers()[row] for row in rows_of_text(shuffle_buffer=size)])


def timed(files):
    """Seconds of a pass over the text, of encoding it into a token file, and of a pass over that file."""
    inputs, options = list(map(str, files)), {"append_eod": True, "backend": "hf"}
    stream = TokenStream(inputs, text().tokenizer, 512, micro_batch_size=8, **options)
    streaming, batches = seconds(TokenStreamDataLoader(stream))
    preparing = preprocess(inputs, ROOT / "all", text().folder, progress=False, **options).seconds
    file = TokenFile(ROOT / "all_input_ids.npy")
    nanoset = Nanoset(file, None, 512, file.num_samples(512))
    reading, same = min(
        seconds(build_nanoset_dataloader(nanoset, micro_batch_size=8)) for _ in range(3)
    )
    assert batches == same
    return streaming, preparing, reading


def seconds(loader):
    """How long a pass takes, and how many batches it has."""
    start = time.perf_counter()
    batches = sum(1 for _ in loader)
    return time.perf_counter() - start, batches


def opening():
    warnings.filterwarnings(
        "ignore", "This DataLoader will create"
    )  # more workers than cores, on purpose
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    source = sources()
    assert np.argmax(source[order(64)] == 1) == 896
    assert not (source[order(64)][960:] == 0).any()
    strips = {"no buffer": 0, "a buffer of 64 rows": 64, "a buffer of all rows": len(numbers())}
    mixed = {name: source[order(size)] for name, size in strips.items()}
    show(
        plots.mixtures(mixed, 32, "A buffer of 64 rows mixes only at the borders"),
        "3,585 rows in the order in which a model reads them; every column is a batch of 32. A buffer of 64 "
        "rows changes two columns at each border.",
        "Three strips of 3,585 rows colored by source. Without a buffer and with one of 64 rows they show "
        "stories, then arithmetic, then programs, with sharp borders. With a buffer of all rows the three "
        "colors are mixed evenly.",
    )


@answer("11.1", 10, words=("10 rows cover",))
def answer_1(stream):
    rows = [row["input_ids"].tolist() for row in stream]
    print(
        len(rows),
        "rows cover",
        len(rows) * 8 + 1,
        "tokens;",
        87 - (len(rows) * 8 + 1),
        "are left over",
    )
    assert len(rows) == (87 - 1) // 8
    sources = list(np.repeat(list(DOCUMENTS), [42, 26, 19]))
    cells = [list(zip(pieces(row), sources[8 * k : 8 * k + 9])) for k, row in enumerate(rows)]
    show(
        plots.packed_rows(cells, "Documents run on from row to row, and from file to file"),
        "The rows of the stream. Two cells with thick frames, at the end of a row and at the start of the "
        "next, are the same token.",
        "Ten rows of nine tokens. Row 0 reads The lantern was old . EOS Nora and the, and row 1 begins with "
        "the again. Row 5 passes from the stories to arithmetic, row 8 to programs.",
    )


@answer("11.2", (5, 7), words=("then 5 and 7",))
def answer_2(row_numbers, loader):
    for rank in range(2):
        print(f"rank {rank}:", row_numbers(loader(rank, dp_size=2, micro_batch_size=2, workers=2)))


@answer("11.3", 49, words=("49 batches of one source",), within=8)
def answer_3():
    for size in (16, 64, 256, 1024, len(numbers())):
        rows = order(size)
        travelled = np.abs(rows - np.arange(len(rows)))
        assert travelled.max() < size
        batches = sources()[rows][: len(rows) // 32 * 32].reshape(-1, 32)
        alike = int((batches == batches[:, :1]).all(axis=1).sum())
        print(
            f"M = {size:>5,}:   farthest {travelled.max():>5,}   mean {travelled.mean():>5,.0f}",
            end="   ",
        )
        print(f"{alike:>3} batches of one source")


@figure("11.1")
def figure_1():
    def state(size, batch):
        positions = np.arange(32 * batch, 32 * batch + 32)
        drawn, total = order(size)[positions], len(numbers())
        assert (drawn // size == positions // size).all()  # from the filling that the buffer holds
        fill = [FILLS[name][0] for name in DOCUMENTS]
        begins = [0, *np.cumsum(lengths()[:2]).tolist()]
        rows = {
            "the text": [
                Box(begins[s], name, fill[s], lengths()[s]) for s, name in enumerate(DOCUMENTS)
            ]
        }
        fillings = [number * size for number in dict.fromkeys((positions // size).tolist())]
        rows["in the buffer"] = [
            Box(begin, "", COLOURS[4], min(size, total - begin)) for begin in fillings
        ]
        near = dict.fromkeys((int(row) // 32 * 32, int(sources()[row])) for row in sorted(drawn))
        rows["drawn from it"] = [
            Box(left, "", fill[source], min(32, total - left)) for left, source in near
        ]
        rows["the batch"] = [
            Box(k * total / 32, "", fill[sources()[row]], total / 32) for k, row in enumerate(drawn)
        ]
        held = ", ".join(
            f"{(sources()[drawn] == s).sum()} {name}"
            for s, name in enumerate(DOCUMENTS)
            if s in sources()[drawn]
        )
        travelled = np.abs(order(size) - np.arange(total))
        far = (
            f"Rows travel {travelled.mean():,.0f} positions on average, {travelled.max():,} at most"
        )
        return State(f"Batch {batch}, M = {size:,}: {held}. {far}", rows)

    controls = {
        "rows in the buffer, M": [16, 64, 256, 512, 1024, 2048, len(numbers())],
        "batch": list(range(0, 112, 8)),
    }
    show(
        Moving(controls, state, (1024, 56)),
        "Where in the text the rows of a batch come from: from what the buffer holds at that time, and nowhere else.",
        "Four rows as long as the text: its three sources; what a buffer of 1,024 rows holds at batch 56, "
        "all of it arithmetic; the places in it from which the rows of the batch were drawn; and the 32 rows"
        " of the batch.",
    )


@answer("11.4", "place", words=("can be computed again",))
def answer_4(saved):
    state = {name: value for name, value in saved.items() if name != "plan"}
    print(textwrap.fill(str(state), 98))
    print(len(json.dumps(state)), "bytes, whatever the buffer holds")


@figure("11.2")
def figure_2(before, after, whole):
    source = list(np.repeat(list(DOCUMENTS), [42, 26, 19]))
    drawn = {"first job": dict(enumerate(before)) | dict.fromkeys(range(5, 9))}
    drawn |= {
        f"restarted, rank {rank}": {5 + 2 * k + rank: row for k, row in enumerate(after[rank])}
        for rank in range(2)
    }
    cell = {None: ("read ahead", "")} | {row: (f"row {row}", source[8 * row]) for row in whole}
    show(
        plots.handed_over(
            {name: {k: cell[row] for k, row in places.items()} for name, places in drawn.items()},
            "One rank dies, two ranks continue the same order",
        ),
        "Rows by position in the run. Gray: what two workers had ready, two batches each, when the job died.",
        f"Positions 0 to 8. The first job delivers rows {str(before)[1:-1]} at positions 0 to 4 and had read "
        "ahead what stands at 5 to 8. Restarted, rank 0 delivers positions 5 and 7, rank 1 positions 6 and 8.",
    )


@figure("11.3")
def figure_3():
    def shards_of(worker, workers, shards, micro_batch_size=2, batches=64):
        """The shards that a worker's rows fall on: batches go to the workers in turn, rows to the shards."""
        own = range(worker, batches, workers)
        return {
            (batch * micro_batch_size + row) % shards
            for batch in own
            for row in range(micro_batch_size)
        }

    panels, times = {}, {4: "four times", 2: "twice", 1: "once"}
    for shards in (1, 4, 8):
        matrix = [
            [block % shards in shards_of(worker, 4, shards) for block in range(16)]
            for worker in range(4)
        ]
        panels[f"shards = {shards}: {times[sum(map(sum, matrix)) // 16]}"] = matrix
    show(
        plots.encoders(panels, "With enough shards every block is encoded once"),
        "Which of the four workers of one rank encodes which block of the text, for batches of two; above each "
        "panel, how often the text is encoded.",
        "Three grids of four workers and sixteen blocks. With one shard all cells are filled, with four shards "
        "half of them, with eight shards a quarter: each block by one worker.",
    )


@answer("11.5", 64, words=("The text needs at least as many blocks",))
def answer_5():
    def encodes_once(shards, ranks=4, workers=2, size=8):
        """Position p is row (p // ranks) of rank (p % ranks), and batches of `size` rows go to the workers in turn."""
        readers = {}
        for position in range(4 * ranks * workers * size):
            reader = position % ranks, position // ranks // size % workers
            readers.setdefault(position % shards, set()).add(reader)
        return all(len(own) == 1 for own in readers.values())

    print(next(shards for shards in range(1, 1000) if encodes_once(shards)))


@answer("11.6", 2, words=("Two. Preprocessing costs",), within=1)
def answer_6(preparing, reading, streaming):
    print("passes over the text   1  2  3")
    print("encoded by the stream  1  2  3 times")
    print("encoded for the file   1  1  1 times, and written once")
    print(
        "one pass over the file takes less than a third of one over the text:",
        3 * reading < streaming,
    )


@rule("11.1", "each row uses up nine tokens; none is shared")
def rule_1(n):
    return n == plain.count_samples(87, 8, disjoint=True)


@rule("11.2", "it counts the rows of all ranks together")
def rule_2(consumed, loader, row_numbers):
    rank = loader(dp_rank=1, dp_size=2, micro_batch_size=2)
    row_numbers(islice(rank, 2))
    return consumed == rank.state_dict()["consumed_train_samples"]


@rule(
    "11.3", "each row once, also the last M; none M or more positions early; some more than M late"
)
def rule_3(exchange):
    rows = list(exchange(iter(range(len(numbers()))), 64, np.random.default_rng(1234)))
    if sorted(rows) != sorted(order(64)):
        return False
    places = np.arange(len(rows))
    is_never_early = max(rows - places) < 64
    is_sometimes_late = max(places - rows) > max(places - order(64))
    return is_never_early and is_sometimes_late
