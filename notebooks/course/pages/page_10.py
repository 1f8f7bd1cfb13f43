"""Notebook 10: its opening, what its folds and figures show, and the rules of its exercises."""

import shutil
import sys
import warnings
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

from torch.utils.data import DataLoader

from course import DOCUMENTS, show
from course.registry import answer, figure, rule
from figures import streaming as plots
from nanoset_ref import plain
from nanoset_ref.streaming import (
    IterableDataset,
    JSONLinesAdapter,
)

ROOT = Path("data/10")
TEXTS = list(chain.from_iterable(DOCUMENTS.values()))


def deliver(dataset, workers, size=1):
    """The batches of a DataLoader with real workers, as lists of document numbers."""
    loader = DataLoader(dataset, size, num_workers=workers, collate_fn=list)
    return [[TEXTS.index(element["text"]) for element in batch] for batch in loader]


def batch_of(batches, first=0):
    """What a row of the picture shows: for each document, the number of its batch."""
    return {k: str(number) for number, batch in enumerate(batches, first) for k in batch}


def usual_resume(skipped, workers, size):
    """Skip what was used and deal the rest from worker 0 on: batches of a DataLoader."""
    rest = range(skipped, len(TEXTS))
    return plain.interleave(
        [plain.stripe(rest, 0, 1, worker, workers) for worker in range(workers)], size
    )


def opening():
    warnings.filterwarnings(
        "ignore", "This DataLoader will create"
    )  # more workers than cores, on purpose
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    before = plain.interleave([plain.stripe(range(12), 0, 1, worker, 4) for worker in range(4)], 2)[
        :2
    ]
    show(
        plots.dealt(
            DOCUMENTS,
            {"first job": batch_of(before), "second job": batch_of(usual_resume(4, 4, 2), 2)},
            "Four were used, four were skipped, and two were lost",
            count=True,
        ),
        "Four workers read the twelve documents of the course. Each cell is a document that was read, with "
        "the number of its batch.",
        "Twelve documents. The first job reads 0 and 4 in batch 0, 1 and 5 in batch 1. The second job reads "
        "4 to 11, so that 4 and 5 are read twice, 2 and 3 never.",
    )


@answer("10.1", 48, words=("48 batches",))
def answer_1(adapter):
    sys.path.insert(0, str(ROOT))
    from naive import Naive

    copies = deliver(Naive(adapter), workers=4)
    print(len(copies), "batches; the first five:", copies[:5])
    assert copies == plain.interleave([list(range(12))] * 4, 1)


@answer("10.2", (1, 1), words=("is odd",))
def answer_2(adapter, hparams):
    rows = {}
    for rank in range(2):
        batches = deliver(IterableDataset(hparams, adapter, dp_rank=rank, dp_size=2), workers=2)
        for worker in range(2):
            rows[f"rank {rank}, worker {worker}"] = batch_of(batches[worker::2])
            assert list(rows[f"rank {rank}, worker {worker}"]) == plain.stripe(
                range(12), rank, 2, worker, 2
            )
    show(
        plots.dealt(DOCUMENTS, rows, "Dealt like cards: first to ranks, then to workers"),
        "Who reads which document. The number in a cell counts the documents of that worker.",
        "Twelve documents and four rows: rank 0 worker 0 reads documents 0, 4, 8; rank 0 worker 1 reads 2, "
        "6, 10; rank 1 worker 0 reads 1, 5, 9; rank 1 worker 1 reads 3, 7, 11.",
    )


@figure("10.1")
def figure_1():
    careless = [len(range(12)[rank::5]) for rank in range(5)]
    show(
        plots.collective(careless, "Two ranks wait for three that have left"),
        "Twelve documents dealt to five ranks. A vertical line is a collective operation; nobody completes "
        "the broken one.",
        "Five ranks do steps 1 and 2 together. Ranks 0 and 1 have a third document and wait for all ranks; "
        "ranks 2, 3 and 4 have left.",
    )


@answer("10.3", "programs", words=("All the programs are gone",))
def answer_3(adapter, hparams):
    ranks = [IterableDataset(hparams, adapter, dp_rank=rank, dp_size=5) for rank in range(5)]
    read = [TEXTS.index(element["text"]) for rank in ranks for element in rank]
    lost = sorted({*range(12)} - {*read})
    print("each rank reads", len(read) // 5, "and none reads", [TEXTS[k] for k in lost])
    assert len(lost) == ranks[0].dropped


@answer("10.4", (2, 6), words=("was due next",))
def answer_4(adapter):
    hparams = SimpleNamespace(batch_size=2, accumulate_grad_batches=1)
    whole = deliver(IterableDataset(hparams, adapter), workers=4, size=2)
    resumed = deliver(IterableDataset(hparams, adapter, start_from_step=2), workers=4, size=2)
    print("worker 2 delivers", whole[2])
    show(
        plots.dealt(
            DOCUMENTS,
            {"first job": batch_of(whole[:2]), "second job": batch_of(resumed, 2)},
            "Every worker takes over where its predecessor was",
            count=True,
        ),
        "The same stop, continued by `start_from_step=2` (below): every document is read once.",
        "Twelve documents. The first job reads 0, 4 and 1, 5; the second job reads 2, 6 in batch 2, 3, 7 in "
        "batch 3, and 8 to 11 one by one. Every document is read once.",
    )


@answer("10.5", 2, words=("nothing warns you",))
def answer_5(adapter, hparams, whole):
    fewer = deliver(IterableDataset(hparams, adapter, start_from_step=2), workers=2, size=2)
    show(
        plots.dealt(
            DOCUMENTS,
            {"four workers": batch_of(whole[:2]), "two workers": batch_of(fewer, 2)},
            "A different number of workers loses the letter again",
            count=True,
        ),
        "The same stop, continued with two workers.",
        "Twelve documents. After batches 0, 4 and 1, 5 of four workers, two workers read 4, 6, then 5, 7, "
        "and on: documents 4 and 5 are read twice, 2 and 3 never.",
    )


OPTIONS = SimpleNamespace(batch_size=2, accumulate_grad_batches=4)  # of the exercises


@rule("10.1", "a list of numbers; rank 2 gets 2, 5, 8, ..., and its two workers take turns")
def rule_1(documents, adapter):
    rank = IterableDataset(OPTIONS, adapter, dp_rank=2, dp_size=3)
    return documents == list(chain(*deliver(rank, workers=2)[1::2]))


@rule("10.2", "in one step each of the two ranks reads four batches of two")
def rule_2(element):
    numbers = ROOT / "numbers.jsonl"
    numbers.write_text("\n".join(map(str, range(100))))
    lines = JSONLinesAdapter(None, numbers)
    left = IterableDataset(OPTIONS, lines, start_from_step=3, dp_rank=0, dp_size=2)
    return next(iter(left)) == element


@rule(
    "10.3", "worker v continues worker w = (v + done) % N, which has delivered ceil((done - w) / N)"
)
def rule_3(function):
    for workers in range(1, 5):
        streams = [plain.stripe(range(23), 0, 1, worker, workers) for worker in range(workers)]
        whole = plain.interleave(streams, 2)
        if any(
            plain.interleave(function(streams, 2, done), 2) != whole[done:]
            for done in range(len(whole))
        ):
            return False
    return True
