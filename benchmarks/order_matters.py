"""What the order of the data does to a small model: `python -m benchmarks.order_matters [--output FILE]`.

Four experiments, each on the embedded corpus and, with `--real FOLDER`, on real text that `benchmarks.real_text` wrote
into that folder (WikiText-2 and Shakespeare, known by their checksums). A byte-level BPE of 512 ids is trained for each
text, and every tenth document of a source is held out. `benchmarks.order_statistics` tests the differences,
`benchmarks.order_pieces` trains a larger model piece by piece.

    buffers      samples in file order; through shuffle buffers of 10 to 10,000 samples; shuffled;
                 sources one after another but each shuffled; sources blended but each in file order
    repetition   N samples once, or N / E of them E times, in the same order again or shuffled anew for every epoch
    annealing    the last source, a tenth of the run: spread out, in its last fifth or in its first; with a learning
                 rate that falls, and with a constant one
    blend        two files of which one has a third of the samples and a weight of a tenth, read for more than five
                 epochs: Nanotron's order, which never reads most of that file, and the stateless one

1. Every order is made by this package and saved as instance numbers; a Nanoset reads them, a DataLoader batches them.
2. In `buffers` and `annealing` all orders read the same samples, each once; in the others the same number of them.
3. A seed fixes the initial weights and the order, so that arms are compared seed by seed.
4. The loss on held-out samples of each source is measured after equal numbers of tokens.

A run takes three to ten seconds of one core, and there are 250 of them with five seeds. `--size full` takes a larger
model, longer samples and more text: an estimated two hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.order_arms import EXPERIMENTS, Arm, Numbers
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY, train
from benchmarks.small_text import REAL, documents_of, held_out_rows, prepare_text
from nanoset_ref import Nanoset


class Run(NamedTuple):
    """One model to be trained: what it is called, and where its text lies."""

    size: str
    text: str
    experiment: str
    arm: str
    seed: int


@cache
def lengths_of(folder: Path, text: str, size: str) -> dict[str, int]:
    facts = json.loads((folder / size / text / "facts.json").read_text())
    return {name: fact["training_samples"] for name, fact in facts.items()}


def arms_of(
    folder: Path, text: str, experiment: str, size: str, seed: int
) -> dict[str, Arm]:
    return EXPERIMENTS[experiment](
        list(lengths_of(folder, text, size).values()), SIZES[size], seed
    )


def in_order(
    files: Sequence[Path], numbers: Numbers, sequence_length: int, path: Path
) -> Nanoset:
    """The samples of some token files in the order of these instance numbers, which are written to a path."""
    np.save(path, numbers)
    logger = logging.getLogger("nanoset_ref.orders.published")
    logger.addFilter(_leave_out)
    try:
        return Nanoset(
            list(files), None, sequence_length, len(numbers), order=str(path)
        )
    finally:
        logger.removeFilter(_leave_out)


def _leave_out(record: logging.LogRecord) -> bool:
    """A logger's filter: orders here leave samples out on purpose, which it would warn of."""
    return record.levelno >= logging.ERROR


def nanoset_of(folder: Path, run: Run) -> tuple[Nanoset, dict[str, NDArray[Any]], Arm]:
    """The samples of a run in its order, the held-out rows of each source, and the arm."""
    size, sources = SIZES[run.size], list(lengths_of(folder, run.text, run.size))
    arm = arms_of(folder, run.text, run.experiment, run.size, run.seed)[run.arm]
    place = folder / run.size / run.text
    files = [place / f"{name}_train_input_ids.npy" for name in sources]
    data = in_order(
        files, arm.numbers, size.sequence_length, place / f"order_{os.getpid()}.npy"
    )
    held_out = {
        name: held_out_rows(place / f"{name}_held_out_input_ids.npy", size)
        for name in sources
    }
    return data, held_out, arm


def finish(folder: Path, run: Run) -> dict[str, Any]:
    """Train one model; its result."""
    begun = time.process_time()
    data, held_out, arm = nanoset_of(folder, run)
    result = train(data, held_out, SIZES[run.size], run.seed, arm.decay)
    return {
        "run": list(run),
        **result,
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def finished(
    folder: Path, runs: Sequence[Run], processes: int
) -> Iterator[dict[str, Any]]:
    """The results of all runs, in their order."""
    if processes == 1:
        return map(partial(finish, folder), runs)
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn")).map(
        partial(finish, folder), runs
    )


# ---- what came out


