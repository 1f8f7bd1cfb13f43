"""Notebook 07: its opening, what its folds and figures show, and the rules of its exercises."""

import dataclasses
from pathlib import Path

from course import pieces, show, tiny_corpus
from course.registry import answer, figure, rule
from figures import megatron as plots
from figures.draw import COLOURS
from figures.moving import Box, Moving, State
from nanoset_ref import open_tokens, prepare_corpus
from nanoset_ref.megatron import (
    MMapIndexedDataset,
    NanosetBuilder,
    NanosetConfig,
    build_mappings,
    plan_epochs,
    preprocess_corpus,
)
from nanoset_ref.tokens import convert

S = 8


def build(num_samples, corpus="stories"):
    """The training data of a corpus for a run of so many samples."""
    split = {
        "data_path": f"data/07_{corpus}",
        "split": "1,0,0",
        "split_num_samples": (num_samples, 0, 0),
    }
    return NanosetBuilder(NanosetConfig(random_seed=6, sequence_length=S, **split)).build()[0]


def tokens_of(dataset, k):
    """(text, document, width) of each token that position k reads; a document's first one has its number."""
    cells, texts = [], iter(pieces(dataset[k]["input_ids"]))
    for span in dataset.spans(k):
        for token in range(span.start, span.stop):
            text = next(texts)
            if token == span.start:
                text = f"{span.document}:\u00a0{text}"
            cells.append((text, span.document, 1))
    return cells


def two_shuffles():
    """Megatron's indexes of 1.2 epochs of stories, S = 128, with the last epoch kept apart and without.

    Returns:
        The stories, the samples of an epoch, the samples asked for, and the indexes by title.
    """
    corpus = prepare_corpus("data")
    model = {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": corpus.tokenizer,
        "append_eod": True,
    }
    quiet = {"backend": "hf", "overwrite": True, "progress": False}
    preprocess_corpus(corpus.domains["stories"], "data/07_many", **model, **quiet)
    many = MMapIndexedDataset("data/07_many_text_document")
    epoch = plan_epochs(many.num_tokens, None, 128).num_samples
    asked = int(1.2 * epoch)
    apart = plan_epochs(many.num_tokens, asked, 128)
    mixed = dataclasses.replace(
        apart, separate_final_epoch=False, num_samples_before_final_epoch=apart.num_samples
    )
    plans = {"Last epoch kept apart": apart, "All in one shuffle": mixed}
    lengths = many.sequence_lengths
    shuffles = {
        t: build_mappings(lengths, 0, len(many), plan, 128, random_seed=1234)
        for t, plan in plans.items()
    }
    return many, epoch, asked, shuffles


def stories_read(index, asked):
    """How many stories the first samples of a run touch."""
    read = set()
    for j in index["shuffle_index"][:asked]:
        first, last = index["sample_index"][j, 0], index["sample_index"][j + 1, 0]
        read.update(index["document_index"][first : last + 1].tolist())
    return len(read)


def opening():
    paths = tiny_corpus()
    convert([open_tokens(paths["stories"])], "data/07_stories.bin", overwrite=True)
    titles = {8: "The run of 8 samples", 9: "The run of 9: not one whole row is the same"}
    runs = {
        title: {f"k = {k}": tokens_of(build(n), k) for k in range(3)} for n, title in titles.items()
    }
    show(
        plots.bars(runs),
        "The first three rows of each run. Each blue is one of six stories; its number stands on its first token in "
        "the row.",
        "Two panels of three rows of tokens, the first three of a run of 8 samples and of a run of "
        "9: no row is in both.",
    )


@answer("07.1", ".idx", words=("because these documents are tiny",))
def answer_1():
    sizes = {suffix: Path(f"data/07_stories{suffix}").stat().st_size for suffix in (".bin", ".idx")}
    assert sizes == {".bin": 2 * 42, ".idx": 34 + 6 * 4 + 6 * 8 + 7 * 8}
    print(sizes)


@answer("07.2", "EOS", words=("stream's last",))
def answer_2(train, lengths, stories, fast):
    stream = [
        (int(document), place)
        for document in train.document_index
        for place in range(lengths[document])
    ]
    document, place = stream[-1]
    spans = [span for k in range(5) for span in train.spans(k)]
    read = {(span.document, token) for span in spans for token in range(span.start, span.stop)}
    assert {*stream} - read == {(document, place)}
    print(
        f"token {place} of document {document}, {pieces(stories[document])[place]}: the stream's last, not the file's"
    )
    show(
        plots.stream([pieces(document) for document in stories[:]], *fast),
        "Six stories on their way into five samples. Neighboring samples share one token: the last label of"
        " one is the first input of the next.",
        "From top to bottom: six documents in file order, lines to their shuffled order, the cuts into five "
        "samples of nine tokens with one token left over, lines to the shuffled order of the samples, and "
        "the text of each sample.",
    )


