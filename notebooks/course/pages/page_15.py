"""Notebook 15: its opening, what its folds and figures show, and the rules of its exercises."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from course import show
from course.pictures import show_table
from course.registry import answer, figure, rule
from figures import reading as plots
from figures.draw import two_digits

NAMES = {
    "nanotron": "Nanotron",
    "megatron": "Megatron-Core",
    "olmo": "OLMo-core",
    "mosaicml": "MosaicML",
}
FROM_DISK = {  # the benchmark's names: the loader past the page cache, and through it
    "nanoset_ref": "nanoset_ref, O_DIRECT",
    "nanoset_ref, 2 workers": "nanoset_ref, O_DIRECT, 2 workers",
    "nanoset_ref through the page cache": "nanoset_ref, announced rows",
    "nanoset_ref through the page cache, 2 workers": "nanoset_ref, announced rows, 2 workers",
    "device": "the disk",
}
SLOW = {  # seconds of the processor for a batch, and until a shard is there
    "a new shard every 20 batches": (0.001, 3.0),
    "tokenizes in each batch": (0.15, 0.0),
    "reads when asked": (0.05, 0.0),
}
RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"


def consumed(parameters, gpus, peak=989e12, utilization=0.4):
    """Tokens per second: the operations that H100s do (bfloat16), over 6 for each parameter and token."""
    return gpus * utilization * peak / (6 * parameters)


def under_way(requests, seconds, row=2048):
    """Tokens per second of storage that answers after so many seconds, with so many requests at a time."""
    return requests * row / seconds


@cache
def results(name):
    """A committed result of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


@cache
def rates():
    """By sequence length and reader, million tokens per second from memory, round by round."""
    measured = results("reading")["million_tokens_per_second"]
    return {
        length: {name: clocks["wall"] for name, clocks in candidates.items()}
        for length, candidates in measured.items()
    }


@cache
def served():
    """By reader, tokens per second from memory, in rows of 2,048."""
    return {name: 1e6 * np.median(rounds) for name, rounds in rates()["2048"].items()}


@cache
def rates_from_disk():
    """By sequence length and reader, million tokens per second from a disk."""
    return {
        length: {
            FROM_DISK.get(name, name): int(length) / 1e6 * np.array(found["samples_per_second"])
            for name, found in candidates.items()
        }
        for length, candidates in results("cold")["by_read_ahead_kb"]["128"].items()
    }


def named(reader):
    """A reader of the results as its makers write it: "olmo, 2 workers" is "OLMo-core, 2 workers"."""
    system, comma, rest = reader.partition(",")
    return NAMES.get(system, system) + comma + rest


def only_long_rows(measured):
    """The readers of rows of 2,048 tokens: one configuration of each."""
    without = ("nanoset_ref, stateless order", "nanoset_ref, two files", "nanoset_ref, a thread")
    return {
        "2048": {
            named(name): rounds for name, rounds in measured["2048"].items() if name not in without
        }
    }


def opening():
    memory = served()
    disk = {name: 1e6 * np.median(rounds) for name, rounds in rates_from_disk()["2048"].items()}
    by_reader = results("bucket")["by_latency"]["50 ms"]["2048"]
    far = {name: 1e6 * found["million_tokens_per_second"] for name, found in by_reader.items()}
    models = {"8B parameters": 8e9, "1B": 1e9, "124M": 124e6}
    readers = ("Nanotron", "litdata", "nanoset_ref")
    rungs = {
        "eight GPUs consume": [
            (name, consumed(size, 8), "consumed") for name, size in models.items()
        ],
        "memory delivers": [(name, memory[name.lower()], "measured") for name in readers],
        "a disk": [(name, disk[name.lower()], "measured") for name in ("Nanotron", "litdata")],
        "a bucket": [
            ("1 request at a time", under_way(1, 0.05), "computed"),
            ("nanoset_ref", far["nanoset_ref"], "measured"),
        ],
    }
    rungs["memory delivers"].append(("memcpy", memory["memcpy"], "limit"))
    rungs["a disk"] += [
        ("nanoset_ref", disk["nanoset_ref, O_DIRECT"], "measured"),
        ("the disk", disk["the disk"], "limit"),
    ]
    rungs["a bucket"].append(("obstore alone", far["the limit"], "limit"))
    show(
        plots.hierarchy(
            rungs, "From memory all are fast enough; a disk or a bucket needs many requests at once"
        ),
        "Rows of 2,048 tokens at random places: what one reading process delivers (full dots: measured; open: "
        "arithmetic), beside what eight H100s consume (gray). Bars: what memory, disk and client deliver without a "
        "reader. Orange: this package.",
        "Four lines of marks on a logarithmic axis of tokens per second: what eight GPUs consume, what memory,"
        " a disk and a bucket deliver. Readers from memory lie right of what is consumed; Nanotron from a disk lies"
        " at its edge, a bucket with one request at a time left of it; nanoset_ref lies near each "
        "yardstick.",
    )


