"""Notebook 14: its opening, what its folds and figures show, and the rules of its exercises.

The losses of its opening are stored in `course/jump.json`; `python -m course.pages.page_14`, in `notebooks/`,
trains the model again and writes them.
"""

import json
import textwrap
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from course import DOCUMENTS, pieces, show
from course.registry import answer, figure, rule
from figures import provenance as pictures
from nanoset_ref import (
    Encoder,
    Nanoset,
    Schedule,
    TokenFileWriter,
    audit,
    build_nanoset_dataloader,
    load_tokenizer,
    open_tokens,
    prepare_corpus,
    when,
    where,
)
from nanoset_ref.provenance import RunSegment

LOSSES = Path(__file__).parents[1] / "jump.json"
BLOB = 292  # the number of the program in whose place an image stands, as text
NAMES = list(DOCUMENTS)


class Prepared(NamedTuple):
    """A run, its token files, the texts in them by source, their tokenizer and its folder."""

    run: Nanoset
    paths: list[str]
    texts: dict[str, list[str]]
    tokenizer: Any
    folder: Path


def image_as_text():
    """300 bytes that mean nothing, as base64: what a crawler finds where a page holds an image."""
    content = block = b"icon"
    while len(content) < 304:
        block = sha256(block).digest()
        content += block
    return f"ICON = '{b64encode(content[4:304]).decode()}'\n"


@cache
def prepared():
    """The course's corpus with a damaged program, read by 500 steps of eight rows at 6 : 3 : 1."""
    corpus = prepare_corpus("data")
    tokenizer = load_tokenizer(corpus.tokenizer)
    encoder = Encoder(tokenizer, append_eod=True)
    texts, paths = {}, []
    for name, path in corpus.domains.items():
        texts[name] = [
            json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()
        ]
        if name == "programs":
            texts[name][BLOB] = image_as_text()
        paths.append(f"data/14_{name}_input_ids.npy")
        with TokenFileWriter(
            paths[-1], dtype="uint16", overwrite=True, eos_token_id=0, vocab_size=4096
        ) as file:
            file.write(*encoder.encode_batch(texts[name]))
    run = Nanoset(
        paths, [6, 3, 1], 128, train_split_num_samples=4000, random_seed=354, order="stateless"
    )
    return Prepared(run, paths, texts, tokenizer, corpus.tokenizer)


