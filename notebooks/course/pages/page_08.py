"""Notebook 08: its opening, what its folds and figures show, and the rules of its exercises."""

import contextlib
import dataclasses
import io
import re
import shutil
from pathlib import Path

import numpy as np

from course import DOCUMENTS, show, tiny_corpus
from course.corpus import encoded_corpus
from course.registry import answer, rule
from figures import megatron as plots
from nanoset_ref import open_tokens, plain, prepare_corpus
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig, preprocess_corpus
from nanoset_ref.tokens import convert

S = 8
SOURCES = [source for source, texts in DOCUMENTS.items() for _ in texts]  # of the twelve documents


def build(split, data_path="data/08_merged", **options):
    """Train, valid and test of a corpus, in samples of S tokens."""
    config = {
        "sequence_length": S,
        "random_seed": 1,
        "data_path": data_path,
        "split": split,
    } | options
    return NanosetBuilder(NanosetConfig(**config)).build()


def one_file_each(paths):
    """The token file of each source in Megatron's form; their prefixes."""
    for source, path in paths.items():
        convert([open_tokens(path)], f"data/08_{source}.bin", overwrite=True)
    return [f"data/08_{source}" for source in paths]


def many_documents(weights, samples):
    """A config of so many samples of S = 128 from the embedded corpus, one file per source, with an empty cache."""
    corpus = prepare_corpus("data")
    model = {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": corpus.tokenizer,
        "append_eod": True,
    }
    for source, path in corpus.domains.items():
        preprocess_corpus(
            path, f"data/08_many_{source}", **model, backend="hf", overwrite=True, progress=False
        )
    prefixes = [f"data/08_many_{source}_text_document" for source in corpus.domains]
    shutil.rmtree("data/08_cache", ignore_errors=True)
    return NanosetConfig(
        random_seed=1234,
        sequence_length=128,
        data_path=dict(zip(prefixes, weights, strict=True)),
        split="90,8,2",
        split_num_samples=(samples, 100, 0),
        path_to_cache="data/08_cache",
    )


def every_tenth_held_out():
    """The ids of each document of the embedded corpus: every tenth, and all others."""
    ids, lengths = encoded_corpus()
    documents = [part.tolist() for part in np.split(np.asarray(ids), np.cumsum(lengths)[:-1])]
    others = [document for number, document in enumerate(documents) if number % 10]
    return documents[::10], others


def runs_of(ids, length):
    """All runs of so many neighbors in a document."""
    return {tuple(ids[first : first + length]) for first in range(len(ids) - length + 1)}


def third_pass(config, n):
    """Whether a run of so many samples needs a third epoch of stories."""
    longer = dataclasses.replace(config, split_num_samples=(n, 0, 0), path_to_cache=None)
    return NanosetBuilder(longer).build(["train"])[0].datasets[0].epochs.num_epochs > 2


def even(order):
    """Whether each half and each quarter of an order has every source's share, to within one document."""
    if sorted(order) != list(range(12)):
        return False
    parts = [order[i : i + size] for size in (6, 3) for i in range(0, 12, size)]
    counts = [[sum(SOURCES[d] == source for d in part) for source in DOCUMENTS] for part in parts]
    return all(
        abs(c - len(p) * share / 12) < 1
        for p, row in zip(parts, counts)
        for c, share in zip(row, (6, 4, 2))
    )


def repeats(dataset):
    """How many of the last five rows were among the first five."""
    first = {tuple(dataset[k]["input_ids"]) for k in range(5)}
    return sum(tuple(dataset[k]["input_ids"]) in first for k in range(5, 10))


def inputs_read(dataset, rows=10, tokens=42):
    """How many tokens of the stories are an input of so many rows never, once and twice."""
    count = np.zeros(tokens, dtype=int)
    begins = dataset.files[0].document_offsets
    for k in range(rows):
        read = [
            begins[span.document] + token
            for span in dataset.spans(k)
            for token in range(span.start, span.stop)
        ]
        np.add.at(count, read[:-1], 1)  # the last token of a row is a label only
    return [int((count == times).sum()) for times in range(3)]