@answer("15.1", 104, words=("104 requests",), within=15)
def answer_1():
    needed = next(
        requests for requests in range(1, 10_000) if under_way(requests, 0.05) >= consumed(124e6, 8)
    )
    print(
        f"{consumed(124e6, 8):,.0f} tokens a second: {needed} requests; one at a time feeds {under_way(1, 0.05):,.0f}"
    )


@answer("15.2", "mapping", words=("gives the file an address",))
def answer_2():
    measured = results("reading")["microseconds_per_batch"]["2048"]
    batch_steps = {"Nanotron, 2024": measured["nanotron"], "nanoset_ref": measured["nanoset_ref"]}
    show(
        plots.steps(batch_steps, "Nanotron's time goes into opening the file, not into reading it"),
        "What each step of a batch takes, timed one by one (so they add up to more than a whole batch "
        "takes), in microseconds to two digits. Two cores of an Intel Xeon.",
        "Horizontal bars. Of Nanotron's six steps, opening and mapping the file is by far the longest; the "
        "four steps of nanoset_ref are hardly visible beside them, the longest is copying the tokens.",
    )


@answer("15.3", 0.2, words=("five to six times slower",), within=0.05)
def answer_3():
    by_reader = served()
    for name in ("nanotron", "nanoset_ref"):
        print(
            f"{named(name):<12} 2 workers: {by_reader[f'{name}, 2 workers'] / by_reader[name]:.2f} x; ",
            end="",
        )
        print(f"{by_reader[name] / by_reader['memcpy']:.0%} of memcpy without")
    show(
        plots.rates(
            only_long_rows(rates()),
            "memcpy",
            "In memory, on two cores, worker processes cost more than they bring",
        ),
        "Rows of 2,048 tokens. Full dots: without workers, open dots: with two; medians of 4 rounds, short lines span "
        "their middle half. Dashed: **memcpy** of the delivered bytes, a yardstick that **gather alone** beats, "
        "because it reads 2 bytes of each id and memcpy reads 4. **First touch** visits nearly every row for the first "
        "time. Intel Xeon, two cores.",
        "A row per reader on a logarithmic axis. nanoset_ref lies at two thirds of the dashed line of copying memory, "
        "gather alone right of that line, the others at a sixteenth of it or less. With two workers all are slower.",
    )


