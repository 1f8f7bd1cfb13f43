"""Notebook 01: its opening, what its folds and figures show, and the rules of its exercises."""

import numpy as np
import torch

from course import pieces, show, tiny_corpus
from course.registry import answer, figure, rule
from figures import quickstart
from figures.draw import SOURCES
from figures.moving import Box, Moving, State
from nanoset_ref import (
    Nanoset,
    TokenFile,
    TokenFileWriter,
    plain,
)


def two_orders(dataset, samples):
    """The first samples of a run as its order has them, shuffled, and sorted by source and sample."""
    sources, numbers = dataset.order[:]
    shuffled = np.arange(samples)
    return shuffled, np.lexsort((numbers[shuffled], sources[shuffled]))


def get_batch(rng, tokens, S=64, B=8):
    """The starts of B random rows of S tokens, their inputs and their labels: the three lines of the page's opening."""
    starts = rng.integers(len(tokens) - S, size=B)
    inputs = np.stack([tokens[i : i + S] for i in starts])
    labels = np.stack([tokens[i + 1 : i + 1 + S] for i in starts])
    return starts, inputs, labels


def opening():
    paths = tiny_corpus()
    sources = list(paths)
    tiny = Nanoset(list(paths.values()), None, sequence_length=8, train_split_num_samples=10)
    order = [(sources[dataset], sample) for dataset, sample in (tiny.order[k] for k in range(10))]
    figure = quickstart.text_to_batch(
        {name: pieces(TokenFile(path).tokens) for name, path in paths.items()}, 8, order, 2
    )
    show(
        figure,
        "Read it from 1 to 3. Two shades tell neighboring documents apart. A dotted token is "
        "shared: it ends one sample and begins the next. EOS marks the end of a document.",
        "Three token files hold twelve documents; each is cut into samples of nine tokens, with "
        "one or two tokens left over; crossing lines lead from the ten samples to their places in "
        "one shuffled order; the first two, stories 3 and programs 0, form a batch of inputs and "
        "labels, the labels shifted by one token",
    )


