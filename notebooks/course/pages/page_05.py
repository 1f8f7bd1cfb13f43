"""Notebook 05: its opening, what its folds and figures show, and the rules of its exercises."""

import json
import os
import shutil
import textwrap
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from course import DOCUMENTS, show
from course.registry import answer, figure, rule
from course.restarts import KILLED, LAST, RUNS, trained
from figures import resume as plots
from figures.draw import IDLE, SOURCES
from figures.moving import Box, Moving, State
from nanoset_ref import (
    DataCollatorForCLM,
    Nanoset,
    PlanMismatch,
    ResumableBatchSampler,
    SkipBatchSampler,
    TokenFileError,
    TokenFileWriter,
    build_nanoset_dataloader,
    plain,
)

EPOCH, CONSUMED, RANKS = 10, 6, 2  # as on the page


def times_read(positions):
    """How often each position of two epochs is read."""
    return np.bincount(np.fromiter(positions, int), minlength=2 * EPOCH).tolist()


def rest_of_two_epochs(skip, sampler_of, consumed):
    """The positions that all ranks read after a resume, in this epoch and the next."""
    samplers = [skip(sampler_of(rank), consumed, RANKS) for rank in range(RANKS)]
    return [
        position + EPOCH * epoch
        for epoch in range(2)
        for sampler in samplers
        for position in sampler
    ]


def two_epochs(skip, sampler_of):
    """How often each position is read, before a kill and after it."""
    return times_read(chain(range(CONSUMED), rest_of_two_epochs(skip, sampler_of, CONSUMED)))


def kinds_of(nanoset):
    """For each position of two epochs, the name of its sample and the color of its source."""
    names = list(DOCUMENTS)
    read = [nanoset.order[k] for k in range(2 * EPOCH)]
    return [(f"{names[source][0]}{sample}", SOURCES[names[source]][0]) for source, sample in read]


class CountingSampler:
    """Batches of two positions, and how many samples were asked for: way 2."""

    def __init__(self, consumed=0):
        self.consumed = consumed

    def __iter__(self):
        while self.consumed < 2 * EPOCH:
            self.consumed += 2
            yield [self.consumed - 2, self.consumed - 1]


def count_ahead(sampler, nanoset, workers, prefetch_factor, batches=3):
    """The samples that a loop was given, and those that a sampler says were read."""
    options = {"num_workers": workers, "prefetch_factor": prefetch_factor}
    collator = DataCollatorForCLM(8, 0, 0, 0)
    loader = DataLoader(nanoset, batch_sampler=sampler, collate_fn=collator, **options)
    delivered = sum(len(batch["input_ids"]) for batch in islice(loader, batches))
    return delivered, sampler.consumed


def resume_after_a_change(paths, manifest, changed):
    """Save a state, change ids of the arithmetic but not their number, and resume: "refused" or "not refused".

    Args:
        paths: by source, its token file.
        manifest: "new": written with the changed file; "old": left beside it; "none": neither file had one.
        changed: "every id": the file backwards; "one id": of arithmetic 1, which no probe reads.
    """
    folder = Path("data", "05_changed")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(paths["arithmetic"].parent, folder)
    copies = [folder / path.name for path in paths.values()]
    if manifest == "none":
        for copy in copies:
            copy.with_suffix(".json").unlink()
    state = state_after_a_batch(copies)
    ids = plain.read_tokens(copies[1]).copy()
    if changed == "every id":
        ids = ids[::-1]
    else:
        ids[8 + 3] += 1
    if manifest == "new":
        with TokenFileWriter(copies[1], dtype="uint16", overwrite=True) as file:
            file.write(ids, [len(ids)])
    else:
        copies[1].write_bytes(ids.astype("<u2").tobytes())
    try:
        loader_of(copies).load_state_dict(state)
    except PlanMismatch:
        return "refused"
    return "not refused"


def flip_a_bit(path):
    """A copy of a token file and its manifest, with one bit changed and the old time of change put back; its path."""
    folder = Path("data", "05_tiny")
    shutil.copytree(path.parent, folder, dirs_exist_ok=True)
    copy = folder / path.name
    ids = bytearray(path.read_bytes())
    ids[0] ^= 1
    copy.write_bytes(ids)
    written = path.stat().st_mtime_ns
    os.utime(copy, ns=(written, written))
    return copy


def loader_of(paths):
    """A loader over token files; batches of 2."""
    rows = Nanoset([*map(str, paths)], None, sequence_length=8, train_split_num_samples=20)
    return build_nanoset_dataloader(rows, micro_batch_size=2)


