"""What the order of the data does to a small model: `python -m benchmarks.order_matters [--output FILE]`.

Four experiments, each on the embedded corpus and, with `--real FOLDER`, on real text: that folder's files
wikitext2-valid.jsonl, wikitext2-test.jsonl and shakespeare.jsonl ({"text": ...} on each line). A byte-level BPE of 512
ids is trained for each text, and every tenth document of a source is held out.

    buffers      the files one after another, as they lie; through shuffle buffers of 10 to 10,000 samples; shuffled;
                 sources one after another but each shuffled; sources blended but each as it lies
    repetition   N samples once, or N / E of them E times, in the same order again or shuffled anew for every epoch
    annealing    the last source, a tenth of the run: spread out, in its last fifth or in its first; with a learning
                 rate that falls, and with a constant one
    blend        two files of which one has a third of the samples and a weight of a tenth, read for more than five
                 epochs: Nanotron's order, which never reads most of that file, and the stateless one

1. Every order is made by this package and saved as instance numbers; a Nanoset reads them, a DataLoader batches them.
2. In `buffers` and `annealing` all orders read the same samples, each once; in the others the same number of them.
3. A seed fixes the initial weights and the order, so that arms are compared seed by seed.
4. The loss on held-out samples of each source is measured after equal numbers of tokens.

A run takes three to ten seconds of one core, and there are 250 of them with five seeds. Each is appended to a log when
it ends, and a command that was stopped goes on after it. `--size full` takes a larger model, longer samples and more
text: an estimated two hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from benchmarks.record import command, machine
from nanoset_ref import (
    Nanoset,
    NanotronOrder,
    Order,
    StatelessOrder,
    TokenFileWriter,
    build_nanoset_dataloader,
    plain,
    prepare_corpus,
)
from nanoset_ref.streaming.packed import Cursor, window_order

EOS, VOCABULARY, HELD_OUT_EVERY = "<|endoftext|>", 512, 10
REAL = {"wikitext": ("wikitext2-valid.jsonl", "wikitext2-test.jsonl"), "shakespeare": ("shakespeare.jsonl",)}
BUFFERS = (10, 100, 1_000, 10_000, 100_000)  # samples
EPOCHS = (2, 4, 8, 16)

Numbers = NDArray[np.int64]  # instance numbers, file by file: what stands at each position


@dataclass(frozen=True)
class Size:
    """Of the model and of a run.

    Args:
        width, layers, heads: of the model.
        sequence_length: S, in tokens.
        batch: samples per step.
        available: samples of all sources together, at most, cut from the end of each source alike.
        samples: N of `repetition`, `annealing` and `blend`, at most; `buffers` reads all that are available once.
        evaluations: how often in a run the held-out loss is measured.
        held_out: samples per source, spread over its held-out documents.
        learning_rate: at its highest, after a twentieth of the run.
    """

    width: int
    layers: int
    heads: int
    sequence_length: int
    batch: int
    available: int
    samples: int
    evaluations: int
    held_out: int
    learning_rate: float


SIZES = {
    "smallest": Size(16, 1, 2, 16, 4, 160, 64, 2, 4, 1e-2),
    "small": Size(48, 2, 2, 32, 16, 10_240, 6_144, 8, 128, 3e-3),
    "full": Size(128, 3, 4, 64, 16, 27_000, 16_384, 16, 96, 2e-3),
}


@dataclass(frozen=True)
class Arm:
    """One order of an experiment: instance numbers int64 [N], and whether the learning rate falls to a tenth."""

    numbers: Numbers
    decay: bool = True


# ---- the orders


def numbers_of(order: Order | NDArray[np.int64], lengths: Sequence[int]) -> Numbers:
    """The instance numbers of an order over files of these lengths, or of its pairs [N, 2]."""
    datasets, samples = order[:] if isinstance(order, Order) else order.T
    return (np.cumsum(lengths) - lengths)[datasets] + samples


def shuffled(lengths: Sequence[int], seed: int, positions: int | None = None) -> Numbers:
    """The stateless order: a fresh shuffle for each epoch."""
    return numbers_of(StatelessOrder(lengths, None, positions or sum(lengths), seed), lengths)


def buffered(count: int, size: int, seed: int) -> Numbers:
    """Samples as they lie through a shuffle buffer, as a `TokenStream` has it: gather `size`, give them out, again."""
    firsts = range(0, count, size)
    windows = [first + np.array(window_order(min(size, count - first), seed, 0, Cursor(row=first))) for first in firsts]
    return np.concatenate(windows)


def buffers(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    count, first = sum(lengths), np.cumsum(lengths) - lengths
    orders = {
        "as it lies": np.arange(count),
        "shuffled": shuffled(lengths, seed),
        "one after another, each shuffled": np.concatenate(
            [begin + shuffled([length], seed) for begin, length in zip(first, lengths, strict=True)]
        ),
        "blended, each as it lies": numbers_of(
            plain.greedy_blend(plain.normalise(lengths), count, np.array(lengths)), lengths
        ),
    }
    useful = [size for size in BUFFERS if size < count]
    orders |= {f"buffer {size:,}": buffered(count, size, seed) for size in useful}
    return {name: Arm(numbers) for name, numbers in orders.items()}


def run_length(lengths: Sequence[int], size: Size) -> int:
    """N: a multiple of all epochs and batches, for which nine tenths come from all sources but the last."""
    return min(size.samples, sum(lengths[:-1]) * 10 // 9) // 64 * 64


def repetition(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    count = run_length(lengths, size)
    fresh = shuffled(lengths, seed)[:count]
    arms = {"fresh": Arm(fresh)}
    for epochs in EPOCHS:
        part = [count // epochs]
        again = NanotronOrder(part, None, count, seed)
        arms[f"{epochs} epochs, same order"] = Arm(fresh[numbers_of(again, part)])
        arms[f"{epochs} epochs, shuffled anew"] = Arm(fresh[shuffled(part, seed, count)])
    return arms


def annealing(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    count = run_length(lengths, size)
    better = count // 10
    others, last = list(lengths[:-1]), sum(lengths[:-1])
    common = shuffled(others, seed)[: count - better]
    special = last + shuffled([lengths[-1]], seed)[:better]
    fifth = 2 * better

    def mixed(commons: Numbers, specials: Numbers) -> Numbers:
        return np.concatenate([commons, specials])[shuffled([len(commons), len(specials)], seed)]

    rest = common[: count - fifth], common[count - fifth :]
    orders = {
        "spread out": mixed(common, special),
        "in the last fifth": np.append(rest[0], mixed(rest[1], special)),
        "in the first fifth": np.append(mixed(rest[1], special), rest[0]),
    }
    arms = {name: Arm(numbers) for name, numbers in orders.items()}
    return arms | {f"{name}, constant rate": Arm(numbers, decay=False) for name, numbers in orders.items()}


def blend(lengths: Sequence[int], size: Size, seed: int) -> dict[str, Arm]:
    first = np.cumsum(lengths) - lengths
    count = run_length(lengths, size)
    sizes = [count // 8, count // 16]  # of the first and the last source
    arms = {}
    for order in (NanotronOrder, StatelessOrder):
        datasets, samples = order(sizes, [9, 1], count, seed)[:]
        arms[order.name] = Arm(first[[0, -1]][datasets] + samples)
    return arms


EXPERIMENTS = {"buffers": buffers, "repetition": repetition, "annealing": annealing, "blend": blend}


# ---- the model and a run of it


class Block(nn.Module):
    """Attention and a layer of four times the width, each behind a norm and beside a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.project = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = self.attend(self.norms[0](x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(gelu(self.widen(self.norms[1](x)), approximate="tanh"))


class SmallModel(nn.Module):
    """A GPT: ids [B, S] to logits [B, S, vocabulary]."""

    def __init__(self, size: Size, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.ids, self.places = (nn.Embedding(n, size.width) for n in (vocabulary, size.sequence_length))
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, vocabulary, bias=False)
        for table in (self.ids, self.places, self.head):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.ids(ids) + self.places.weight[: ids.shape[1]])))