REFERENCES = {
    "buffers": "shuffled",
    "repetition": "fresh",
    "annealing": "spread out",
    "blend": "stateless",
}


def at_the_end(
    runs: Iterable[Mapping[str, Any]], source: str | None = None
) -> dict[str, dict[int, float]]:
    """Arm -> seed -> the last held-out loss, of one source or the mean of all; of the runs of one experiment."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        *_, arm, seed = run["run"]
        losses = [run["held_out"][source]] if source else list(run["held_out"].values())
        found.setdefault(arm, {})[seed] = float(
            np.mean([values[-1] for values in losses])
        )
    return found


def effect(
    losses: Mapping[int, float], reference: Mapping[int, float]
) -> tuple[float, float, float, str]:
    """How much more loss than the reference, seed by seed: (mean, smallest, largest, verdict).

    "clear" if the losses of the two do not overlap; "consistent" if they do, but every seed differs in the same
    direction; "none" otherwise.
    """
    seeds = sorted(losses.keys() & reference.keys())
    ours, theirs = (
        np.array([values[seed] for seed in seeds]) for values in (losses, reference)
    )
    more = ours - theirs
    if ours.min() > theirs.max() or ours.max() < theirs.min():
        verdict = "clear"
    else:
        verdict = "consistent" if (more > 0).all() or (more < 0).all() else "none"
    return float(more.mean()), float(more.min()), float(more.max()), verdict


def report(runs: Sequence[Mapping[str, Any]]) -> str:
    """A table of all arms: the last held-out loss with its band, and what it is more than the reference's."""
    lines = []
    for text, experiment in dict.fromkeys(
        (run["run"][1], run["run"][2]) for run in runs
    ):
        mine = [run for run in runs if run["run"][1:3] == [text, experiment]]
        for source in (None, *mine[0]["held_out"]):
            losses = at_the_end(mine, source)
            lines.append(
                f"\n{text}, {experiment}: held-out loss, {source or 'mean of the sources'}"
            )
            for arm, by_seed in losses.items():
                low, high = min(by_seed.values()), max(by_seed.values())
                mean = np.mean(list(by_seed.values()))
                line = f"  {arm:<34} {mean:.3f} ({low:.3f} - {high:.3f}), {len(by_seed)} seeds"
                reference = REFERENCES[experiment] + ", constant rate" * arm.endswith(
                    "constant rate"
                )
                if (
                    arm != reference
                    and losses.get(reference, {}).keys() & by_seed.keys()
                ):
                    more, least, most, verdict = effect(by_seed, losses[reference])
                    line += f"   {more:+.3f} ({least:+.3f} .. {most:+.3f}) {verdict}"
                lines.append(line)
    return "\n".join(lines)


def save(result: Mapping[str, Any], path: Path) -> None:
    """As JSON, a line for each run."""
    head = json.dumps(
        {name: value for name, value in result.items() if name != "runs"}, indent=1
    )
    runs = ",\n".join("  " + json.dumps(run) for run in result["runs"])
    path.write_text(f'{head[:-2]},\n "runs": [\n{runs}\n ]\n}}\n')


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument(
        "--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS)
    )
    parser.add_argument(
        "--real", type=Path, help="the folder that benchmarks.real_text wrote"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("data/order_matters"),
        help="for token files",
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args(arguments)
    texts = {}
    for text in ("corpus", "real") if options.real else ("corpus",):
        folder = options.folder / options.size / text
        if not (folder / "facts.json").exists():
            prepare_text(
                documents_of(text, options.folder, options.real),
                folder,
                SIZES[options.size],
            )
        texts[text] = json.loads((folder / "facts.json").read_text())
    runs = [
        Run(options.size, text, experiment, arm, seed)
        for seed in range(options.seeds)
        for text in texts
        for experiment in options.experiments
        for arm in arms_of(options.folder, text, experiment, options.size, seed)
    ]
    results = []
    for result in finished(options.folder, runs, options.processes):
        results.append(result)
        print(
            f"{len(results)} of {len(runs)}: {result['run']}, {result['cpu_seconds']} s",
            flush=True,
        )
    print(report(results))
    if options.output:
        again = command("order_matters").replace(str(options.real), "FOLDER")
        facts = {
            "command": again,
            "machine": machine(),
            "size": vars(SIZES[options.size]),
        }
        save(
            {
                **facts,
                "real_text": REAL,
                "vocabulary": VOCABULARY,
                "texts": texts,
                "runs": results,
            },
            options.output,
        )


if __name__ == "__main__":
    main()
