"""Notebook 04: its opening, what its folds and figures show, and the rules of its exercises."""

import sys
import tracemalloc
from itertools import chain

import numpy as np
from torch.utils.data import DistributedSampler

from course import pieces, show
from course.registry import answer, figure, rule
from figures import batches, sharding
from figures.cells import colour_of
from figures.moving import Box, Moving, State
from nanoset_ref import ResumableBatchSampler, TensorPointer, build_nanoset_dataloader, plain
from nanoset_ref.train import layout_of_rank

LAYOUTS = {"like cards": "strided", "in blocks": "contiguous"}
WAYS = [*LAYOUTS, "in parts"]
SAMPLES, AT_ONCE = 32, 16  # of the run; that all GPUs together read in a step


def share_out(way, gpus, size):
    """For each GPU, the samples it reads in each step, `size` at a time."""
    if way in LAYOUTS:
        return [
            [*ResumableBatchSampler(SAMPLES, size, gpu, gpus, layout=LAYOUTS[way])]
            for gpu in range(gpus)
        ]
    part = SAMPLES // gpus
    own = [*ResumableBatchSampler(part, size)]
    return [[[gpu * part + sample for sample in batch] for batch in own] for gpu in range(gpus)]


def readers(way, gpus):
    """For each sample: the GPU that reads it, and whether in the first step."""
    shares = share_out(way, gpus, AT_ONCE // gpus)
    who = {sample: gpu for gpu, batches in enumerate(shares) for sample in chain(*batches)}
    return [(who[sample], sample in shares[who[sample]][0]) for sample in range(SAMPLES)]


def step_of(way, gpus, size, step):
    """The samples that all GPUs together read in a step."""
    return sorted(
        chain(*[chain(*batches[step - 1 : step]) for batches in share_out(way, gpus, size)])
    )


def first_job(rows, gpu, sizes, micro_batch_size=2):
    """The positions of a GPU's first micro-batch, and the ids it gets of them: "input_ids", "label_ids" or None.

    Args:
        rows: a Nanoset.
        gpu: the global rank.
        sizes: by dimension, "pp", "dp" and "tp", the number of ranks; the first one varies slowest.
        micro_batch_size: in samples.
    """
    layout = layout_of_rank(gpu, sizes)
    loader = build_nanoset_dataloader(
        rows,
        micro_batch_size=micro_batch_size,
        dp_rank=layout.dp_rank,
        dp_size=layout.dp_size,
        output_pp_rank=layout.output_pp_rank,
        current_pp_rank=layout.pp_rank,
    )
    positions = list(next(iter(loader.batch_sampler)))
    batch = next(iter(loader))
    mine = [
        name for name in ("input_ids", "label_ids") if not isinstance(batch[name], TensorPointer)
    ]
    return positions, mine[0] if mine else None


def bytes_of_a_position(positions=100_000):
    """What torch's DistributedSampler keeps per position of a dataset: a pointer and a Python integer."""
    tracemalloc.start()
    iter(DistributedSampler(range(10**6, 10**6 + positions), num_replicas=8, rank=0, shuffle=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    integer = sys.getsizeof(10**8)
    assert 0.9 < peak / positions / (8 + integer) < 1.5
    return 8 + integer


def opening():
    show(
        sharding.readers(
            {way: readers(way, 8) for way in WAYS}, "Three fair ways to share 32 samples"
        ),
        "The number in a sample's cell is the GPU that reads it. Colored samples are read in the first step, "
        "two by each GPU.",
        "Three rows of 32 cells. Like cards: GPUs 0 to 7 in turns. In blocks: 0 0 1 1 and so on. In parts: "
        "four neighbors for each GPU. The first two ways color samples 0 to 15, the third pairs all "
        "over the row.",
    )


@answer("04.1", 3, words=("twelve in all",))
def answer_1():
    ranks = [
        list(DistributedSampler(range(10), num_replicas=4, rank=rank, shuffle=False))
        for rank in range(4)
    ]
    for rank, positions in enumerate(ranks):
        print(f"rank {rank}: {positions}")
    assert ranks == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    print("read twice, without a word about it: 0 and 1")


@answer("04.2", 244, words=("244 batches",), within=1)
def answer_2():
    sampler = ResumableBatchSampler(1_000_003, 4, dp_rank=1023, dp_size=1024)
    dropped = sampler.remaining(0).dropped
    assert (len(sampler), dropped) == divmod(1_000_003, 1024 * 4) == (244, 579)
    print(len(sampler), "batches each,", dropped, "samples dropped")


@answer("04.3", "bytes", words=("takes 48 bytes",))
def answer_3():
    assert round(bytes_of_a_position()) == 36
    sampler = ResumableBatchSampler(
        10**12, 4, dp_rank=3, dp_size=8, consumed_train_samples=5 * 10**11
    )
    batch = next(iter(sampler))
    assert batch == range(5 * 10**11 + 3, 5 * 10**11 + 32, 8)
    print(batch, "takes", sys.getsizeof(batch), "bytes; nothing was walked through")


@answer("04.4", (16, 16, 8), words=("same *set* of samples", "half of the samples"))
def answer_4():
    for way in WAYS:
        still = {*step_of(way, 8, 2, step=1)} & {*step_of(way, 4, 4, step=1)}
        print(f"{way}: {len(still)} of the 16 samples")


@figure("04.1")
def figure_1():
    def state(way, gpus, size, step):
        now, rows, fallen = step_of(way, gpus, size, step), {}, set()
        for gpu, share in enumerate(share_out(way, gpus, size)):
            samples = [*chain(*share[:step])]
            fallen.update(samples)
            rows[f"GPU {gpu}"] = [
                Box(sample, sample, colour_of(gpu), look="thick" * (sample in now))
                for sample in samples
            ]
        rows = {
            "not yet read": [
                Box(sample, sample) for sample in range(SAMPLES) if sample not in fallen
            ],
            **rows,
        }
        firsts, lasts = ([k for k in now if k + beside not in now] for beside in (-1, 1))
        runs = ", ".join(
            f"{first} to {last}" if first < last else str(first)
            for first, last in zip(firsts, lasts)
        )
        return State(
            f"Step {step} {way} on {gpus} GPUs reads samples {runs}"
            if now
            else "Every sample has been read",
            rows,
        )

    controls = {
        "shared": WAYS,
        "GPUs": [2, 4, 8],
        "samples at a time, each": [1, 2, 4],
        "step": [1, 2, 3, 4],
    }
    show(
        Moving(controls, state, ("in parts", 4, 4, 1), length=SAMPLES, gliding=True),
        "Who reads which sample, step by step. Every sample falls to the GPU that reads it.",
        "A row of samples that are not yet read, and a row for each of four GPUs below it. In parts, the first "
        "step reads samples 0 to 3, 8 to 11, 16 to 19 and 24 to 27, one run of four for each GPU.",
    )


@answer("04.5", 4, words=("two for each data-parallel rank",))
def answer_5(job_of):
    sizes = {"pp": 2, "dp": 2, "tp": 2}
    jobs = [job_of(gpu, sizes) for gpu in range(8)]
    print(len({position for positions, _ in jobs for position in positions}), "different samples")
    show(
        sharding.machine(
            [layout_of_rank(gpu, sizes) for gpu in range(8)],
            [f"{field}\n{positions}" for positions, field in jobs],
            "Eight GPUs read four samples",
        ),
        "Only the data-parallel rank decides which positions are read; pp and tp ranks repeat them.",
        "Eight GPUs in two columns, dp rank 0 with positions 0 and 2, dp rank 1 with positions 1 and 3. In "
        "each column the upper two GPUs, pp rank 0, get input_ids and the lower two, pp rank 1, get "
        "label_ids.",
    )


def columns_of(columns, cp_size):
    """By name of a way to cut a row, the columns of each context rank."""
    pieces_of_row = np.array_split(np.arange(columns), 2 * cp_size)
    return {
        "slices": [*np.array_split(np.arange(columns), cp_size)],
        "zig-zag": [
            np.append(pieces_of_row[rank], pieces_of_row[-1 - rank]) for rank in range(cp_size)
        ],
    }


@answer("04.6", 2.8, words=("2.8 times",), within=0.3)
def answer_6():
    ways = columns_of(16, cp_size=2)
    attended = {way: [int(sum(mine + 1)) for mine in ranks] for way, ranks in ways.items()}
    for way, (first, last) in attended.items():
        print(
            f"{way:<7} rank 0 attends to {first} tokens, rank 1 to {last}: {last / first:.1f} times as many"
        )
    rank_1 = columns_of(32, cp_size=4)["zig-zag"][1].tolist()
    print("of 32 columns and 4 ranks, zig-zag gives rank 1 columns", *rank_1)
    show(
        sharding.columns(
            ways, "Slices load the last rank 2.8 times as much, zig-zag loads both alike"
        ),
        "A row of 16 columns. In each cell: how many tokens its token attends to, and who has it: r0 or r1.",
        "Two strips of 16 columns with ranks and the numbers 1 to 16, and the sums of each rank at the right. Slices: "
        "rank 0 has columns 0 to 7, 36 in all, and rank 1 has 8 to 15, 100. Zig-zag: rank 0 has 0 to 3 and 12 to 15, "
        "rank 1 those between, 68 each.",
    )


@figure("04.2")
def figure_2(many):
    sizes = {"pp": 2, "dp": 2, "tp": 4}
    layouts = [layout_of_rank(gpu, sizes) for gpu in range(16)]
    samplers = [
        ResumableBatchSampler(len(many), 2, layout.dp_rank, layout.dp_size) for layout in layouts
    ]
    positions = [list(next(iter(sampler))) for sampler in samplers]
    show(
        sharding.nodes(
            layouts,
            positions,
            8,
            "Two nodes read the same rows, each for itself",
        ),
        "16 GPUs as pp = 2, dp = 2, tp = 4. Light and dark gray: data-parallel ranks 0 and 1. In Megatron-LM only the "
        "thick frames read.",
        "Two nodes of eight GPUs. Node 0 has pipeline rank 0 and needs input_ids, node 1 has pipeline rank 1 and needs "
        "label_ids. Each has the rows 0 to 3 in its page cache, from a copy of the token files on its own disk. "
        "Activations cross the network between them, ids do not; a shared file system is asked only for what a disk "
        "lacks.",
    )


@figure("04.3")
def figure_3(dataset, two_ranks, paths):
    names = list(paths)
    dealt = {}
    for rank, loader in enumerate(two_ranks):
        positions = plain.micro_batches_of_rank(range(10), rank, 2, 1)
        dealt[f"rank {rank}"] = [
            (k, pieces(batch["input_ids"][0][:1])[0], names[dataset.order[k][0]])
            for (k,), batch in zip(positions, loader, strict=True)
        ]
    show(
        batches.samples(dealt, "One global order, dealt out like cards"),
        "Each cell is a sample: its position, its first token, the color of its source. Columns are steps.",
        "Two rows of five samples. Rank 0 reads positions 0, 2, 4, 6, 8 and rank 1 reads 1, 3, 5, 7, 9.",
    )


@figure("04.4")
def figure_4(epochs):
    assert [len(epoch) for epoch in epochs] == [5, 5, 5, 5]

    def describe(entry):
        if isinstance(entry, TensorPointer):
            return f"→ rank {entry.group_rank}"
        shape = f"{str(entry.dtype).removeprefix('torch.')} {list(entry.shape)}"
        return shape if "bool" in shape else f"{''.join(pieces(entry[0, :3]))}…\n{shape}"

    stages = ["rank 0\nembedding", "rank 1\nlayers", "rank 2\nlayers", "rank 3\nloss"]
    fields = ("input_ids", "model", "label_ids")  # a mask is where its ids are
    per_rank = [
        {name: describe(epoch[0][name]) if name in epoch[0] else stage for name in fields}
        for epoch, stage in zip(epochs, stages, strict=True)
    ]
    show(
        sharding.pipeline(per_rank, "Tokens enter at both ends, activations flow between"),
        "What each pipeline rank's DataLoader delivers. A dotted cell is a `TensorPointer`; masks lie with their ids.",
        "Four stages from left to right with arrows called activations. input_ids enter rank 0 from "
        "above, label_ids enter rank 3 from below. Every other cell is dotted and names the rank that "
        "has it.",
    )


@rule(
    "04.1", "five ranks read five samples at a time; 16 = 3 x 5 + 1, and pad fills the last five up"
)
def rule_1(it):
    drop, pad = (ResumableBatchSampler(16, 1, 0, 5, tail=tail) for tail in ("drop", "pad"))
    return it == (drop.remaining(0).dropped, pad.remaining(0).repeated)


@rule(
    "04.2",
    "all ranks together read 96 x 4 positions at a time; of these, neighbors go to different ranks, row by row",
)
def rule_2(it):
    return all(it(k) == plain.slot(k, 96, 4, 2) for k in (0, 95, 96, 384, 768, 1_234_567))


@rule(
    "04.3",
    "tp varies fastest, so GPUs 0 to 3 do the same; the next dp rank is 4 GPUs on, the next pp rank 256",
)
def rule_3(it, job_of):
    return all(
        it(gpu) == job_of(gpu, {"pp": 4, "dp": 64, "tp": 4})
        for gpu in (0, 3, 4, 255, 256, 777, 1023)
    )