def told(names):
    """How many documents of each source, such as "6 stories, 2 sums"."""
    plurals = {"story": "stories", "sum": "sums", "program": "programs"}
    counts = {plurals[name]: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def opening():
    paths = tiny_corpus()
    merged = convert(
        [open_tokens(path) for path in paths.values()], "data/08_merged.bin", overwrite=True
    )
    names = [
        {"stories": "story", "arithmetic": "sum", "programs": "program"}[source]
        for source in SOURCES
    ]
    lengths = merged.sequence_lengths
    cuts = dict(
        zip(("train", "valid", "test"), plain.split_corpus("8,2,2", len(SOURCES)), strict=True)
    )
    picture = {
        "documents": list(zip(names, SOURCES, lengths.tolist(), strict=True)),
        "split": [
            (f"{name}: {told(names[first:stop])}", "white", int(lengths[first:stop].sum()))
            for name, (first, stop) in cuts.items()
        ],
    }
    show(
        plots.bars({"Training never sees a program": picture}),
        'Twelve documents in one file, and what `split = "8,2,2"` makes of them.',
        "A row of twelve documents: six stories, four of arithmetic, two programs. Below it the splits: "
        "train has six stories and two sums, valid two sums, test both programs.",
    )


@answer("08.1", 0, words=("rounds to none",))
def answer_1():
    for name, (first, stop) in zip(
        ("train", "valid", "test"), plain.split_corpus("90,8,2", 12), strict=True
    ):
        print(f"documents of {name}: {stop - first}")
    with contextlib.redirect_stderr(io.StringIO()) as said:
        test = build("90,8,2")[2]
    print(
        "test:",
        len(test),
        "samples; a warning says",
        *re.findall("sequences .* tokens", said.getvalue()),
    )
    assert (test.first, test.stop, len(test)) == (12, 12, 0)


@answer("08.2", 12, words=("a third of ten rounds up",))
def answer_2(each):
    taken, _ = plain.blend_targets([1, 1, 1], 10)
    blend = build("1,0,0", dict.fromkeys(each, 1), split_num_samples=(10, 0, 0))[0]
    assert len(blend) == sum(taken) == 12
    print("taken of each:", taken, "| in the blend:", len(blend))


@answer("08.3", 2.38, words=("0.70 passes",), within=0.2)
def answer_3(train):
    read = {}
    for use, domain in zip(train.usage(0, len(train)), DOCUMENTS, strict=True):
        read[domain] = use.epochs
        print(
            f"{domain:<10} {use.read:>5} samples, {use.num_samples} in an epoch: {use.epochs:.2f} passes"
        )
    assert max(read, key=read.get) == "stories"
    show(
        plots.passes(read, "Stories are read more than twice, programs not even once"),
        "To scale: one unit is one pass over the source. None of these numbers is in the config.",
        "A bar of passes for each source, with its number: stories more than two, arithmetic a little more than one, "
        "programs less than one.",
    )


@answer("08.4", "sources", words=("no seed in it",))
def answer_4(config):
    def cached():
        return {path.name for path in (Path("data/08_cache")).glob("*.json")}

    before = cached()
    NanosetBuilder(config).build(["train"])
    assert cached() == before
    NanosetBuilder(dataclasses.replace(config, random_seed=99)).build(["train"])
    assert len(cached() - before) == 3
    print(
        "the same seed: nothing new; a different seed:",
        len(cached() - before),
        "new, one for each source",
    )


@answer("08.5", 0, words=("Megatron 0",))
def answer_5(nanoset, megatron):
    print("rows read twice: Nanoset", repeats(nanoset), "| Megatron", repeats(megatron))
    assert (repeats(nanoset), repeats(megatron)) == (5, 0)
    views = {"Nanoset: the same rows again": nanoset, "Megatron: new neighbors": megatron}
    rows = {
        title: {
            f"k = {k}": [(s.document, s.document, s.stop - s.start) for s in dataset.spans(k)]
            for k in range(10)
        }
        for title, dataset in views.items()
    }
    show(
        plots.bars(rows, side=True),
        "Each row is one sample, and the numbers are its documents. On the left, the second epoch begins at k = 5.",
        "Two columns of ten bars. On the left the second five repeat the first five in the same order, and "
        "neighbors always follow each other in the file. On the right documents meet new neighbors.",
    )


@rule(
    "08.1",
    "the numbers are shares, and their ends are rounded to documents: what share of twelve is one document?",
)
def rule_1(it):
    return it != "90,8,2" and [stop - first for first, stop in plain.split_corpus(it, 12)] == [
        11,
        1,
        0,
    ]


@rule("08.2", "the stories are half of the run, and half a per cent more of them is built")
def rule_2(n, config):
    return not third_pass(config, n) and third_pass(config, n + 10)


@rule(
    "08.3",
    "a greedy blend of sizes 6, 4 and 2 says which source is next, and which of its documents",
)
def rule_3(answer):
    return even(answer)