def train(suspect=200, early=100):
    """A Llama of 370,000 parameters: its losses by step, and those of a suspect step's rows.

    The rows are read by the model as it was before the `early` step and before the suspect one.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

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
    losses, by_row = [], {}
    for step in range(1, 501):
        if step in (early, suspect):
            with torch.no_grad():
                found = row_losses(model, suspect).mean(1)
            by_row[f"before step {step}"] = [round(loss, 2) for loss in found.tolist()]
        loss = row_losses(model, step).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 3))
    return {"steps": losses, f"rows of step {suspect}": by_row}


def row_losses(model, step):
    """Losses [rows, tokens] of the eight rows of a step, by position."""
    positions = np.arange(8 * (step - 1), 8 * step)
    rows = torch.from_numpy(prepared().run.read(positions).astype(np.int64))
    logits = model(input_ids=rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")


@cache
def stored():
    """The stored losses."""
    return json.loads(LOSSES.read_text(encoding="utf-8"))


def losses():
    """The stored losses, by step from 1 on."""
    return stored()["steps"]


def jumps_of(losses, around=5):
    """By step, how far its loss lies above the mean of so many steps before and after it."""
    return {
        step: losses[step - 1]
        - np.mean(losses[step - 1 - around : step - 1] + losses[step : step + around])
        for step in range(1 + around, len(losses) + 1 - around)
    }


def text_of(origin, part):
    """The text of a part of a sample, with a dot before each EOS."""
    ids = open_tokens(origin.path).tokens[part.first_byte // 2 : part.end_byte // 2]
    return "".join(pieces(ids)).replace("EOS", "·EOS").strip()


def list_rows(origins):
    """Print where each row of step 200 lies, its loss before steps 100 and 200, and what it begins with."""
    by_row = stored()["rows of step 200"].values()
    for origin in origins:
        slot, parts = origin.slot, origin.parts
        who = f"rank {slot.dp_rank}, micro-batch {slot.micro_batch}, row {slot.row}"
        documents = f"{parts[0].document}" + f" to {parts[-1].document}" * (len(parts) > 1)
        first = text_of(origin, parts[0]).replace("\n", " ")
        before = " ".join(f"{losses[slot.position % 8]:>4.1f}" for losses in by_row)
        print(f"{who}: {NAMES[origin.source]:<10} {documents:<10} {before}  {first[:24]}")


def agrees_with_the_loader(run, schedule, step):
    """Whether the loader of rank 1 and the bytes of the files give, in a step, what `where` says."""
    batches = list(build_nanoset_dataloader(run, micro_batch_size=2, dp_rank=1, dp_size=2))
    for origin in where(run, schedule, step=step):
        if origin.slot.dp_rank != 1:
            continue
        batch, row = batches[2 * (step - 1) + origin.slot.micro_batch], origin.slot.row
        content = np.fromfile(origin.path, "<u2")
        spans = [content[part.first_byte // 2 : part.end_byte // 2] for part in origin.parts]
        if [*batch["input_ids"][row], batch["label_ids"][row, -1]] != np.concatenate(
            spans
        ).tolist():
            return False
    return True


def print_report(text, width=88):
    """Print a report of `audit`: a line a property, the files by their sources, and last the account of tokens."""
    blanks = " " * (len(prepared().paths[0]) - len(NAMES[0]))
    account = ""
    for line in text.splitlines():
        short = line.replace("data/14_", "").replace("_input_ids.npy", "")
        if line.startswith("  file"):
            short = line.replace(blanks, "", 1)
        short = short.replace(" workers, all steps simulated", " workers")
        if "nothing is lost: " in short:
            short, account = short.split(": ", 1)
        print(short.replace("step; ", f"step;\n{' ' * 10}"))
    print(textwrap.fill(account, width, initial_indent="  ", subsequent_indent="  "))


def opening():
    show(
        pictures.jump(losses(), range(160, 241), [200], "The loss jumps at step 200"),
        "The training loss, step by step, of a small model that reads the course's corpus (370,000 parameters; "
        "stored, and `python -m course.pages.page_14` trains it again). What did it read in that step?",
        "The training loss of steps 160 to 240 falls from about 2.5 to 2 and swings by some tenths. At step 200, "
        "marked with a dot, it is 3.2, far above its neighbors.",
    )


@figure("14.2")
def figure_2(tiny, layout):
    flow = []
    for origin in sorted(where(tiny, layout, step=3), key=lambda it: it.slot.position):
        who = f"k = {origin.slot.position}", f"rank {origin.slot.dp_rank}"
        for part in origin.parts:
            document = f"{part.document}: {text_of(origin, part)}"
            flow.append((NAMES[origin.source], document, *who, part.stop - part.start))
    show(
        pictures.step(flow, "One step reads four rows, cut from seven documents in three files"),
        "Follow a rank back, from the right: it has two positions, each position holds one sample of nine "
        "tokens, each sample is cut from one or more documents (number: tokens), each document lies in a "
        "file. Heights are tokens.",
        "A flow diagram of one training step. Three files feed pieces of documents, these make the "
        "samples at positions 8 to 11, and the two ranks read alternate positions.",
    )


@answer("14.1", 3, words=("steps [200, 337, 372]",))
def answer_1(run, schedule):
    steps = sorted({slot.step for slot in when(run, schedule, BLOB, source=2)})
    print("a part of it is read in steps", steps)
    jumps = jumps_of(losses())
    highest = sorted(jumps, key=lambda step: -jumps[step])
    for step in steps:
        print(
            f"step {step}: {jumps[step]:.2f} nats above the ten steps around it, "
            f"number {highest.index(step) + 1} of the highest jumps"
        )
    show(
        pictures.jump(
            losses(), range(1, 501), steps, "Two of the three steps that read it jump highest"
        ),
        "The whole run. Dots: the steps that `when` names.",
        "The training loss over 500 steps. It falls from 8.3 to about 1.4. Two dots, at steps 200 and 337, stand "
        "on the highest spikes; the third, at step 372, on none.",
    )


@answer("14.2", 69, words=("Seven tenths of the programs",), within=4)
def answer_2(run):
    for name, read, there in zip(NAMES, run.order.counts(), run.dataset_lengths):
        print(f"{name:<10} {read:>5,} rows read, {there:>5,} samples in the file")


@answer("14.3", True, words=("no gap or overlap",))
def answer_3(run, first):
    wrong = Schedule(dp_size=4, micro_batch_size=2, consumed_train_samples=1000, first_step=251)
    report = audit([first, RunSegment(name="after it", dataset=run, schedule=wrong, num_steps=250)])
    for check in report.segments[1].checks:
        print("holds " if check.holds else "BROKEN", check.rule)
        if not check.holds:
            print(f"       {check.detail}")


@answer("14.4", 50, words=("is never read",), within=10)
def answer_4(comparison):
    changes = {}
    for name, it in zip(NAMES, comparison.files):
        changes[name] = it.new - it.additional, it.lost, it.again, it.additional - it.again
        assert it.saved == changes[name][0] + it.lost
        print(f"{name:<10} {it.lost / it.saved:4.0%} of {it.saved:,} tokens lost; ", end="")
        print(f"of those read instead, {it.again / it.additional:.0%} had been read before")
    show(
        pictures.difference(changes, "A different seed loses what the saved plan would have read"),
        "The rest of the epoch, file by file, in tokens. A bar is all that a plan still reads of the file, repeats "
        "counted; all bars are drawn equally long. Upper bars: the saved plan, with what is lost in a dashed frame. "
        "Lower bars: seed 8; yellow was already read before the stop, gray was not.",
        "Paired bars for three files: tokens that both plans read, tokens lost with the new seed, tokens it "
        "reads again and tokens it reads for the first time. Half of arithmetic is lost, much is read again.",
    )


@answer("14.5", (334, 369), words=("[334, 369]",))
def answer_5(run, schedule, skipping, first):
    loader = build_nanoset_dataloader(
        skipping, micro_batch_size=2, dp_size=2, consumed_train_samples=first
    )
    assert loader.state_dict()["plan"]["order"]["skipped"] == [[first, first + 24]]
    rows = [
        [(row.source, row.sample) for row in where(data, schedule, step=step)]
        for data, step in ((skipping, 200), (run, 203))
    ]
    print(f"step 200 begins at position {first:,}, once {clean_position(skipping, first):,};")
    print("`where` gives its rows as those of step 203 before:", rows[0] == rows[1])
    steps = sorted({slot.step for slot in when(skipping, schedule, BLOB, source=2)})
    print(f"the program is read in steps {steps}, of {len(skipping) // 8} instead of 500")


def clean_position(skipping, position):
    """Where a position was before some were taken out."""
    return int(skipping.order.original(np.array(position)))


@answer("14.6", 797, words=("assumes 797",), within=5)
def answer_6(ledger, naive, changed):
    print(f"read of the programs: {ledger.reads[2]}; the naive order assumes", end=" ")
    print(naive.counts(ledger.position)[2])
    print("tokens up to position", f"{changed['naive'].until:,}:")
    for name, it in changed.items():
        again = sum(file.again for file in it.files)
        print(f"  {name}  {again:>5,} read again, of programs {it.files[2].lost:>6,} lost")


@rule(
    "14.1",
    "8 rows per step, 4 per micro-batch; steps count from 1, all else from 0; neighboring positions go to "
    "different ranks",
)
def rule_1(it, schedule):
    return it == tuple(
        vars(schedule.slot(1006))[name] for name in ("step", "micro_batch", "dp_rank", "row")
    )


@rule(
    "14.2",
    "neighboring samples share one token, so they begin S tokens apart; how many bytes is that?",
)
def rule_2(it, run, schedule):
    return all(
        it(origin.sample) == origin.parts[0].first_byte for origin in where(run, schedule, step=57)
    )


@rule(
    "14.3",
    "sample j holds tokens 128 j to 128 j + 128, both included; give the steps sorted, each once, from 1",
)
def rule_3(it, run, schedule):
    return all(
        list(it(source, document))
        == sorted({slot.step for slot in when(run, schedule, document, source=source)})
        for source in (0, 1, 2)
        for document in (0, 3, 41, 60)
    )


if __name__ == "__main__":
    LOSSES.write_text(json.dumps(train()) + "\n", encoding="utf-8")