@answer("07.3", 8, words=("last token is missing",))
def answer_3(as_documented, train):
    convert([open_tokens(tiny_corpus()["programs"])], "data/07_programs.bin", overwrite=True)
    programs = build(None, "programs")
    (within,) = [k for k in range(len(programs)) if len(programs.spans(k)) == 1]
    print("stories:", *[len(as_documented(train, k)) for k in range(5)], "tokens; wanted", S + 1)
    for name, dataset, k in (("a story", train, 0), ("a program", programs, within)):
        print(f"\n{name}:")
        documented, right = as_documented(dataset, k), dataset[k]["input_ids"].tolist()
        print(f"documented, {len(documented):>2} tokens: {''.join(pieces(documented))!r}")
        print(f"right,      {len(right):>2} tokens: {''.join(pieces(right))!r}")


@answer("07.4", 89, words=("the code reads three",))
def answer_4():
    plan = plan_epochs(tokens_per_epoch=42, num_samples=11, sequence_length=S)
    assert plan.num_epochs == -(-(11 * S + 1) // 42) == 3
    for name, value in vars(plan).items():
        print(f"{name:<30} {value}")


@answer("07.5", 30, words=("loses 31",), within=5)
def answer_5(asked, many, shuffles):
    missing = {title: len(many) - stories_read(index, asked) for title, index in shuffles.items()}
    assert missing == {"Last epoch kept apart": 1, "All in one shuffle": 31}
    print("never read:", missing)


@answer("07.6", 3, words=("9 do not",))
def answer_6():
    for n in range(6, 11):
        plan = build(n).epochs
        assert plan.separate_final_epoch == (n - 5 < int(0.8 * 5))
        print(
            f"{n:>2} samples: {plan.num_epochs} epochs, the last one apart: {plan.separate_final_epoch}"
        )


@figure("07.2")
def figure_2(shuffles, asked, epoch):
    show(
        plots.shuffles(
            {title: index["shuffle_index"] for title, index in shuffles.items()},
            asked,
            epoch,
            "Kept apart, the run reads all of epoch 1; in one shuffle, only a part of it",
        ),
        "Which sample of the stream each position reads. On the left the run has read all of epoch 1 before it touches "
        "epoch 2.",
        "Two clouds of dots, sample against position. Left: first the lower half, then the upper. Right: everywhere at "
        "once. A line marks where the run ends, and the dots after it are gray.",
    )


@figure("07.1")
def figure_1(lengths):
    def state(asked, S):
        plan = plan_epochs(int(lengths.sum()), asked, S)
        indexes = build_mappings(lengths, 0, len(lengths), plan, S, random_seed=6)
        apart = (
            plan.num_samples_before_final_epoch if plan.separate_final_epoch else plan.num_samples
        )
        seam = len(lengths) * (plan.num_epochs - plan.separate_final_epoch)
        documents = indexes["document_index"].tolist()
        rows = {"documents": [], "samples": [], "the run": []}
        for place, document in enumerate(documents):
            left = int(lengths[documents[:place]].sum())
            rows["documents"].append(
                Box(left, document, COLOURS[place >= seam], int(lengths[document]))
            )
        rows["samples"] = [Box(j * S, j, COLOURS[j >= apart], S) for j in range(plan.num_samples)]
        for k, j in enumerate(indexes["shuffle_index"].tolist()):
            rows["the run"].append(
                Box(k * S, j, COLOURS[j >= apart], S) if k < asked else Box(k * S, j, "", S, "lost")
            )
        number = f"{plan.num_epochs} epoch" + "s" * (plan.num_epochs > 1)
        how = (
            ", the last one kept apart"
            if plan.separate_final_epoch
            else ", all in one shuffle" * (plan.num_epochs > 1)
        )
        return State(f"{asked} samples of {S} tokens: {number}{how}", rows)

    show(
        Moving({"samples asked for": list(range(1, 16)), "S": [6, 8, 12]}, state, (8, 8)),
        "The stream of documents, its cuts, and the samples in the order in which the run reads them. "
        "Orange: the last epoch, kept apart. Dashed: built, but not read.",
        "Three rows for 8 samples of 8 tokens. Two epochs of six documents, the second one orange; ten "
        "samples; and their order: the five blue ones, three orange ones, and two dashed ones that are not "
        "read.",
    )


@rule(
    "07.1",
    "25 samples need 2,501 tokens; all of E epochs is cut; compare 25 - 19 with 80% of the 9 samples of an epoch",
)
def rule_1(it):
    wanted = plan_epochs(tokens_per_epoch=1000, num_samples=25, sequence_length=100)
    return it == (wanted.num_epochs, wanted.num_samples, wanted.separate_final_epoch)


@rule("07.2", "two epochs are built in any case; when is the second one no longer kept apart?")
def rule_2(n, many):
    tokens = many.num_tokens
    return [plan_epochs(tokens, m, 128) == plan_epochs(tokens, 1000, 128) for m in (n, n + 1)] == [
        True,
        False,
    ]


@rule(
    "07.3",
    "sample j begins at token j * S of the stream; a token at an end belongs to the next document (side='right')",
)
def rule_3(f, indexes):
    return [tuple(map(int, f(j))) for j in range(6)] == indexes[1]
