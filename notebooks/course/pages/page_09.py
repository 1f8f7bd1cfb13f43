"""Notebook 09: its opening, what its folds and figures show, and the rules of its exercises."""

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from course import pieces, show, tiny_corpus
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


def config_for(path, length, samples=None):
    """A config of Megatron's data with every flag for documents on."""
    data = {
        "data_path": path,
        "split": "1,0,0",
        "split_num_samples": (samples, 0, 0),
        "sequence_length": length,
    }
    flags = ["reset_position_ids", "reset_attention_mask", "eod_mask_loss"]
    flags += ["create_attention_mask", "create_cu_seqlens"]
    return NanosetConfig(random_seed=1, eos_token_id=EOS, **data, **dict.fromkeys(flags, True))


def new_model():
    """A small Llama for S tokens, the same every time."""
    torch.set_num_threads(1)  # so small a model gains nothing from more
    torch.manual_seed(0)
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


def trained(rows, steps, batch_size, masked):
    """A model trained with a document mask or a causal one, and its loss at each step."""
    model, losses = new_model(), []
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
    corpus = prepare_corpus("data")
    tokenizer = {
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": corpus.tokenizer,
        "append_eod": True,
    }
    options = tokenizer | {"backend": "hf", "overwrite": True, "progress": False}
    preprocess_corpus(list(corpus.domains.values()), "data/09_all", **options)
    everything = MMapIndexedDataset("data/09_all_text_document")
    short = np.flatnonzero(everything.sequence_lengths <= S)
    chosen = {"train": np.delete(short, np.s_[::10]), "held_out": short[::10]}
    for name, numbers in chosen.items():
        convert([everything], f"data/09_{name}.bin", chosen=[numbers], overwrite=True)
    sizes = {"train": samples, "held_out": None}
    return [
        NanosetBuilder(config_for(f"data/09_{name}", S, size)).build()[0]
        for name, size in sizes.items()
    ]


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
        says = f"{mask} mask: token {token} sees {own} tokens of its own document, {int(seen.sum()) - own} of others"
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


@answer("09.4", False, words=("What the mask gained it",))
def answer_4(masked, test, counts, mean):
    with torch.no_grad():
        ignored = losses_of(masked, test, False)[counts].mean().item()
    assert mean["document mask"] * 1.02 < ignored < mean["causal mask"]
    print(f"{ignored - mean['document mask']:.1f} nats worse than with the mask")
    print(f"{mean['causal mask'] - ignored:.1f} nats better than the model that never had one")


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