def loss_of(model: SmallModel, ids: Any, labels: Any) -> torch.Tensor:
    """Mean loss in nats per token, of int arrays [B, S]."""
    ids, labels = (torch.as_tensor(it).long() for it in (ids, labels))
    return cross_entropy(model(ids).flatten(0, 1), labels.flatten())


def train(data: Nanoset, held_out: Mapping[str, NDArray[Any]], size: Size, seed: int, decay: bool = True) -> dict:
    """Train a fresh model on a Nanoset in its order.

    Args:
        data: the samples of the run.
        held_out: rows [n, S + 1] of each source.
        size: of the model and the run.
        seed: of the initial weights.
        decay: whether the learning rate falls to a tenth, in a straight line.

    Returns:
        "tokens" read before each measurement, "held_out": the loss of each source there, "train": the mean loss of the
        steps since the measurement before.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = SmallModel(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate, fused=True)
    steps = len(data) // size.batch
    measured = {round(steps * k / size.evaluations) for k in range(1, size.evaluations + 1)}
    result: dict = {"tokens": [], "held_out": {name: [] for name in held_out}, "train": []}
    since: list[float] = []
    for step, batch in enumerate(build_nanoset_dataloader(data, micro_batch_size=size.batch), 1):
        rate = min(1.0, 20 * step / steps) * (1 - 0.9 * step / steps if decay else 1.0)
        optimizer.param_groups[0]["lr"] = size.learning_rate * rate
        loss = loss_of(model, batch["input_ids"], batch["label_ids"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        since.append(loss.item())
        if step in measured:
            result["tokens"].append(step * size.batch * size.sequence_length)
            result["train"].append(round(float(np.mean(since)), 4))
            since.clear()
            with torch.no_grad():
                for name, rows in held_out.items():
                    result["held_out"][name].append(round(loss_of(model, rows[:, :-1], rows[:, 1:]).item(), 4))
    return result


# ---- the text


def documents_of(text: str, folder: Path, real: Path | None) -> dict[str, list[str]]:
    """The documents of each source of a text: "corpus", or "real", in the order of their files."""
    if text == "corpus":
        paths = {name: [path] for name, path in prepare_corpus(folder / "corpus").domains.items()}
    elif real is not None:
        paths = {name: [real / file for file in files] for name, files in REAL.items()}
    else:
        raise ValueError("the text 'real' needs --real FOLDER, with wikitext2-*.jsonl and shakespeare.jsonl")
    return {
        name: [json.loads(line)["text"] for path in found for line in path.read_text("utf-8").splitlines()]
        for name, found in paths.items()
    }


def small_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A byte-level BPE of 512 ids, trained on these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": [EOS], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, **options))
    return tokenizer


def prepare_text(documents: Mapping[str, Sequence[str]], folder: Path, size: Size) -> dict[str, Any]:
    """Write two token files per source, for training and held out; what they hold, by source.

    Every tenth document is held out. Training files are cut so that they have `size.available` samples in all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        name: {"held_out": texts[::HELD_OUT_EVERY], "train": [t for k, t in enumerate(texts) if k % HELD_OUT_EVERY]}
        for name, texts in documents.items()
    }
    tokenizer = small_tokenizer(text for part in parts.values() for text in part["train"])
    eos = tokenizer.token_to_id(EOS)
    encoded = {
        name: {part: [[*it.ids, eos] for it in tokenizer.encode_batch(texts)] for part, texts in both.items()}
        for name, both in parts.items()
    }
    tokens = {name: sum(map(len, both["train"])) for name, both in encoded.items()}
    share = min(1.0, size.available * size.sequence_length / sum(tokens.values()))
    facts: dict[str, Any] = {}
    for name, both in encoded.items():
        ids = np.concatenate(both["train"])[: int(tokens[name] * share) + 1]
        for part, found in {"train": ids, "held_out": np.concatenate(both["held_out"])}.items():
            with TokenFileWriter(folder / f"{name}_{part}_input_ids.npy", dtype="uint16", overwrite=True) as file:
                file.write_document(found)
        facts[name] = {
            "documents_before_the_cut": len(both["train"]),
            "training_samples": (len(ids) - 1) // size.sequence_length,
            "held_out_documents": len(both["held_out"]),
            "characters_per_token": round(sum(map(len, parts[name]["train"])) / tokens[name], 3),
        }
    (folder / "facts.json").write_text(json.dumps(facts))  # last: the files are complete
    return facts


