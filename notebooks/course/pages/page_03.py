"""Notebook 03: its opening, what its folds and figures show, and the rules of its exercises."""

import json
from functools import cache
from itertools import islice

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from course import pieces, show
from course.registry import answer, figure, rule
from figures import batches
from figures.draw import SOURCES
from figures.moving import Box, Moving, State
from nanoset_ref import (
    DataCollatorForCLM,
    Nanoset,
    build_nanoset_dataloader,
    load_tokenizer,
    loss_mask,
    plain,
    prepare_corpus,
    starts_after_eos,
)

PLACES = {"run A": 1, "run B": 0, "run C": 2}


@cache
def stories():
    """The stories in rows of 19 ids [rows, 19], and how many ids there are; ids without gaps."""
    corpus = prepare_corpus("data")
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer / "tokenizer.json"))
    with corpus.domains["stories"].open(encoding="utf-8") as file:
        texts = [tokenizer.encode(json.loads(line)["text"]).ids for line in file]
    vocabulary, ids = np.unique(np.concatenate(texts), return_inverse=True)
    return torch.from_numpy(ids[: len(ids) // 19 * 19]).view(-1, 19), len(vocabulary)


def tokenizer_with_bos():
    """The course's tokenizer, which puts <s> before every text that it encodes."""
    tokenizer = load_tokenizer(prepare_corpus("data").tokenizer)
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    return tokenizer


def cut(rows, places, length=16):
    """Inputs, and labels that were moved by so many places."""
    return rows[:, :length], rows[:, places : places + length]


def train(places, steps=100, batch_size=16):
    """The losses of a small recurrent model, and how often it answers with the token it has just read."""
    rows, vocabulary = stories()
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(vocabulary, 48)
    memory = torch.nn.GRU(48, 48, batch_first=True)
    torch.nn.init.normal_(embedding.weight, std=0.1)
    optimizer = torch.optim.AdamW([*embedding.parameters(), *memory.parameters()], lr=2e-2)
    losses = []
    for batch in rows[: steps * batch_size].split(batch_size):
        inputs, labels = cut(batch, places)
        logits = memory(embedding(inputs))[0] @ embedding.weight.T
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, (logits.argmax(-1) == inputs).float().mean().item()


@cache
def runs():
    """By name, what `train` returns."""
    torch.set_num_threads(1)  # so small a model gains nothing from more
    return {name: train(places) for name, places in PLACES.items()}


def opening():
    losses = {name: losses for name, (losses, _) in runs().items()}
    show(
        batches.runs(losses, "Two of these three runs are broken"),
        "The same model, data and seed; one number of the collator differs. A running mean over ten steps.",
        "Loss over 100 steps of three runs: B falls almost to zero, A and C stay far above it, C a little above A.",
    )


@answer("03.1", "BAC", words=("Run B's labels *are*",))
def answer_1():
    (loss_a, copies_a), (loss_b, copies_b), (loss_c, copies_c) = (
        (np.mean(losses[-20:]), copies) for losses, copies in runs().values()
    )
    assert loss_b < 0.5 * loss_a < loss_a < loss_c
    assert copies_b > 0.8 > 0.2 > max(copies_a, copies_c)
    for name, places in PLACES.items():
        print(f"{name}: labels moved by {places}")
    print("run B answers with the token that it has just read")


@answer("03.2", 9, words=("one for each document, minus one",), within=1)
def answer_2(dataset, EOS):
    firsts = sum(int((dataset[k]["input_ids"][:-1] == EOS).sum()) for k in range(10))
    assert firsts == 12 - 3
    print(firsts, "of 80")


@answer("03.3", "always", words=("before any process starts",))
def answer_3(dataset):
    def all_inputs(workers):
        loader = build_nanoset_dataloader(dataset, micro_batch_size=2, num_loading_workers=workers)
        return torch.cat([batch["input_ids"] for batch in loader])

    alone = all_inputs(0)
    assert all(torch.equal(alone, all_inputs(workers)) for workers in (1, 2))
    print("the same", list(alone.shape), "ids in the same order, with 0, 1 and 2 workers")


@answer("03.4", 5, words=("Five: the one delivered",))
def answer_4(loader, paths, dataset):
    delivered, given_out = (
        loader.consumed_train_samples,
        loader.batch_sampler.consumed_train_samples,
    )
    assert (delivered, given_out) == (1, 1 + 2 * 2)
    names = list(paths)
    samples = [
        (k, pieces(dataset[k]["input_ids"][:1])[0], names[dataset.order[k][0]]) for k in range(10)
    ]
    have = {
        "the epoch": samples,
        "handed out": samples[:given_out],
        "the loop got": samples[:delivered],
    }
    show(
        batches.samples(
            have, "Four samples were handed out and not delivered", lost=range(delivered, given_out)
        ),
        "Each sample with its position and its first token. A resume from the sampler's count would skip the"
        " four in red.",
        "Three rows of samples: the ten of the epoch, positions 0 to 4 which the sampler handed out, and "
        "position 0 which the training loop got. Positions 1 to 4 are framed in red: prefetched and not "
        "delivered.",
    )


def loader_ahead(nanoset, workers, batches_ahead):
    """A loader with batches of one sample, whose workers read ahead by torch's rule.

    This package's loader has a rule of its own (notebook 15), but not for a collator that it does not know.
    """
    options = {
        "collate_fn": DataCollatorForCLM(8, 0, 0, 0).__call__,
        "num_loading_workers": workers,
    }
    if workers:
        options["prefetch_factor"] = batches_ahead
    return build_nanoset_dataloader(nanoset, micro_batch_size=1, **options)


@cache
def given_out(nanoset, workers, ahead, most):
    """How many samples the sampler has handed out once the loop got 1, 2, ... `most`, in batches of one."""
    loader = loader_ahead(nanoset, workers, ahead)
    return [loader.batch_sampler.consumed_train_samples for _ in islice(loader, most)]


@figure("03.1")
def figure_1(paths):
    longer = Nanoset(list(paths.values()), None, sequence_length=8, train_split_num_samples=20)
    names = list(paths)
    boxes = [Box(k, k, SOURCES[names[longer.order[k][0]]][0]) for k in range(20)]
    got = list(range(1, 9))

    def state(workers, ahead, delivered):
        given = given_out(longer, workers, ahead, len(got))[delivered - 1]
        rows = {"waiting": boxes[given:]}
        for worker in range(workers):
            rows[f"worker {worker}"] = [
                boxes[k] for k in range(delivered, given) if k % workers == worker
            ]
        rows["delivered"] = boxes[:delivered]
        return State(
            f"{delivered} delivered, {given} handed out: a resume from there skips {given - delivered}",
            rows,
        )

    show(
        Moving(
            {"workers": [0, 1, 2], "batches ahead of each": [1, 2, 3], "delivered": got},
            state,
            (2, 2, 4),
            length=20,
            gliding=True,
        ),
        "Twenty positions, one sample in a batch. What a worker holds has left the sampler and not reached the loop.",
        "Rows of positions. Positions 0 to 3 are delivered; worker 0 holds positions 4 and 6, worker 1 holds 5 and 7; "
        "8 to 19 are waiting.",
    )


@figure("03.2")
def figure_2(dataset):
    show(
        batches.shift(
            pieces(dataset[4]["input_ids"]), "Nine tokens make eight inputs and eight labels"
        ),
        "After each input, and with everything to its left in mind, the model has to say the label above it.",
        "The nine tokens of a sample, from The to the. Below them the labels, which are the last eight, each one place "
        "to the left; below those the inputs, the first eight, with an arrow from each input up to its label.",
    )


@rule("03.1", "a bool tensor; keep the labels that are EOS, and hide those whose *input* is EOS")
def rule_1(it, read, EOS):
    return torch.equal(it, torch.from_numpy(loss_mask(starts_after_eos(read, EOS))))


@rule("03.2", "n samples of S + 1 tokens that overlap by one have n S + 1 tokens")
def rule_2(it):
    return tuple(it) == (n := plain.count_samples(10**9, 4096), 10**9 - (n * 4096 + 1))


@rule("03.3", "for m places, labels[:, :L - m] equals inputs[:, m:]; beware of [:-m] when m is 0")
def rule_3(it):
    return [it(*cut(stories()[0][:4], places)) for places in range(4)] == [0, 1, 2, 3]
