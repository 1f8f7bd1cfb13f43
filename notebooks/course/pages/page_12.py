"""Notebook 12: its opening, what its folds and figures show, and the rules of its exercises."""

import json
import shutil
from functools import cache
from pathlib import Path
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
    rows = [row for chunk in range(chunks) for row in rows_of(folder / f"train/train_{chunk}.jsonl")]
    return torch.tensor([row["token_ids"] for row in rows]), [NAMES.index(row["source"]) for row in rows]


def train(ids, held_out):
    """A Llama of 370,000 parameters reads the rows in order; its losses on held-out rows along the way."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=4096, tie_word_embeddings=True, use_cache=False, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(rows):
        logits = model(input_ids=rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none").mean(1)

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


def token_files():
    """A token file for each subset: the other way to prepare the same texts."""
    tokenize(ROOT / "corpus", ROOT / "direct", config_of(prepared().corpus, format="tokens"))
    return [ROOT / "direct" / name / "train_input_ids.npy" for name in NAMES]


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


def opening():
    prepared()
    _, sources = read_chunks(ROOT / "dealt", 4)
    title = "Held-out loss of each subset, as four balanced chunks are read"
    show(
        pictures.forgetting({title: (sources, trained_as_dealt())}, NAMES, STEP),
        "A small model reads four chunks. The background is the subset it is reading; the lines are its "
        "losses on rows of each subset that it never trains on.",
        "Three loss curves, one per subset, over four chunks. Each falls while its own subset is being read, "
        "shown by the background color, and mostly rises while the others are.",
    )


@answer("12.1", 65536, words=("65,536",), within=6000)
def answer_1():
    print(f"{64 * 2048 / 2:,.0f}: each of the 64 tails holds 0 to 2,048 tokens, 1,024 on average")
    corpus = prepared().corpus
    texts = [row["text"] for row in rows_of(corpus.domains["stories"])]
    _, lengths = Encoder(load_tokenizer(corpus.tokenizer), append_eod=True).encode_batch(texts)
    show(
        pictures.tails(
            {f"packer {k}": int(lengths[k::6].sum()) for k in range(6)}, 2049, "Every packer has its own tail"
        ),
        "Our stories, packed by six workers in rows of 2,049 tokens: full rows, and the tail that fills no row.",
        "Six lines of five to twelve full rows, and behind them a part of a row in a red frame, with the number of "
        "tokens that are lost.",
    )


@answer("12.2", 260, words=("260 rows",))
def answer_2():
    per_chunk, leftover = divmod(1000 - 20, 360)
    print(f"{per_chunk} rows per chunk; {leftover} rows, more than a quarter, are left over")


@answer("12.3", "shuffled", words=("fresh in memory",))
def answer_3(shuffled, sources, shuffled_sources):
    print(
        "the shuffled run ends better at",
        [name for name, good in zip(NAMES, shuffled[-1] < trained_as_dealt()[-1]) if good],
    )
    show(
        pictures.forgetting(
            {
                "As dealt: it forgets": (sources, trained_as_dealt()),
                "Shuffled: it learns": (shuffled_sources, shuffled),
            },
            NAMES,
            STEP,
        ),
        "The same rows in the same chunks. Only the order of the rows within each chunk is different.",
        "Left, chunks as dealt: three saw-tooth curves that fall and climb. Right, shuffled chunks: three "
        "smooth curves that fall steadily and end far lower.",
    )
    assert (shuffled[-1] < trained_as_dealt()[-1] - 0.5).all()


@answer("12.4", 60, words=("almost entirely of row 59",))
def answer_4():
    print(f"{60 * 65 - 60 * 64} tokens: it would consist almost entirely of row 59")


@figure("12.1")
def figure_1(sources, shuffled_sources, blend):
    runs = {"Dealt: one at a time": sources, "Shuffled: about right": shuffled_sources}
    runs["Blended: always right"] = blend.dataset_index
    for title, read in runs.items():
        print(f"{title:<21} first 64 rows {np.bincount(read[:64], minlength=3)}, all {np.bincount(read, minlength=3)}")
    show(
        pictures.mixture_over_time(runs, NAMES, 64),
        "What the model reads, 64 rows at a time, in three orders with the same shares (dashed).",
        "Shares of the three subsets along three runs. As dealt they swing between nothing and everything, "
        "shuffled they waver around the dashed average, blended they follow it.",
    )


@answer("12.5", "chunks", words=("only the list of weights",))
def answer_5(files, N, shares, blend):
    stories, arithmetic, programs = shares
    more = Nanoset(files, [stories, 2 * arithmetic, programs], 64, N, random_seed=1, order="stateless")
    print("arithmetic:", [int(np.bincount(it.dataset_index)[1]) for it in (blend, more)], f"of {N} rows")
    print("chunks: every file; token files: nothing, only the list of weights")


@rule("12.1", "held-out rows are taken away first; then every chunk gets the same number of whole rows")
def rule_1(it):
    return all(it(account.samples, HELD_OUT, CHUNKS) == account.leftover for account in prepared().dealt.conservation)


@rule("12.2", "a worker loses what is left when its tokens are divided into rows; add the workers up")
def rule_2(it, lengths):
    return all(it(lengths, 129, workers) == lost_tokens(lengths, 129, workers) for workers in (1, 2, 64))


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