# ---- runs


@dataclass(frozen=True)
class Run:
    """One model to be trained: what it is called, and where its text lies."""

    size: str
    text: str
    experiment: str
    arm: str
    seed: int

    @property
    def name(self) -> list[Any]:
        return [self.size, self.text, self.experiment, self.arm, self.seed]


@cache
def lengths_of(folder: Path, text: str, size: str) -> dict[str, int]:
    facts = json.loads((folder / size / text / "facts.json").read_text())
    return {name: fact["training_samples"] for name, fact in facts.items()}


def arms_of(folder: Path, text: str, experiment: str, size: str, seed: int) -> dict[str, Arm]:
    return EXPERIMENTS[experiment](list(lengths_of(folder, text, size).values()), SIZES[size], seed)


def in_order(files: Sequence[Path], numbers: Numbers, sequence_length: int, path: Path) -> Nanoset:
    """The samples of some token files in the order of these instance numbers, which are written to a path."""
    logging.getLogger("nanoset_ref.orders.published").setLevel(logging.ERROR)  # it warns of samples left out
    np.save(path, numbers)
    return Nanoset(list(files), None, sequence_length, len(numbers), order=str(path))


def held_out_rows(path: Path, size: Size) -> NDArray[Any]:
    """`size.held_out` samples [n, S + 1], spread over a token file."""
    tokens, length = plain.read_tokens(path), size.sequence_length
    spread = np.linspace(0, plain.count_samples(len(tokens), length) - 1, size.held_out).astype(int)
    return np.stack([plain.read_sample(tokens, k, length) for k in spread])


