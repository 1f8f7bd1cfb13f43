"""Notebook 09: its opening, what its folds and figures show, and the rules of its exercises.

The table of its section 3 is stored in `course/masks.json`; `python -m course.pages.page_09 SEED ...`, in
`notebooks/`, trains the models of these seeds and adds them (for the stored ones, without the file: 0 1 2).
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from course import pieces, show, tiny_corpus
from course.pictures import show_table
from course.registry import answer, figure, rule
from figures import megatron as plots
from figures.draw import SOURCES, printable
from figures.moving import Box, Moving, State
from nanoset_ref import open_tokens, plain, prepare_corpus
from nanoset_ref.load.document_masks import starts_at_boundaries
from nanoset_ref.megatron import (
    MegatronCollator,
    MMapIndexedDataset,
    NanosetBuilder,
    NanosetConfig,
    preprocess_corpus,
)
from nanoset_ref.tokens import convert

EOS = 0
S = 128  # of the trained models
LONGER = Path(__file__).parents[1] / "masks.json"


def config_for(path, length, samples=None, seed=1):
    """A config of Megatron's data with every flag for documents on."""
    data = {
        "data_path": path,
        "split": "1,0,0",
        "split_num_samples": (samples, 0, 0),
        "sequence_length": length,
    }
    flags = ["reset_position_ids", "reset_attention_mask", "eod_mask_loss"]
    flags += ["create_attention_mask", "create_cu_seqlens"]
    return NanosetConfig(random_seed=seed, eos_token_id=EOS, **data, **dict.fromkeys(flags, True))


def new_model(seed=0):
    """A small Llama for S tokens, the same every time."""
    torch.set_num_threads(1)  # so small a model gains nothing from more
    torch.manual_seed(seed)
    size = {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = LlamaConfig(
        vocab_size=4096, max_position_embeddings=S, tie_word_embeddings=True, **size
    )
    return AutoModelForCausalLM.from_config(config)


def logits_of(model, batch, masked, reset=True):
    """The logits [rows, S, vocabulary], with a document mask or a causal one."""
    length = batch["tokens"].shape[1]
    later = ~torch.ones(length, length, dtype=torch.bool).tril()
    hidden = batch["attention_mask"] if masked else later.expand_as(batch["attention_mask"])
    positions = batch["position_ids"] if reset else torch.arange(length).expand_as(batch["tokens"])
    bias = torch.where(hidden, torch.finfo(torch.float32).min, 0.0)
    return model(input_ids=batch["tokens"], attention_mask=bias, position_ids=positions).logits


def leaks(model, batch, masked, reset):
    """Whether the logits of documents 1 and 2 change when document 0 does."""
    other = {**batch, "tokens": batch["tokens"].clone()}
    other["tokens"][0, :5] += 1  # document 0, without its EOS
    with torch.no_grad():
        here, there = (logits_of(model, it, masked, reset)[0, 6:] for it in (batch, other))
    return not torch.allclose(here, there, atol=1e-4)


def losses_of(model, batch, masked):
    """The loss of each prediction [rows, S]."""
    logits = logits_of(model, batch, masked)
    return torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), batch["labels"], reduction="none"
    )