@answer("15.4", 31, words=("Nanotron 31",), within=8)
def answer_4():
    sent = {
        name: np.median(found["amplification"])
        for name, found in results("cold")["by_read_ahead_kb"]["128"]["2048"].items()
        if "amplification" in found
    }
    rows = {name: np.median(rate) / 2048e-6 for name, rate in rates_from_disk()["2048"].items()}
    map_alone = rows["a kept map"]
    assert f"{1000 / map_alone:.2f}" == "0.35"  # ms, as section 4 says
    print(
        f"Nanotron {sent['nanotron']:.0f}, nanoset_ref {sent['nanoset_ref']:.0f} (a row lies in two pages)"
    )
    print(f"a kept map: {two_digits(map_alone)} rows a second; ", end="")
    print(
        f"announced rows: {rows['nanoset_ref, announced rows'] / map_alone:.0f} times as many; ",
        end="",
    )
    print(f"O_DIRECT: {rows['nanoset_ref, O_DIRECT'] / map_alone:.0f} times")
    show(
        plots.rates(
            only_long_rows(rates_from_disk()),
            "the disk",
            "From a disk, rows that are asked for early come many times faster",
        ),
        "Dots and lines as above, 5 rounds; each candidate begins with an empty page cache. **Announced rows** come "
        "through the page cache, **O_DIRECT** past it; **a kept map** asks for a row when it needs it. Dashed: "
        "**fio**, from the same disk in blocks of the same size. AMD EPYC, two cores.",
        "A row per reader on a logarithmic axis. nanoset_ref past the page cache lies at two thirds of the dashed "
        "line of the disk, with two workers on it; with announced rows at a third, with two workers at three "
        "fifths; litdata at a quarter, the others at a sixteenth or less.",
    )


@answer("15.5", 13, words=("| 13% |",), within=6)
def answer_5():
    bucket = results("bucket")
    rates = []
    assert bucket["command"].endswith("--rounds 2 --seconds 3")
    for latency, lengths in bucket["by_latency"].items():
        ours, limit = (
            lengths["2048"][name]["million_tokens_per_second"]
            for name in ("nanoset_ref", "the limit")
        )
        rates.append([f"answers after {latency}", *map(two_digits, (ours, limit))])
        assert 0.0015 < bucket["training"][latency]["bucket"]["share_waiting"] < 0.0025
    show_table(
        ["million tokens/s (2 rounds of 3 s, AMD EPYC, two cores)", "nanoset_ref", "obstore alone"],
        rates,
    )
    readers = []
    for name in ("nanoset_ref", "litdata", "mosaicml"):
        found = results("streamers")["streamers"][name]
        share = found["fetched_per_byte_first_256_batches"] / 16
        speed = two_digits(found["million_tokens_per_second"])
        readers.append([named(name), f"{share:.0%}", f"{found['places']}", speed])
    show_table(
        [
            "answers after 20 ms (one run, the same machine)",
            "fetched after a sixteenth",
            "parts of 256 that its first 256 rows touch (full shuffle: 162)",
            "million tokens/s over an epoch",
        ],
        readers,
    )


WAYS = {  # of `benchmarks.memory`
    "a kept map": "A map, kept",
    "a kept map without read-ahead": "the same, read-ahead forbidden",
    "rebuilt": "Mapped per sample",
    "preadv": "A system call per row",
    "nanoset_ref through the page cache": "nanoset_ref, page cache",
    "nanoset_ref": "nanoset_ref, O_DIRECT",
}


@answer("15.6", "grows", words=("takes clean pages back",))
def answer_6():
    memory = results("memory")
    lines, speed = {}, {}
    for way, name in WAYS.items():
        points = memory["ways"][way]
        seconds, own, mapped = (
            [point[key] for point in points] for key in ("seconds", "anonymous_mib", "file_mib")
        )
        assert own[-1] - own[1] < 16
        speed[way] = points[-1]["rows"] / points[-1]["cpu_seconds"]
        if way not in ("a kept map without read-ahead", "nanoset_ref"):
            lines[name] = {
                "page cache included": (seconds, np.add(own, mapped)),
                "anonymous": (seconds, own),
            }
    show(
        plots.memory(
            lines,
            memory["allowed_mib"],
            "Mapped pages grow until the kernel takes them back; the process's own memory does not",
        ),
        "Resident memory while the file (sparse, so no disk is waited for) is read in four ways, of the six listed "
        "below. **nanoset_ref**, told to use the page cache, reads a place first with a system call, then through a "
        "map. One run on a shared machine (two cores of an AMD EPYC), so rates are per second of processor "
        "time.",
        "Four panels over 20 seconds. With a kept map, memory grows within two seconds and then stays below what is "
        "allowed; nanoset_ref grows more slowly to just below it; a map per sample and system calls keep hardly "
        "anything; the anonymous part is flat in all four.",
    )
    for way, rows in speed.items():
        print(f"{WAYS[way]:<30}{two_digits(rows):>8} rows per second of processor time")