def state_after_a_batch(paths):
    """What such a loader saves after its first batch."""
    loader = loader_of(paths)
    next(iter(loader))
    return json.loads(json.dumps(loader.state_dict()))


def opening():
    curves = {name: (range(1, LAST + 1), losses) for name, (losses, _) in trained().items()}
    title = "One of these resumes is broken. Which?"
    show(
        plots.losses(curves, {}, {KILLED: "killed, started again"}, title),
        "Training loss of the same small model on the same corpus. The curves coincide through the first "
        "epoch, 30 steps.",
        "Training losses of two runs over 100 steps. They are one line past the kill after step 18, up to "
        "the end of the epoch at step 30; then they part, and run B ends clearly below run A.",
    )


@answer("05.1", 70, words=("68 + 2",))
def answer_1():
    consumed = 17 * 4
    next_read = plain.micro_batches_of_rank(plain.positions_left(1000, consumed, 4, 1), 2, 4, 1)[0]
    assert next_read == plain.micro_batches_of_rank(range(1000), 2, 4, 1)[17] == [70]
    print("consumed:", consumed, "| rank 2 reads position", *next_read)


@answer("05.2", 4, words=("so in every later epoch",))
def answer_2(sampler_of, NaiveSkip, nanoset):
    skipped = two_epochs(NaiveSkip, sampler_of)
    assert two_epochs(SkipBatchSampler, sampler_of) == [1] * 20
    show(
        plots.times_read(
            {"skips in every epoch": skipped},
            {CONSUMED: "killed", EPOCH: "epoch 2"},
            kinds_of(nanoset),
            "The first epoch is whole; every later one loses six samples",
        ),
        f"Epoch 2 reads {sum(skipped[EPOCH:])} of its {EPOCH} samples. s2 is sample 2 of the stories, "
        "a of arithmetic, p of programs; dashed holes are never read.",
        "One row of 20 positions in two epochs of 10. Epoch 1 is read once each; in epoch 2 the first six "
        "positions are empty holes with a dashed edge and the last four are read.",
    )


@answer("05.3", "B", words=("B is the broken run",))
def answer_3():
    (loss_a, unseen_a), (loss_b, unseen_b) = trained().values()
    read = {name: len(set(steps[KILLED:])) for name, steps in RUNS.items()}
    assert read == {"run A": 30, "run B": 12}
    assert np.mean(loss_b[-12:]) < np.mean(loss_a[-12:]) and unseen_a < unseen_b
    print("steps of the epoch that were read after the kill:", read)
    losses = {"training": (np.mean(loss_a[-12:]), np.mean(loss_b[-12:]))}
    losses["unseen samples"] = unseen_a, unseen_b
    for name, (in_a, in_b) in losses.items():
        print(f"loss at the end, {name:<14}  run A {in_a:.1f}, run B {in_b:.1f}")


@answer("05.4", 2, words=("drops the wrong six",))
def answer_4(restore_generator):
    before, after = restore_generator(CONSUMED)
    print("read before the kill:", before, "| after it:", after)
    print(
        "read twice:",
        sorted({*before} & {*after}),
        "| never:",
        sorted({*range(EPOCH)} - {*before} - {*after}),
    )


@answer("05.5", (2, 1, 6), words=("all six",))
def answer_5(NaiveSkip, sampler_of):
    for ranks in (4, 5, 10):
        samplers = [
            NaiveSkip(sampler_of(rank, 20, ranks), CONSUMED, ranks) for rank in range(ranks)
        ]
        counts = times_read(chain(range(CONSUMED), *samplers))
        assert counts.count(2) == CONSUMED % ranks
        print(ranks, "ranks:", counts.count(2), "read twice")


def exact(consumed):
    """The positions that a `ResumableBatchSampler` reads after a resume."""
    ranks = [ResumableBatchSampler(20, 1, rank, RANKS, consumed) for rank in range(RANKS)]
    return chain(*chain(*ranks))


def outcome(way, consumed, jobs, kinds):
    """What two jobs read, one killed after so many samples, and what became of each position."""
    counts = times_read(chain(*jobs))
    choices = [[("", "", "lost"), (*kind, ""), ("2\u00d7", plots.AGAIN, "")] for kind in kinds]
    rows = {
        name: [Box(k, *kinds[k]) for k in sorted(job)]
        for name, job in zip(("first job", "second job"), jobs)
    }
    looks = [looks[n] for n, looks in zip(counts, choices)]
    rows["together"] = [
        Box(k, text, colour, 1, look) for k, (text, colour, look) in enumerate(looks)
    ]
    said = [
        f"{counts.count(n)} {word}"
        for n, word in ((0, "never read"), (2, "read twice"))
        if n in counts
    ]
    says = ", ".join(said) or "every sample is read once"
    return State(
        f"{way[0].upper()}{way[1:]}, killed after {consumed} samples: {says}",
        rows,
        {5: "epoch 1", 15: "epoch 2"},
    )