def trained(rows, steps, batch_size, masked, seed=0):
    """A model trained with a document mask or a causal one, and its loss at each step."""
    model, losses = new_model(seed), []
    collate = MegatronCollator(rows.config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        batch = collate([rows[k] for k in range(step * batch_size, (step + 1) * batch_size)])
        loss = losses_of(model, batch, masked)[batch["loss_mask"] > 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def short_documents(samples):
    """Rows of documents of at most S tokens: so many for training, and every tenth document held out."""
    write_short_documents(prepare_corpus("data").domains.values(), "09")
    return rows_of_short_documents(samples, "09")


def write_short_documents(files, name):
    """Two corpora, to train on and held out, of the documents of at most S tokens in some files."""
    tokenizer = {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": prepare_corpus("data").tokenizer,
        "append_eod": True,
    }
    options = tokenizer | {"backend": "hf", "overwrite": True, "progress": False}
    preprocess_corpus(list(files), f"data/{name}_all", **options)
    everything = MMapIndexedDataset(f"data/{name}_all_text_document")
    short = np.flatnonzero(everything.sequence_lengths <= S)
    chosen = {"train": np.delete(short, np.s_[::10]), "held_out": short[::10]}
    for part, numbers in chosen.items():
        convert([everything], f"data/{name}_{part}.bin", chosen=[numbers], overwrite=True)


def rows_of_short_documents(samples, name, seed=1):
    """So many rows to train on, and all that are held out."""
    sizes = {"train": samples, "held_out": None}
    return [
        NanosetBuilder(config_for(f"data/{name}_{part}", S, size, seed)).build()[0]
        for part, size in sizes.items()
    ]


def write_more_text():
    """Five times the text of the course's corpus, by its generator, and its short documents."""
    import corpus_generator

    corpus_generator.DOMAIN_BYTES *= 5
    files = []
    for domain in corpus_generator.WRITERS:
        files.append(Path(f"data/09_more_{domain}.jsonl"))
        documents = map(json.dumps, corpus_generator.write_documents(domain))
        files[-1].write_text("\n".join(documents) + "\n")
    write_short_documents(files, "09_more")


MASKS = {"causal": False, "document": True}


def longer(seed, steps, trained_with, batch_size=8):
    """The held-out loss after a longer run with a mask, by the mask when reading."""
    train, held_out = rows_of_short_documents(steps * batch_size, "09_more", seed)
    test = MegatronCollator(train.config)([held_out[k] for k in range(len(held_out))])
    model, _ = trained(train, steps, batch_size, MASKS[trained_with], seed)
    with torch.no_grad():
        losses = {name: losses_of(model, test, seen) for name, seen in MASKS.items()}
    counts = test["loss_mask"] > 0
    return {
        f"{trained_with} -> {name}": round(it[counts].mean().item(), 3)
        for name, it in losses.items()
    }


def three_documents():
    """A row of ids that holds a story, a program and a sum, and the source of each id."""
    files = {source: open_tokens(path) for source, path in tiny_corpus().items()}
    row, sources = [], []
    for source, number in (("stories", 0), ("programs", 1), ("arithmetic", 0)):
        begin, end = files[source].document_offsets[number : number + 2]
        row.append(files[source].tokens[begin:end])
        sources += [source] * int(end - begin)
    return np.concatenate(row).astype(np.int64), sources


def opening():
    row, kinds = three_documents()
    show(
        plots.attention(list(zip(pieces(row), kinds, strict=True))[:-1]),
        "A row of three documents, 19 inputs. A document mask leaves the colored squares; a causal mask leaves the "
        "hatched ones, too.",
        "A triangle of squares, each token's row showing which earlier tokens it sees. Three colored triangles along "
        "the diagonal are pairs within one document; the rest is hatched: pairs of different documents.",
    )


@answer("09.1", 5, words=("At each EOS",))
def answer_1(batch, row):
    zeros = np.flatnonzero(batch["loss_mask"][0] == 0)
    assert [pieces([row[place]]) for place in zeros] == [["EOS"], ["EOS"]]
    for place in zeros:
        print(
            f"at place {place} the input is {pieces([row[place]])[0]} and the label {pieces([row[place + 1]])[0]!r}"
        )


@figure("09.1")
def figure_1():
    row, sources = three_documents()
    texts = pieces(row)[:-1]
    starts = plain.starts_after_eos(row, EOS)[:-1]
    fields = plain.document_fields(starts)
    document, place = np.cumsum(starts) - 1, fields["position_ids"]
    causal = np.triu(np.ones_like(fields["attention_mask"]), 1)
    hidden = {"causal": causal, "document": fields["attention_mask"]}

    def state(mask, token):
        rows = {f"document {number}": [] for number in range(3)}
        seen = ~hidden[mask][token]
        for other, text in enumerate(texts):
            colour = SOURCES[sources[other]][0] if seen[other] else ""
            look = "thick" if other == token else ""
            rows[f"document {document[other]}"].append(
                Box(int(place[other]), printable(text), colour, 1, look)
            )
        own = int((seen & (document == document[token])).sum())
        others = int(seen.sum()) - own
        name = mask.capitalize()
        says = (
            f"{name} mask: token {token} sees {own} tokens of its own document, {others} of others"
        )
        return State(says, rows)

    show(
        Moving(
            {"mask": list(hidden), "token": list(range(len(texts)))},
            state,
            ("causal", 16),
            length=8,
        ),
        "One row of three documents, a line for each. The thick token looks back; what it sees is colored.",
        "Three lines, one per document of the row. With a causal mask, token 16, in the third document, sees all of "
        "the first two documents and the three tokens of its own up to itself.",
    )


@answer("09.2", 2, words=("Only the mask keeps",))
def answer_2(batch):
    model = new_model()
    for masked in (False, True):
        for reset in (False, True):
            found = "leaks" if leaks(model, batch, masked, reset) else "tight"
            assert found == ("tight" if masked else "leaks")
            print(f"mask {masked!s:<5} positions reset {reset!s:<5} -> {found}")
    with torch.no_grad():
        same = torch.allclose(
            logits_of(model, batch, True, False), logits_of(model, batch, True, True), atol=1e-4
        )
    assert same
    print("with the mask, resetting positions changes the logits:", not same)


@answer("09.3", "document", words=("need not learn to ignore it",))
def answer_3(causal_losses, masked_losses, own, mean, counts, test):
    place = test["position_ids"]
    assert mean["document mask"] < 0.95 * mean["causal mask"]
    for name, loss in mean.items():
        print(f"{name:<13} {loss:.1f} nats per token")

    ranges = {"1st": (0, 1), "2nd-4th": (1, 4), "5th-16th": (4, 16), "later": (16, S)}
    by_place = {
        name: [
            losses[counts & (place >= low) & (place < high)].mean().item()
            for low, high in ranges.values()
        ]
        for name, losses in own.items()
    }
    show(
        plots.mask_losses(
            {
                "With the mask, the loss falls faster": {
                    "causal mask": causal_losses,
                    "document mask": masked_losses,
                },
                "Held out: lower at every place": by_place,
            },
            list(ranges),
        ),
        "The same batches, the same initial weights, one seed. Left: the training loss. Right: the held-out loss, by "
        "the place of the input in its document.",
        "Left, two falling curves: with the document mask the loss falls faster. Right, the held-out loss by"
        " place in the document: the document mask is lower everywhere.",
    )


@answer("09.4", False, words=("It gained more from the mask",))
def answer_4(masked, test, counts, mean):
    with torch.no_grad():
        ignored = losses_of(masked, test, False)[counts].mean().item()
    assert mean["document mask"] * 1.02 < ignored < mean["causal mask"]
    print(f"{ignored - mean['document mask']:.1f} nats worse than with the mask")
    print(f"{mean['causal mask'] - ignored:.1f} nats better than the model that never had one")


def ahead(steps):
    """By how much the document mask is ahead in the stored runs of so many steps, for each seed."""
    stored = json.loads(LONGER.read_text())
    ends = [found[str(steps)] for found in stored.values()]
    return [end["causal -> causal"] - end["document -> document"] for end in ends]


def show_longer():
    """The stored held-out losses of longer runs: the mean of the seeds, and the least and the greatest."""
    stored = json.loads(LONGER.read_text())
    ways = list(stored["0"]["60"])
    rows = []
    for steps in ("60", "480"):
        by_way = [[found[steps][way] for found in stored.values()] for way in ways]
        cells = [f"{np.mean(it):.2f} ({min(it):.2f} to {max(it):.2f})" for it in by_way]
        rows.append([steps, *cells])
    show_table(["steps", *[way.replace("->", "→") for way in ways]], rows)


@answer("09.5", "higher", words=("Slightly higher",))
def answer_5(own, mean, counts):
    everywhere = own["causal mask"].mean().item()
    seams = own["causal mask"][~counts].mean().item()
    assert mean["causal mask"] < everywhere < 1.02 * mean["causal mask"]
    assert seams > 1.1 * mean["causal mask"]
    share = (~counts).float().mean()
    print(
        f"{share:.1%} of the predictions cross an EOS; counting them raises the loss, by less than 2%"
    )


@answer("09.6", "first", words=("0.72", "The first, though"))
def answer_6():
    for which, nats, size in (("first", 2.0, 4), ("second", 1.8, 3)):
        bits = nats / np.log(2) / size
        print(f"{which:<6}  {nats} nats a token, {size} bytes a token: {bits:.2f} bits per byte")


@rule(
    "09.1",
    "the rows are laid end to end, 38 tokens: each document's start, and the end; a row begins a document in any case",
)
def rule_1(it, row):
    two = MegatronCollator(config_for("any", len(row) - 1))([{"input_ids": row}] * 2)
    return list(it) == two["cu_seqlens"].tolist()


@rule("09.2", "S x S bytes; 20 documents have 21 edges")
def rule_2(it):
    return tuple(it) == (
        np.ones((8192, 8192), dtype=bool).nbytes,
        np.zeros(20 + 1, dtype=np.int32).nbytes,
    )


@rule(
    "09.3",
    "a token begins a document if its place in the file is an offset, and so does the first of a row, in any case",
)
def rule_3(f):
    offsets = open_tokens(tiny_corpus()["stories"]).document_offsets
    return all(
        np.array_equal(f(offsets, begin, 9), starts_at_boundaries(offsets, np.array([begin]), 9)[0])
        for begin in range(33)
    )


def repeat(seeds):
    """Train the models of some seeds and store each one's losses; what is stored already is kept."""
    if not Path("data/09_more_held_out.idx").exists():
        write_more_text()
    for seed, steps, mask in itertools.product(seeds, ("60", "480"), MASKS):
        found = json.loads(LONGER.read_text()) if LONGER.exists() else {}
        losses = found.setdefault(seed, {}).setdefault(steps, {})
        if f"{mask} -> causal" not in losses:
            losses.update(longer(int(seed), int(steps), mask))
            LONGER.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    repeat(sys.argv[1:])
