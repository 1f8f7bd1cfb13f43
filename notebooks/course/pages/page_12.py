"""Notebook 12: its opening, what its folds and figures show, and the rules of its exercises."""

import json
import shutil
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from course import DOCUMENTS, show
from course.registry import answer, figure, rule
from figures import chunks as pictures
from nanoset_ref import Encoder, Nanoset, load_tokenizer, plain, prepare_corpus
from nanoset_ref.chunks import Packer, TokenizeConfig, mix, tokenize

ROOT = Path("data/12")
ROW, CHUNKS, HELD_OUT, STEP = 65, 36, 8, 4  # tokens, chunks, rows of each subset, rows of a batch
NAMES = list(DOCUMENTS)


class Prepared(NamedTuple):
    """A corpus, and the reports on tokenizing it and on dealing it out."""

    corpus: Any
    tokenized: Any
    dealt: Any


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_chunks(folder, chunks=CHUNKS):
    rows = [
        row for chunk in range(chunks) for row in rows_of(folder / f"train/train_{chunk}.jsonl")
    ]
    return torch.tensor([row["token_ids"] for row in rows]), [
        NAMES.index(row["source"]) for row in rows
    ]


def train(ids, held_out):
    """A Llama of 370,000 parameters reads the rows in order; its losses on held-out rows along the way."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=4096, tie_word_embeddings=True, use_cache=False, **sizes)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(rows):
        logits = model(input_ids=rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), rows[:, 1:], reduction="none"
        ).mean(1)

    losses = []
    for step, batch in enumerate(ids.split(STEP)[: len(ids) // STEP]):
        if step % 8 == 0:
            with torch.no_grad():
                losses.append(loss_of(held_out).view(len(NAMES), -1).mean(1).numpy())
        optimizer.zero_grad()
        loss_of(batch).mean().backward()
        optimizer.step()
    return np.array(losses)


def lost_tokens(lengths, row_length, workers=1):
    """Tokens in no row when so many workers wrap documents of these lengths, each its own share."""
    packers = [Packer(row_length) for _ in range(workers)]
    for worker, packer in enumerate(packers):
        mine = lengths[worker::workers]
        packer.add(np.zeros(mine.sum(), dtype=np.uint16), mine)
    return sum(len(packer.tail) for packer in packers)


def furthest(order, sizes):
    """How many rows a subset is ahead of its share or behind it, at worst."""
    had = np.cumsum(np.array(order)[:, None] == np.arange(len(sizes)), axis=0)
    return abs(had - np.arange(1, len(had) + 1)[:, None] * np.array(sizes) / sum(sizes)).max()


@cache
def prepared():
    """The corpus tokenized and dealt to chunks, as the opening does it."""
    corpus = prepare_corpus("data")
    shutil.rmtree(ROOT, ignore_errors=True)  # so that everything below is made, not found
    for name, path in corpus.domains.items():
        (ROOT / "corpus" / name).mkdir(parents=True)
        shutil.copy(path, ROOT / "corpus" / name)
    tokenized = tokenize(ROOT / "corpus", ROOT / "tokens", config_of(corpus, concat_tokens=ROW))
    dealt = mix(ROOT / "tokens", ROOT / "dealt", NAMES, CHUNKS, HELD_OUT)
    return Prepared(corpus, tokenized, dealt)


def config_of(corpus, **options):
    return TokenizeConfig(tokenizer=str(corpus.tokenizer), eos_text="<|endoftext|>", **options)


def lengths_of(source):
    """The tokens of each document of a source, its EOS included."""
    texts = [row["text"] for row in rows_of(prepared().corpus.domains[source])]
    return Encoder(load_tokenizer(prepared().corpus.tokenizer), append_eod=True).encode_batch(
        texts
    )[1]


def order_of(chunk):
    """Print where the source of the rows of a chunk changes, and to which."""
    read = [row["source"] for row in rows_of(chunk)]
    changes = [k for k in range(1, len(read)) if read[k] != read[k - 1]]
    print(
        f"{len(read)} rows; the source changes at rows {changes}: {[read[k] for k in (0, *changes)]}"
    )


def blended(shares, num_samples):
    """The other way to prepare the same texts: a token file for each source, blended while a model reads."""
    folder = ROOT / "direct"
    if not folder.exists():
        tokenize(ROOT / "corpus", folder, config_of(prepared().corpus, format="tokens"))
    files = [folder / name / "train_input_ids.npy" for name in NAMES]
    return Nanoset(files, shares, 64, num_samples, random_seed=1, order="stateless")


@cache
def held_out_rows():
    """The rows that no chunk holds [rows, 65], subset by subset."""
    files = [ROOT / f"dealt/valid/{name}.jsonl" for name in NAMES]
    return torch.tensor([row["token_ids"] for file in files for row in rows_of(file)])


@cache
def trained_as_dealt():
    """The losses of a model that reads the first four chunks as they are."""
    ids, _ = read_chunks(ROOT / "dealt", 4)
    return train(ids, held_out_rows())


def without_column(name, table):
    """A printed table without one of its columns."""
    begin = table.index(name)
    end = begin + len(name)
    return "\n".join(line[:begin] + line[end:] for line in table.splitlines())


def opening():
    prepared()
    _, sources = read_chunks(ROOT / "dealt", 4)
    title = "Each source is forgotten while the others are read"
    show(
        pictures.forgetting({title: (sources, trained_as_dealt())}, NAMES, STEP),
        "A small model reads four chunks. The background is the source it is reading; the lines are its "
        "losses on rows of each source that it never trains on.",
        "Three loss curves, one per source, over four chunks. Each falls while its own source is being read, "
        "shown by the background color, and mostly rises while the others are.",
    )


@answer("12.1", 65536, words=("65,536",), within=6000)
def answer_1():
    print(f"{64 * 2048 / 2:,.0f}: each of the 64 tails holds 0 to 2,048 tokens, 1,024 on average")
    lengths = lengths_of("stories")
    show(
        pictures.tails(
            {f"packer {k}": int(lengths[k::6].sum()) for k in range(6)},
            2049,
            "Every packer has its own tail",
        ),
        "Our stories, packed by six workers in rows of 2,049 tokens: full rows, and the tail that fills no row.",
        "Six lines of five to twelve full rows, and behind them a part of a row in a red frame, with the number of "
        "tokens that are lost.",
    )


@answer("12.2", 260, words=("260 rows",))
def answer_2():
    per_chunk, leftover = divmod(1000 - 20, 360)
    print(f"{per_chunk} rows per chunk; {leftover} rows, more than a quarter, are left over")


@answer("12.3", 3.5, words=("forgot them in the next",), within=0.5)
def answer_3(shuffled, shuffled_sources):
    print("held-out loss at the end, to the nearest half nat:")
    for name, before, after in zip(NAMES, trained_as_dealt()[-1], shuffled[-1]):
        print(f"{name:<10} as dealt {round(2 * before) / 2}, shuffled {round(2 * after) / 2}")
        assert after < before - 0.5
    show(
        pictures.forgetting(
            {"Shuffled: all three losses fall": (shuffled_sources, shuffled)}, NAMES, STEP
        ),
        "The rows of the first picture, in the same chunks. Only the order of the rows within each chunk is different.",
        "Three smooth curves that fall steadily, without a tooth, and end far lower than those of the first picture.",
    )


@answer("12.4", 60, words=("almost entirely of row 59",))
def answer_4():
    print(f"{60 * 65 - 60 * 64} tokens: it would consist almost entirely of row 59")


@figure("12.1")
def figure_1(sources, shuffled_sources, blend):
    runs = {"Dealt: one at a time": sources, "Shuffled: about right": shuffled_sources}
    runs["Blended: right to a row or two"] = blend.dataset_index
    for title, read in runs.items():
        print(
            f"{title:<31} first 64 rows {np.bincount(read[:64], minlength=3)}, all {np.bincount(read, minlength=3)}"
        )
    show(
        pictures.mixture_over_time(runs, NAMES, 64),
        "What the model reads, 64 rows at a time, in three orders with the same shares (dashed).",
        "Shares of the three sources along three runs. As dealt they swing between nothing and everything, "
        "shuffled they waver around the dashed average, blended they follow it.",
    )


@answer("12.5", "chunks", words=("only the list of weights",))
def answer_5(N, shares, blend):
    stories, arithmetic, programs = shares
    more = blended([stories, 2 * arithmetic, programs], N)
    print(
        "arithmetic:",
        [int(np.bincount(it.dataset_index)[1]) for it in (blend, more)],
        f"of {N} rows",
    )
    print("chunks: every file; token files: nothing, only the list of weights")


@rule(
    "12.1",
    "try them from the largest that still gives every chunk a row; what does each leave over?",
)
def rule_1(it):
    def left(n, held_out, chunks):
        return len(range(n - held_out)) - chunks * len(
            plain.distribute(range(n), chunks, held_out, Random(0))[1][0]
        )

    def largest(n, held_out, limit):
        return next(k for k in range(n - held_out, 0, -1) if left(n, held_out, k) <= limit)

    return all(
        it(*case) == largest(*case)
        for case in ((100, 20, 0), (100, 20, 7), (97, 8, 3), (120, 1, 10))
    )


@rule(
    "12.2", "a worker loses what is left when its tokens are divided into rows; add the workers up"
)
def rule_2(it, lengths):
    return all(
        it(lengths, 129, workers) == lost_tokens(lengths, 129, workers) for workers in (1, 2, 64)
    )


@rule(
    "12.3",
    "spread the rows of each subset evenly over the chunk: where would row i of n stand, between 0 and 1? Then sort",
)
def rule_3(it):
    return all(
        np.bincount(it(sizes)).tolist() == sizes
        and furthest(it(sizes), sizes) <= max(1, furthest(plain.blend_everything(sizes)[0], sizes))
        for sizes in ([5, 3, 2], [100, 10, 1], [50, 74, 70])
    )