class Simulated:
    """A loader of 200 batches on a clock of its own, which only `spend` moves.

    Args:
        compute: seconds of the processor for a batch.
        fetch: seconds until a shard is there; 0 once it was read.
        every: batches of a shard.
    """

    def __init__(self, compute, fetch=0.0, every=20):
        self.compute, self.fetch, self.every = compute, fetch, every
        self.now, self.there = 0.0, set()

    def clock(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds

    def __iter__(self):
        for batch in range(200):
            shard = batch // self.every
            if shard not in self.there:
                self.spend(self.fetch)
                self.there.add(shard)
            self.spend(self.compute)
            yield batch


def milliseconds_alone(loader):
    """What a batch takes if no step stands between two of them."""
    begin = loader.now
    batches = sum(1 for _ in loader)
    return 1000 * (loader.now - begin) / batches


@answer("15.7", 60, words=("| 60% |",), within=8)
def answer_7(watched, seconds):
    rows = []
    for name, (compute, fetch) in SLOW.items():
        loader, marks = Simulated(compute, fetch), []
        for _ in watched(loader, marks, loader.clock):
            loader.spend(0.1)
        waits, steps = seconds(marks)
        share = waits.sum() / (waits.sum() + steps.sum())
        alone = Simulated(compute, fetch)
        numbers = 1000 * np.median(waits), 1000 * waits.max()
        numbers += milliseconds_alone(alone), milliseconds_alone(alone)
        rows.append([name, f"{share:.0%}", *(f"{number:,.0f} ms" for number in numbers)])
    show_table(["steps of 100 ms", "waited", "median", "longest", "alone", "again"], rows)


@figure("15.1")
def figure_1():
    startup = results("startup")
    begins = {
        name.replace("megatron-core", "Megatron-Core"): it
        for name, it in startup["startup_seconds"].items()
    }
    continues = {
        name: it for name, it in startup["resume_seconds"].items() if not name.startswith("a range")
    }
    show(
        plots.against_samples(
            {
                "An index takes longer to build the more it holds; a computed order has none": begins,
                "A walk takes longer the farther it goes; a computed place needs no walk": continues,
            }
        ),
        "Above: the time to build the order of that many samples. Below: the time until a run continues after that "
        "many. **A walk** draws and drops the batches before; **skip_first_batches** is accelerate's, "
        "**StatefulDataLoader** torchdata's. Medians of 3 rounds. Intel Xeon, two cores.",
        "Two panels with logarithmic axes. Above: the time to build an order rises with the samples, but for "
        "nanoset_ref's stateless order and grain. Below: resuming rises for walks, and is flat for nanoset_ref and "
        "grain.",
    )


@rule(
    "15.1", "seconds for the batch = tokens / (million tokens per second x 10^6); divide by 0.2 s"
)
def rule_1(share):
    return abs(share * 0.2 * 1e6 * np.median(rates()["8192"]["nanotron"]) / (8 * 8192) - 1) < 0.01


@rule(
    "15.2",
    "row by row: order[positions] gives datasets and samples, and a sample begins at sample * S",
)
def rule_2(own, nanoset):
    return np.array_equal(own(np.arange(300)), nanoset.read(np.arange(300)))


@rule(
    "15.3",
    "requests x row / seconds must reach the tokens that the GPUs consume; a request is a whole one",
)
def rule_3(requests):
    cases = [
        (8, 124e6, 0.05, 2048),
        (8, 8e9, 0.05, 2048),
        (64, 1e9, 0.02, 8192),
        (1, 8e9, 0.01, 4096),
    ]
    return all(
        under_way(requests(*case), *case[2:])
        >= consumed(case[1], case[0])
        > under_way(requests(*case) - 1, *case[2:])
        for case in cases
    )