def nanoset_of(folder: Path, run: Run) -> tuple[Nanoset, dict[str, NDArray[Any]], Arm]:
    """The samples of a run in its order, the held-out rows of each source, and the arm."""
    size, sources = SIZES[run.size], list(lengths_of(folder, run.text, run.size))
    arm = arms_of(folder, run.text, run.experiment, run.size, run.seed)[run.arm]
    place = folder / run.size / run.text
    files = [place / f"{name}_train_input_ids.npy" for name in sources]
    data = in_order(files, arm.numbers, size.sequence_length, place / f"order_{os.getpid()}.npy")
    held_out = {name: held_out_rows(place / f"{name}_held_out_input_ids.npy", size) for name in sources}
    return data, held_out, arm


def finish(folder: Path, run: Run) -> dict[str, Any]:
    """Train one model; its result, as it is logged."""
    begun = time.process_time()
    data, held_out, arm = nanoset_of(folder, run)
    result = train(data, held_out, SIZES[run.size], run.seed, arm.decay)
    return {"run": run.name, **result, "cpu_seconds": round(time.process_time() - begun, 1)}


def logged(log: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Finished runs by name. A line that a killed command left unfinished does not count."""
    found = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            run = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[tuple(run["run"])] = run
    return found


def finished(folder: Path, runs: Sequence[Run], log: Path, processes: int) -> Iterator[dict[str, Any]]:
    """The results of all runs: those in the log as they are, the others trained and logged."""
    known = logged(log)
    yield from (known[tuple(run.name)] for run in runs if tuple(run.name) in known)
    todo = [run for run in runs if tuple(run.name) not in known]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", buffering=1) as file:
        if processes == 1:
            results: Iterable[dict[str, Any]] = (finish(folder, run) for run in todo)
        else:
            pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
            results = (done.result() for done in as_completed([pool.submit(finish, folder, run) for run in todo]))
        for result in results:
            file.write(json.dumps(result) + "\n")
            yield result


# ---- what came out


REFERENCES = {"buffers": "shuffled", "repetition": "fresh", "annealing": "spread out", "blend": "stateless"}


def at_the_end(runs: Iterable[Mapping[str, Any]], source: str | None = None) -> dict[str, dict[int, float]]:
    """Arm -> seed -> the last held-out loss, of one source or the mean of all; of the runs of one experiment."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        *_, arm, seed = run["run"]
        losses = [run["held_out"][source]] if source else list(run["held_out"].values())
        found.setdefault(arm, {})[seed] = float(np.mean([values[-1] for values in losses]))
    return found


def effect(losses: Mapping[int, float], reference: Mapping[int, float]) -> tuple[float, float, float, str]:
    """How much more loss than the reference, seed by seed: (mean, smallest, largest, verdict).

    "clear" if the losses of the two do not overlap; "consistent" if they do, but every seed differs in the same
    direction; "none" otherwise.
    """
    seeds = sorted(losses.keys() & reference.keys())
    ours, theirs = (np.array([values[seed] for seed in seeds]) for values in (losses, reference))
    more = ours - theirs
    if ours.min() > theirs.max() or ours.max() < theirs.min():
        verdict = "clear"
    else:
        verdict = "consistent" if (more > 0).all() or (more < 0).all() else "none"
    return float(more.mean()), float(more.min()), float(more.max()), verdict


def report(runs: Sequence[Mapping[str, Any]]) -> str:
    """A table of all arms: the last held-out loss with its band, and what it is more than the reference's."""
    lines = []
    for text, experiment in dict.fromkeys((run["run"][1], run["run"][2]) for run in runs):
        mine = [run for run in runs if run["run"][1:3] == [text, experiment]]
        for source in (None, *mine[0]["held_out"]):
            losses = at_the_end(mine, source)
            lines.append(f"\n{text}, {experiment}: held-out loss, {source or 'mean of the sources'}")
            for arm, by_seed in losses.items():
                low, high = min(by_seed.values()), max(by_seed.values())
                line = (
                    f"  {arm:<34} {np.mean(list(by_seed.values())):.3f} ({low:.3f} - {high:.3f}), {len(by_seed)} seeds"
                )
                reference = REFERENCES[experiment] + ", constant rate" * arm.endswith("constant rate")
                if arm != reference and losses.get(reference, {}).keys() & by_seed.keys():
                    more, least, most, verdict = effect(by_seed, losses[reference])
                    line += f"   {more:+.3f} ({least:+.3f} .. {most:+.3f}) {verdict}"
                lines.append(line)
    return "\n".join(lines)


def save(result: Mapping[str, Any], path: Path) -> None:
    """As JSON, a line for each run."""
    head = json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=1)
    runs = ",\n".join("  " + json.dumps(run) for run in result["runs"])
    path.write_text(f'{head[:-2]},\n "runs": [\n{runs}\n ]\n}}\n')


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--real", type=Path, help="a folder with WikiText-2 and tinyshakespeare as .jsonl")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("data/order_matters"), help="for token files and the log")
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args(arguments)
    texts = {}
    for text in ("corpus", "real") if options.real else ("corpus",):
        folder = options.folder / options.size / text
        if not (folder / "facts.json").exists():
            prepare_text(documents_of(text, options.folder, options.real), folder, SIZES[options.size])
        texts[text] = json.loads((folder / "facts.json").read_text())
    runs = [
        Run(options.size, text, experiment, arm, seed)
        for seed in range(options.seeds)
        for text in texts
        for experiment in options.experiments
        for arm in arms_of(options.folder, text, experiment, options.size, seed)
    ]
    log, results = options.folder / "runs.jsonl", []
    for result in finished(options.folder, runs, log, options.processes):
        results.append(result)
        print(f"{len(results)} of {len(runs)}: {result['run']}, {result['cpu_seconds']} s", flush=True)
    places = {tuple(run.name): place for place, run in enumerate(runs)}
    results.sort(key=lambda result: places[tuple(result["run"])])
    print(report(results))
    if options.output:
        again = command("order_matters").replace(str(options.real), "FOLDER")
        facts = {"command": again, "machine": machine(), "size": vars(SIZES[options.size])}
        save({**facts, "real_text": REAL, "vocabulary": VOCABULARY, "texts": texts, "runs": results}, options.output)


if __name__ == "__main__":
    main()
