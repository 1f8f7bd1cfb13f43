"""Notebook 16: its opening, what its folds and figures show, and the rules of its exercises.

The six pairs of its section 4 are stored in `course/packed.json`; `python -m course.pages.page_16`, in `notebooks/`,
trains them again and writes them.
"""

import itertools
import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from course import pieces, show, tiny_corpus
from course.corpus import encoded_corpus
from course.pictures import show_table
from course.registry import answer, figure, rule
from figures import packing as pictures
from figures.draw import SOURCES
from figures.moving import Box, Moving, State
from nanoset_ref import (
    DocumentOptions,
    Nanoset,
    PackedNanoset,
    TokenFileWriter,
    build_nanoset_dataloader,
    open_tokens,
    pack_documents,
    plain,
)

ROW = 15
PAIRS = Path(__file__).parents[1] / "packed.json"


def drawn(rows):
    """Pieces (document, first token, end) with their text; padding where a row is not full."""
    shown = [
        [("".join(stories()[d][begin:end]), d, end - begin) for d, begin, end in row]
        for row in rows
    ]
    sizes = [ROW - sum(end - begin for _, begin, end in row) for row in rows]
    return [row + [("", pictures.PADDING, free)] * (free > 0) for row, free in zip(shown, sizes)]


WRAPPED = [
    [(0, 0, 6), (1, 0, 8), (2, 0, 1)],
    [(2, 1, 7), (3, 0, 7), (4, 0, 2)],
    [(4, 2, 7), (5, 0, 7)],
]