@figure("05.1")
def figure_1(NaiveSkip, sampler_of, restore_generator, nanoset):
    kinds = kinds_of(nanoset)

    def rounds_down(consumed, ranks):
        return chain(
            *[NaiveSkip(sampler_of(rank, 20, ranks), consumed, ranks) for rank in range(ranks)]
        )

    def prefetched(consumed):
        counted = count_ahead(CountingSampler(), nanoset, 2, 2, batches=consumed // 2)[1]
        return chain(*CountingSampler(counted))

    ways = {  # what the first job read, and the second one, if the first had received so many samples
        "exact": lambda c: (range(c), exact(c)),
        "skips in every epoch": lambda c: (range(c), rest_of_two_epochs(NaiveSkip, sampler_of, c)),
        "counts prefetched": lambda c: (range(c), prefetched(c)),
        "restores a generator": lambda c: (
            restore_generator(c)[0],
            chain(restore_generator(c)[1], range(EPOCH, 20)),
        ),
        "rounds down, 4 ranks": lambda c: (range(c), rounds_down(c, 4)),
        "rounds down, 5 ranks": lambda c: (range(c), rounds_down(c, 5)),
    }

    def state(way, consumed):
        jobs = [list(positions) for positions in ways[way](consumed)]
        return outcome(way, consumed, jobs, kinds)

    show(
        Moving(
            {"resume": [*ways], "samples before the kill": [2, 4, 6, 8]},
            state,
            ("rounds down, 4 ranks", 6),
        ),
        "Two epochs of ten samples. Dashed: never read. Gray: read twice. (The run that restores a generator"
        " shuffles.)",
        "Three rows of 20 positions. The first job reads positions 0 to 5; the second, four ranks that round "
        "down, reads 4 to 19. Together they read positions 4 and 5 twice, in gray.",
    )


@answer("05.6", "seed", words=("The plan says nothing about ranks",))
def answer_6(paths, state, nanoset):
    other = Nanoset(
        [*paths.values()], None, sequence_length=8, train_split_num_samples=20, random_seed=4321
    )
    try:
        build_nanoset_dataloader(other, micro_batch_size=2).load_state_dict(state)
    except PlanMismatch as error:
        print(str(error).splitlines()[0])
        print(*[line for line in str(error).splitlines() if "random_seed" in line])

    for rank in range(3):
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=2, dp_rank=rank, dp_size=3)
        loader.load_state_dict(json.loads(json.dumps(state)))
        print(f"rank {rank} of 3:", [list(positions) for positions in loader.batch_sampler])


@answer("05.7", "cut", words=("names file and token",))
def answer_7(paths):
    damaged = flip_a_bit(paths["stories"])
    rows = Nanoset(str(damaged), None, sequence_length=8, train_split_num_samples=20)
    rows.read(np.arange(2))  # the file is open from the first row on
    ids = plain.read_tokens(damaged).copy()
    ids[3] = 60_000
    with damaged.open("r+b") as file:
        file.write(ids.tobytes())
    batch = np.stack([rows[k]["input_ids"] for k in range(5)])
    print("an id: the loader hands out", batch.max())
    try:
        torch.nn.Embedding(4096, 8)(torch.from_numpy(batch))
    except IndexError as error:
        print("       the model, on a CPU:", error)
    os.truncate(damaged, 20)
    steps = {
        "a cut: the loader": lambda: rows.read(np.arange(5)),
        "       the next start": lambda: loader_of([damaged]),
    }
    for name, step in steps.items():
        try:
            step()
        except (OSError, TokenFileError) as error:
            kind, said = type(error).__name__, str(error).removeprefix("data/05_tiny/")
            print(f"{name}: {kind}")
            print(textwrap.indent(textwrap.fill(said, 80), " " * 9))


