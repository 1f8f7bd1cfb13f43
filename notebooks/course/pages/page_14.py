"""Notebook 14: its opening, what its folds and figures show, and the rules of its exercises."""

import numpy as np
import torch

from course import pieces, show, tiny_corpus
from course.registry import answer, figure, rule
from figures import provenance as pictures
from nanoset_ref import (
    Nanoset,
    Schedule,
    audit,
    build_nanoset_dataloader,
    open_tokens,
    when,
    where,
)
from nanoset_ref.provenance import Stretch


def text_of(origin, part):
    """The text of a part of a sample, with a dot before each EOS."""
    ids = open_tokens(origin.path).tokens[part.first_byte // 2 : part.end_byte // 2]
    return "".join(pieces(ids)).replace("EOS", "·EOS").strip()


def opening():
    tiny_files = tiny_corpus()
    tiny = Nanoset(list(tiny_files.values()), [6, 3, 1], 8, 400, random_seed=14, order="stateless")
    layout = Schedule(dp_size=2, micro_batch_size=2)
    NAMES = list(tiny_files)
    flow = []
    for origin in sorted(where(tiny, layout, step=57), key=lambda it: it.slot.position):
        who = f"k = {origin.slot.position}", f"rank {origin.slot.dp_rank}"
        for part in origin.parts:
            document = f"{part.document}: {text_of(origin, part)}"
            flow.append((NAMES[origin.source], document, *who, part.stop - part.start))
    assert len(flow) == 8 and len({(name, document.split(":")[0]) for name, document, *_ in flow}) == 7
    show(
        pictures.step(flow, "Step 57 read four rows: eight pieces of seven documents"),
        "Read from right to left: each rank has two positions, each position holds one sample of nine "
        "tokens, each sample is cut from one or two documents (number: tokens), each document lies in a "
        "file. Heights are tokens.",
        "A flow diagram of one training step. Three files feed eight pieces of documents, these make the "
        "samples at positions 224 to 227, and the two ranks read alternate positions.",
    )


@answer("14.1", "rank 0", words=("The step keeps its tokens",))
def answer_1(layout, tiny):
    for schedule in (layout, Schedule(dp_size=4, micro_batch_size=1)):
        slots = [origin.slot for origin in where(tiny, schedule, step=57)]
        mine = [slot.position for slot in slots if slot.dp_rank == 0]
        print(f"{schedule.dp_size} ranks: step 57 reads {sorted(slot.position for slot in slots)}, rank 0 reads {mine}")


@answer("14.2", 69, words=("Two thirds of the programs",), within=6)
def answer_2(NAMES, run):
    for name, read, there in zip(NAMES, run.order.counts(), run.dataset_lengths):
        print(f"{name:<10} {read:>5,} rows read, {there:>5,} samples in the file")


@answer("14.3", 1, words=("died in its last ten steps",))
def answer_3(first, run, again):
    wrong = audit([first, Stretch(name="after it", dataset=run, schedule=again, num_steps=260)])
    print([f"{it.law}: {it.detail}" for it in wrong.stretches[1].checks if not it.holds])
    assert not wrong.ok


@answer("14.4", 1236, words=("1236",))
def answer_4(run):
    for dp_size, rows in ((2, 2), (3, 4), (5, 1)):
        options = {"micro_batch_size": rows, "dp_size": dp_size, "consumed_train_samples": 1234}
        loaders = [build_nanoset_dataloader(run, dp_rank=rank, **options) for rank in range(dp_size)]
        batch = torch.stack([next(iter(loader))["input_ids"] for loader in loaders], dim=1).flatten(0, 1)
        assert (batch.numpy() == run.read(np.arange(1234, 1234 + dp_size * rows))[:, :-1]).all()
        print(f"{dp_size} ranks x {rows} rows: rank {dp_size - 1} begins at position {1233 + dp_size}")


@figure("14.1")
def figure_1(comparison, NAMES):
    changes = {}
    for name, it in zip(NAMES, comparison.files):
        changes[name] = it.new - it.repeated, it.lost, it.again, it.repeated - it.again
        assert it.saved == changes[name][0] + it.lost
    show(
        pictures.difference(changes, "Another seed loses what the saved plan would have read"),
        "The rest of the epoch, file by file, in tokens; each bar is the whole rest of that file's. Upper bars: the "
        "saved plan, with what is lost in a dashed frame. Lower bars: seed 8; yellow was already read before the stop, "
        "gray was not.",
        "Paired bars for three files: tokens that both plans read, tokens lost with the new seed, tokens it "
        "reads again and tokens it reads for the first time. Half of arithmetic is lost, much is read again.",
    )


@rule(
    "14.1",
    "8 rows per step, 4 per micro-batch; steps count from 1, all else from 0; neighboring positions go to "
    "different ranks",
)
def rule_1(it, schedule):
    return it == tuple(vars(schedule.slot(1006))[name] for name in ("step", "micro_batch", "dp_rank", "row"))


@rule("14.2", "neighboring samples share one token, so they begin S tokens apart; how many bytes is that?")
def rule_2(it, run, schedule):
    return all(it(origin.sample) == origin.parts[0].first_byte for origin in where(run, schedule, step=57))


@rule("14.3", "sample j holds tokens 128 j to 128 j + 128, both included; give the steps sorted, each once, from 1")
def rule_3(it, run, schedule):
    return all(
        list(it(source, document)) == sorted({slot.step for slot in when(run, schedule, document, source=source)})
        for source in (0, 1, 2)
        for document in (0, 3, 41, 60)
    )