def shares(sizes, R):
    """What each way cuts (documents), loses or pads (tokens), and how many rows it needs."""
    sizes = np.array(sizes)
    offsets = np.append(0, np.cumsum(sizes))
    lost = used = shortened = 0
    for size in sizes.tolist():
        taken = min(size, R - used)
        lost += size - taken
        shortened += taken < size
        used = (used + taken) % R if taken == size else 0
    num_rows = len(pack_documents(offsets, R)[0]) - 1
    documents_cut = {
        "wrap": np.mean(offsets[:-1] // R != (offsets[1:] - 1) // R),
        "best fit": np.mean(sizes > R),
    }
    documents_cut["truncate"] = shortened / len(sizes)
    rows = {"wrap": -(-sizes.sum() // R), "pad": (-(-sizes // R)).sum(), "best fit": num_rows}
    padding = {way: 1 - sizes.sum() / (R * number) for way, number in rows.items()}
    return documents_cut, {"truncate": lost / sizes.sum(), **padding}, rows


def wrapped(sizes, R):
    """Rows of pieces (document, first token, end) of documents laid end to end."""
    rows, used = [], 0
    for document, size in enumerate(sizes):
        begin = 0
        while begin < size:
            if used % R == 0:
                rows.append([])
            end = min(size, begin + R - used % R)
            rows[-1].append((document, begin, end))
            used += end - begin
            begin = end
    return rows


def tree_of(counts):
    """Node 1 is the root, the children of node i are 2i and 2i + 1, and the second half are the leaves."""
    tree = [0] * len(counts) + list(counts)
    for node in reversed(range(1, len(counts))):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    return tree


class Counted:
    """A tree that counts how often a node is looked at."""

    def __init__(self, tree):
        self._tree, self.looks = tree, 0

    def __len__(self):
        return len(self._tree)

    def __getitem__(self, node):
        self.looks += 1
        return self._tree[int(node)]


def lengths_of_others():
    """The lengths of documents of two larger collections, by collection."""
    return json.loads((Path(__file__).parents[1] / "lengths.json").read_text())


@cache
def stories():
    """The six stories, each a list of pieces of text."""
    file = open_tokens(tiny_corpus()["stories"])
    return [pieces(ids) for ids in np.split(file.tokens, file.document_offsets[1:-1])]


def prepared(ids, lengths, sequence_length):
    """Documents to train on, every tenth held out, and those of these that fit into a row; two token files."""
    shuffled = np.random.RandomState(0).permutation(len(lengths))
    documents = np.split(np.asarray(ids), np.cumsum(lengths)[:-1])
    held_out = [documents[number] for number in shuffled[::10]]
    fitting = [document for document in held_out if len(document) <= sequence_length + 1]
    to_train = [documents[number] for number in np.delete(shuffled, np.s_[::10])]
    for name, parts in {"train": to_train, "held_out": fitting[:64]}.items():
        with TokenFileWriter(
            f"data/16_{name}.npy", dtype="uint16", overwrite=True, vocab_size=4096
        ) as file:
            file.write(np.concatenate(parts), [len(part) for part in parts])
    return to_train, held_out, fitting


def trained(rows, documents, steps=40, seed=0):
    """A Llama of 370,000 parameters that has read so many batches of four rows.

    Args:
        rows: a Nanoset or a PackedNanoset.
        documents: the `DocumentOptions` of its masks.
        steps: optimizer steps.
        seed: of the weights.
    """
    torch.set_num_threads(1)  # so small a model gains nothing from more
    torch.manual_seed(seed)
    size = {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    context = {"max_position_embeddings": rows.sequence_length, "tie_word_embeddings": True}
    model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=4096, **context, **size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loader = build_nanoset_dataloader(rows, micro_batch_size=4, documents=documents)
    for batch in itertools.islice(loader, steps):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def loss_of(model, batch):
    """The mean loss of the labels that count."""
    bias = torch.where(batch["attention_mask"], torch.finfo(torch.float32).min, 0.0)
    inputs = {"input_ids": batch["input_ids"].long(), "position_ids": batch["position_ids"]}
    logits = model(**inputs, attention_mask=bias).logits
    counts = batch["label_mask"]
    return torch.nn.functional.cross_entropy(logits[counts], batch["label_ids"][counts].long())


def opening():
    texts = stories()
    sizes = [len(text) for text in texts]
    truncated = drawn([[(0, 0, 6), (1, 0, 8), (2, 0, 1)], [(3, 0, 7), (4, 0, 7), (5, 0, 1)]])
    for row, document in zip(truncated, (2, 5), strict=True):
        row.append((f"rest of {document}", pictures.LOST, sizes[document] - 1))
    show(
        pictures.ways(
            {
                "Wrap: cuts two documents": drawn(WRAPPED),
                "Truncate: loses what does not fit": truncated,
                "Pad: a row for each document": drawn(
                    [[(d, 0, size)] for d, size in enumerate(sizes)]
                ),
                "Best fit: whole documents side by side": drawn(plain.best_fit(sizes, ROW)),
            },
            ROW,
            "Best fit cuts no story and pads three tokens",
        ),
        "Six stories, 0 to 5, in rows of 15 tokens. The line is the end of a row, gray is padding, red text "
        "is in no row. The table counts documents cut, tokens lost and tokens of padding.",
        "Four panels. Wrapped, six stories fill three rows and two are cut. Truncated, two rows; two stories lose "
        "their ends. Padded, six rows, more than half of them padding. By best fit, three rows, no story "
        "cut, three tokens of padding.",
    )


@answer("16.1", 8, words=("8 tokens of padding",))
def answer_1():
    rows = plain.best_fit([9, 5, 5, 4, 3, 2], 9)
    for row in rows:
        print(
            [end - begin for _, begin, end in row],
            "padding",
            9 - sum(end - begin for _, begin, end in row),
        )
    assert [len(row) for row in rows] == [1, 2, 2, 1]


@figure("16.2")
def figure_2():
    names, sizes = [], []
    for source, path in tiny_corpus().items():
        for size in np.diff(open_tokens(path).document_offsets).tolist():
            names.append(source)
            sizes.append(size)
    longest_first = sorted(range(len(sizes)), key=lambda document: -sizes[document])
    orders = {"best fit": longest_first, "wrap": list(range(len(sizes)))}

    def state(way, placed):
        chosen = orders[way][:placed]
        chosen_sizes = [sizes[document] for document in chosen]
        rows = (
            plain.best_fit(chosen_sizes, ROW) if way == "best fit" else wrapped(chosen_sizes, ROW)
        )
        shown = {f"row {row}": [] for row in range(7)}
        for row, parts in enumerate(rows):
            left = 0
            for place, begin, end in parts:
                document = chosen[place]
                look = "thick" if place == placed - 1 else ""
                text = f"{document}: {end - begin} tokens" if end - begin > 2 else document
                colour = SOURCES[names[document]][0]
                shown[f"row {row}"].append(Box(left, text, colour, end - begin, look))
                left += end - begin
        pieces_of_each = [place for parts in rows for place, _, _ in parts]
        cut = len(pieces_of_each) - len(set(pieces_of_each))
        return State(
            f"{way.capitalize()}: {placed} documents in {len(rows)} rows, {cut} cut", shown
        )

    show(
        Moving(
            {"way": list(orders), "documents": list(range(1, len(sizes) + 1))},
            state,
            ("best fit", 12),
            length=ROW,
        ),
        "The twelve documents of the course in rows of 15 tokens, placed longest first; each box has the number of a "
        "document and its tokens. Thick: the one placed last.",
        "Seven rows of 15 tokens. By best fit, none of the twelve documents is cut: five rows hold two of them, two "
        "hold one.",
    )


DRAWN = (
    ("wrap", "best fit"),
    ("truncate", "pad", "best fit"),
)  # above: documents that are cut; below: tokens


@answer("16.2", 28, words=("28% must be cut",), within=5)
def answer_2(collections):
    LENGTHS = [2**power + 1 for power in range(7, 16)]

    found = {name: [shares(sizes, R) for R in LENGTHS] for name, sizes in collections.items()}
    at_8193 = [by_length[LENGTHS.index(8193)] for by_length in found.values()]
    assert all(rows["wrap"] == rows["best fit"] for _, _, rows in at_8193)
    assert all(tokens["wrap"] == tokens["best fit"] for _, tokens, _ in at_8193)
    table = [
        ["documents cut by wrap", *[f"{cuts['wrap']:.1%}" for cuts, _, _ in at_8193]],
        ["documents cut by truncate", *[f"{cuts['truncate']:.1%}" for cuts, _, _ in at_8193]],
        [
            "documents cut by pad and best fit",
            *[f"{cuts['best fit']:.1%}" for cuts, _, _ in at_8193],
        ],
        ["tokens lost by truncate", *[f"{tokens['truncate']:.1%}" for _, tokens, _ in at_8193]],
        ["padding of pad", *[f"{tokens['pad']:.1%}" for _, tokens, _ in at_8193]],
        [
            "padding of wrap and best fit",
            *[f"{tokens['best fit']:.2%}" for _, tokens, _ in at_8193],
        ],
        ["rows of wrap and best fit", *[str(rows["best fit"]) for _, _, rows in at_8193]],
    ]
    show_table(["rows of 8,193", *found], table)
    show(
        pictures.counts(
            LENGTHS,
            {
                name: [
                    {way: [at[part][way] for at in by_length] for way in drawn}
                    for part, drawn in enumerate(DRAWN)
                ]
                for name, by_length in found.items()
            },
            "Best fit cuts far fewer documents; it pads little once they fill many rows",
        ),
        "Above: share of documents cut (**pad** cuts the same ones as **best fit**). Below: share of tokens lost "
        "(**truncate**) or padded (**pad**, **best fit**).",
        "Three collections. Above, the share of documents cut falls with longer rows; best fit cuts far "
        "fewer than wrap. Below, truncating loses most tokens in short rows, padding wastes most in long ones, "
        "and best fit stays near zero.",
    )
    assert all(
        tokens["best fit"] < 0.01
        for by_length in found.values()
        for _, tokens, rows in by_length
        if rows["best fit"] >= 100
    )


@figure("16.1")
def figure_1():
    show(
        pictures.tree(
            tree_of([0, 2, 0, 0, 1, 0, 0, 0]),
            [11, 3, 6, 12],
            12,
            "Room for 3? Four looks find the row with room for 4",
        ),
        "Boxes that were looked at are yellow, the leaf that was found is violet. Now this row has room for 1.",
        "A binary tree with a leaf for each room from 0 to 7: two rows with room for 1, one with room for 4."
        " The search looks at leaf 3, which is empty, at the box over the leaves 4 to 7, at the one over 4 "
        "and 5, and at leaf 4.",
    )


@answer("16.3", 11, words=("Eleven",))
def answer_3(paths, EOS, masks):
    rows = PackedNanoset(paths["stories"], None, ROW - 1, pad_id=EOS, order="identity")
    batch = list(build_nanoset_dataloader(rows, micro_batch_size=1, documents=masks))[-1]
    print("position_ids", batch["position_ids"][0].tolist())
    print("label_mask  ", batch["label_mask"][0].int().tolist())
    print("cu_seqlens  ", batch["cu_seqlens"].tolist())
    assert batch["label_mask"].sum() == 6 + 5


@answer("16.4", 60, words=("59% of the pairs",), within=10)
def answer_4(lengths):
    offsets = np.append(0, np.cumsum(lengths))
    first, _, sizes = pack_documents(offsets, 2049)
    within = (sizes.astype(np.int64) * (sizes + 1) // 2).sum()
    share = within / ((len(first) - 1) * 2049 * 2050 / 2)
    print(f"{share:.0%} of the pairs, with {len(sizes) / (len(first) - 1):.1f} pieces in a row")
    longest = np.sort(lengths)[-len(lengths) // 10 :].sum() / lengths.sum()
    print(f"a tenth of the documents, the longest, hold {longest:.0%} of the tokens")


def pair(S, EOS, masks, steps=40, seed=0, order_seed=1234):
    """The held-out loss of two models with the same weights at first, by the way their rows were filled."""
    file, order = "data/16_train.npy", {"random_seed": order_seed}
    ways = {
        "wrap": Nanoset(file, None, S, None, **order),
        "best fit": PackedNanoset(file, None, S, pad_id=EOS, **order),
    }
    whole = PackedNanoset("data/16_held_out.npy", None, S, pad_id=EOS)
    (test,) = build_nanoset_dataloader(whole, micro_batch_size=len(whole), documents=masks)
    models = {way: trained(rows, masks, steps, seed) for way, rows in ways.items()}
    with torch.no_grad():
        return {way: loss_of(model, test).item() for way, model in models.items()}


def pairs_of(rows):
    """How many pairs of tokens a causal document mask allows in each row."""
    return np.array([sum((b - a) * (b - a + 1) // 2 for _, a, b in row) for row in rows])


def fullest(steps):
    """The pairs of a step's fullest rank, as a multiple of the mean; steps are [ranks, rows]."""
    sums = np.array([step.sum(axis=1) for step in steps])
    return np.mean(sums.max(axis=1) / sums.mean(axis=1))


def dealt(step):
    """The rows of a step, heaviest first, each to the rank with the fewest pairs that has a place."""
    ranks = [[] for _ in step]
    for pairs in sorted(step.ravel(), reverse=True):
        with_room = [rank for rank in ranks if len(rank) < step.shape[1]]
        min(with_room, key=sum).append(pairs)
    return np.array(ranks)


@answer("16.5", 1.3, words=("1.28", "1.3 times"), within=0.1)
def answer_5(collections):
    rng = np.random.default_rng(0)
    table = []
    for name in ("WikiText-2", "Python 3.11"):
        pairs = pairs_of(plain.best_fit(collections[name], 8193))
        one, four = (
            [rng.choice(pairs, (8, each), replace=False) for _ in range(2000)] for each in (1, 4)
        )
        ways = one, four, [*map(dealt, four)]
        table.append([name, *[f"{fullest(steps):.2f}" for steps in ways]])
    head = "the fullest rank's pairs, as a multiple of the mean"
    show_table([head, "one row each", "four", "four, dealt by their pairs"], table)


@answer("16.6", 3, words=("not even the sign is the same",))
def answer_6(S, EOS, masks):
    losses = pair(S, EOS, masks)
    assert losses["best fit"] < 0.98 * losses["wrap"]
    wins = 0
    print("the six, wrap -> best fit:")
    for steps, pairs in json.loads(PAIRS.read_text()).items():
        print(f"{steps:>4} steps  ", "   ".join(f"{wrap:.2f} -> {fit:.2f}" for wrap, fit in pairs))
        wins += sum(fit < wrap for wrap, fit in pairs)
    print(f"best fit wins {wins} of 6")
    rounded = " -> ".join(f"{round(5 * loss) / 5}" for loss in losses.values())
    print(f"a seventh pair, in another order, 40 steps, to the nearest 0.2: {rounded}")


@rule(
    "16.1",
    "a document is cut if its first and last token are in different rows; np.cumsum(lengths) is where documents end",
)
def rule_1(f, collections):
    return all(
        f(np.array(sizes), R) == round(shares(sizes, R)[0]["wrap"] * len(sizes))
        for sizes in collections.values()
        for R in (129, 2049)
    )


@rule(
    "16.2",
    "keep the number of rows and what the last one has used; a document that would exceed R opens a row",
)
def rule_2(f):
    return (f([3, 3, 3], 6), f([4, 3, 3], 6), f([5, 2, 5, 2], 6)) == (2, 2, 4)


@rule(
    "16.3",
    "a right child is odd, and the parent of node i is i // 2; go down only from a node that counts a row, "
    "and then one look at its left child says where",
)
def rule_3(f):
    return all(
        f(tree := Counted(tree_of(counts)), n)
        == min((c for c in range(n, 256) if counts[c]), default=0)
        and tree.looks <= 24
        for counts in np.random.RandomState(0).binomial(1, 0.01, (20, 256)).tolist()
        for n in range(1, 256)
    )


if __name__ == "__main__":
    prepared(*encoded_corpus(), 256)
    flags = "reset_position_ids", "reset_attention_mask", "eod_mask_loss", "create_cu_seqlens"
    of_the_page = {"S": 256, "EOS": 0, "masks": DocumentOptions(**dict.fromkeys(flags, True))}
    six: dict[int, list] = {40: [], 160: []}
    for steps, number in itertools.product(six, range(3)):
        found = pair(**of_the_page, steps=steps, seed=number, order_seed=number)
        six[steps].append([round(loss, 3) for loss in found.values()])
    PAIRS.write_text(json.dumps(six) + "\n", encoding="utf-8")