@answer("01.1", 37, words=("37%",), within=4)
def answer_1(tokens):
    S, B = 64, 8
    an_epoch = len(tokens) // (S * B)
    places = len(tokens) - S

    def times_read(seed, batches):
        rng = np.random.default_rng(seed)
        starts = np.concatenate([get_batch(rng, tokens, S, B)[0] for _ in range(batches)])
        times = np.bincount((starts[:, None] + np.arange(S)).ravel(), minlength=len(tokens))
        return times, np.bincount(starts, minlength=places)

    times, starts = times_read(1337, an_epoch)
    (first, _), (second, _) = (times_read(1337 + rank, an_epoch // 2) for rank in range(2))
    drawn = np.random.default_rng(1337).integers(places, size=places)
    never_a_start = np.bincount(drawn, minlength=places) == 0
    print("one epoch's worth of tokens:")
    print(
        f"    {np.mean(times == 0):.0%} of the tokens never read, {np.mean(times > 1):.0%} twice or more"
    )
    print(f"    {np.mean(starts == 0):.0%} of the possible starts never drawn")
    print(
        f"    shared by two ranks: {np.mean((first > 0) & (second > 0)):.0%} of the tokens read by both"
    )
    print("as many draws as there are possible starts:")
    print(f"    {np.mean(never_a_start):.0%} of the possible starts never drawn")


@answer("01.2", 70, words=("70%",), within=8)
def answer_2(lengths):
    longest = lengths[-len(lengths) // 10 :]
    print(
        f"{sum(longest) / sum(lengths):.0%}; the longest document has {lengths[-1]:,} tokens, the shortest {lengths[0]}"
    )


@answer("01.3", 0, words=("65,536 becomes 0",))
def answer_3():
    kept, lost = np.array([65_535, 65_536]).astype(np.uint16).tolist()
    print(f"65535 -> {kept}, 65536 -> {lost}, which is {pieces([lost])[0]}")
    try:
        with TokenFileWriter("data/x_input_ids.npy", dtype="uint16", overwrite=True) as file:
            file.write_document([65_535, 65_536])
    except ValueError as error:
        print("TokenFileWriter:", *str(error).split(": ", 1), sep="\n  ")


@answer("01.4", 3, words=("fourth would need",))
def answer_4():
    print({tokens: plain.count_samples(tokens, 8) for tokens in (24, 25, 32, 33)})


@answer("01.5", "longer", words=("a different seed gives a different order",))
def answer_5(paths, tiny, sources):
    longer = Nanoset(list(paths.values()), None, 8, train_split_num_samples=30)
    other = Nanoset(list(paths.values()), None, 8, train_split_num_samples=10, random_seed=99)
    for name, dataset in {"as above": tiny, "longer": longer, "other seed": other}.items():
        print(
            f"{name:<10}",
            [f"{sources[dataset.order[k][0]]} {dataset.order[k][1]}" for k in range(4)],
        )


STAGES = "three files", "one order", "batches"


@figure("01.1")
def figure_1(paths, sources):
    def box(left, dataset, sample):
        name = sources[dataset]
        return Box(left, f"{name[0]}{sample}", SOURCES[name][0])

    def state(stage, seed, size):
        tiny = Nanoset(list(paths.values()), None, 8, train_split_num_samples=10, random_seed=seed)
        order = [tiny.order[k] for k in range(10)]
        source, number = order[0]
        first = f"{sources[source]} {number}"
        if stage == "three files":
            in_files = {
                name: [box(j, d, j) for j in range(tiny.dataset_lengths[d])]
                for d, name in enumerate(sources)
            }
            return State(
                "Ten samples in three files; nothing is copied when they are ordered", in_files
            )
        if stage == "one order":
            heads = {k + 0.5: str(k) for k in range(10)}
            boxes = [box(k, *order[k]) for k in range(10)]
            return State(f"Seed {seed}: position 0 has {first}", {"position": boxes}, heads)
        gap = 0.4  # between two batches
        boxes = [box(k + gap * (k // size), *order[k]) for k in range(10)]
        heads = {
            start + gap * number + size / 2: f"batch {number}"
            for number, start in enumerate(range(0, 10, size))
        }
        return State(f"Ten samples in {10 // size} batches (seed {seed})", {"order": boxes}, heads)

    show(
        Moving(
            {"show": [*STAGES], "seed": [1234, 99, 7], "samples in a batch": [2, 5]},
            state,
            ("batches", 1234, 2),
            length=11.6,
            gliding=True,
        ),
        "s3 is sample 3 of the stories, a of arithmetic, p of programs.",
        "Five batches of two samples side by side, positions 0 to 9: the first has stories 3 and programs 0. "
        "Moved back, the ten samples stand in one order, and before that in three files.",
    )


@answer("01.6", 5, words=("learned stories and lost them again",))
def answer_6(runs, loss_of, rows, dataset, tokenizer, sources, shuffled, in_file_order, BATCH):
    unseen = np.arange(len(shuffled), len(dataset))
    source_of = dataset.order[:][0]
    at_end = {name: np.mean(losses[-5:]) for name, (_, losses) in runs.items()}
    print(
        "shuffled: the last loss is closest to",
        min((8, 5, 1), key=lambda guess: abs(guess - at_end["shuffled"])),
    )
    with torch.no_grad():
        losses_on = {
            name: [loss_of(model, rows[unseen[source_of[unseen] == d]]).item() for d in range(3)]
            for name, (model, _) in runs.items()
        }
    uniform = float(np.log(len(tokenizer)))
    assert all(4 < loss < 5.5 for loss in losses_on["shuffled"])
    print(
        "in file order, on stories:",
        "worse" if losses_on["in file order"][0] > uniform else "better",
        "than guessing",
    )
    steps = dict(zip(sources, np.bincount(source_of[in_file_order[BATCH // 2 :: BATCH]]).tolist()))
    figure = quickstart.order_and_loss(
        {name: run[1] for name, run in runs.items()}, steps, losses_on, uniform
    )
    show(
        figure,
        "Left: the loss of every training step; the black run read the same samples, shuffled. "
        "Right: the loss on samples that neither run has read, after the last step.",
        "Two training runs. In file order the loss falls within stories, jumps up where arithmetic"
        " begins and again where programs begin; shuffled it falls steadily. On unseen samples the"
        " run in file order is far worse on stories and arithmetic than the shuffled one, and "
        "about as good on programs",
    )


@rule(
    "01.1", "n samples use 4 n + 1 tokens: neighbors share one, and the last needs one more label"
)
def rule_1(found, paths):
    return all(
        found[name]
        == size - 1 - plain.read_sample(np.arange(size), plain.count_samples(size, 4) - 1, 4)[-1]
        for name, size in ((name, TokenFile(path).num_tokens) for name, path in paths.items())
    )


@rule(
    "01.2",
    "samples read / samples in all files; each file has its own (T - 1) // S, and the 120 unseen "
    "ones were not trained on",
)
def rule_2(found, STEPS, BATCH, dataset):
    return np.isclose(found, STEPS * BATCH / dataset.order.samples_per_epoch)


@rule(
    "01.3",
    "sample j begins at token j S, which is byte 2 j S, and has S + 1 ids of two bytes; np.frombuffer knows '<u2'",
)
def rule_3(read, paths):
    return all(
        np.array_equal(read(path, j, 8), plain.read_sample(plain.read_tokens(path), j, 8))
        for path in paths.values()
        for j in range(TokenFile(path).num_samples(8))
    )