@answer("05.8", 28, words=("computed: 28",))
def answer_8(paths):
    LAST, EVERY = 24, 5
    longer = Nanoset([*paths.values()], None, sequence_length=8, train_split_num_samples=3 * LAST)
    saved, attempts, checkpoints, seen = {"step": 0}, [], [], {}
    for stop in (17, 22, LAST):
        loader = build_nanoset_dataloader(longer, micro_batch_size=3)
        if saved["step"]:
            loader.load_state_dict(saved["data"])
        first = saved["step"] + 1
        for step, batch in enumerate(islice(loader, stop - first + 1), first):
            ids = batch["input_ids"].tolist()
            assert (
                seen.setdefault(step, ids) == ids
            )  # a step that is done again gets the same samples
            if step % EVERY == 0:
                saved = {"step": step, "data": loader.state_dict()}
                checkpoints.append(step)
        attempts.append((first, stop))

    print("steps computed:", sum(stop - first + 1 for first, stop in attempts))
    show(
        plots.timeline(attempts, checkpoints, LAST),
        "Dashed steps were lost and done again, with the same samples. Diamonds are checkpoints.",
        "Three rows of numbered steps, one per start: 1 to 17, 16 to 22, 21 to 24. Steps 16, 17, 21 and 22 "
        "are dashed as lost in the row that was killed and done again in the next. Checkpoints stand after "
        "steps 5, 10, 15 and 20.",
    )


def before_a_node_dies(nanoset, node, nodes):
    """The positions that a node had saved, delivered, prefetched; the state of its checkpoint after two steps."""
    options = {
        "collate_fn": DataCollatorForCLM(8, 0, 0, 0).__call__,
        "num_loading_workers": 1,
        "prefetch_factor": 2,
    }
    loader = build_nanoset_dataloader(
        nanoset, micro_batch_size=1, dp_rank=node, dp_size=nodes, **options
    )
    steps = iter(loader)
    next(steps), next(steps)
    state = loader.state_dict()
    next(steps)
    counts = [
        state["consumed_train_samples"],
        loader.consumed_train_samples,
        loader.batch_sampler.consumed_train_samples,
    ]
    saved, delivered, given_out = (range(node, count, nodes) for count in counts)
    return saved, delivered[len(saved) :], given_out[len(delivered) :], state


@figure("05.2")
def figure_2(nanoset):
    kinds = kinds_of(nanoset)
    rows, read = {}, []
    for node in range(4):
        saved, lost, prefetched, state = before_a_node_dies(nanoset, node, 4)
        read += saved
        rows[f"node {node}"] = [(k, *kinds[k], 1) for k in saved] + [
            (k, kinds[k][0], "", 1) for k in lost
        ]
        rows[f"node {node}"] += [(k, kinds[k][0], IDLE, 1) for k in prefetched]
    for node in range(3):
        loader = build_nanoset_dataloader(nanoset, micro_batch_size=1, dp_rank=node, dp_size=3)
        loader.load_state_dict(state)
        positions = [k for batch in loader.batch_sampler for k in batch]
        read += positions
        rows[f"restarted, node {node}"] = [(k, *kinds[k], 1) for k in positions]
    assert sorted(read) == list(range(20))
    show(
        plots.lanes(
            rows,
            {8: "saved", 12: "node 3 dies"},
            "One node of four dies, three continue, and no position is lost",
            positions=range(20),
        ),
        "Dashed: delivered after the checkpoint, so read again. Gray: prefetched by a worker, never delivered.",
        "Seven rows along 20 positions. Four nodes have read positions 0 to 7 before the checkpoint, 8 to 11 after it, "
        "and their workers hold 12 to 19. After the restart three nodes share positions 8 to 19.",
    )


@rule(
    "05.1",
    "how many positions are read before the batch grows, and how many steps of 8 fit before position 1,000?",
)
def rule_1(answer):
    steps = list(ResumableBatchSampler(2000, 4))[:100]
    steps += list(ResumableBatchSampler(2000, 8, consumed_train_samples=400))
    return answer == next(step for step, positions in enumerate(steps, 1) if 1000 in positions)


@rule(
    "05.2",
    "the second iteration must give the whole epoch: what has to change once the first has begun?",
)
def rule_2(answer, sampler_of):
    return two_epochs(answer, sampler_of) == two_epochs(SkipBatchSampler, sampler_of)


@rule(
    "05.3",
    "count what all ranks consumed; rank r then reads positions c + r, c + r + D, c + r + 2D",
)
def rule_3(answer):
    return list(answer) == list(next(iter(ResumableBatchSampler(1000, 3, 5, 6, 9 * 4 * 2))))


@rule(
    "05.4",
    "the loop trains on a batch while your generator waits at `yield`: is that batch counted by then?",
)
def rule_4(answer):
    state = {"consumed": 0}
    loader = DataLoader(range(20), 2, num_workers=2)
    return [state["consumed"] for _ in islice(answer(loader, state), 3)] == [2, 4, 6]
