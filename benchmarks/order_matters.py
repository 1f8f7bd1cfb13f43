"""What the order of the data does to a small model: `python -m benchmarks.order_matters [--output FILE]`.

Four experiments, and six later ones, each on the embedded corpus and, with `--real FOLDER`, on real text that
`benchmarks.real_text` wrote into that folder (WikiText-2 and Shakespeare, known by their checksums). A byte-level BPE
of 512 ids is trained for each text, and every tenth document of a source is held out. `benchmarks.order_statistics`
tests the differences.

    buffers      samples in file order, also with the sources reversed; in file order but for the last 1, 5 or 20% of
                 the steps, which are those of the shuffle; through shuffle buffers of 10 to 10,000 samples, of two
                 kinds; shuffled, twice; sources one after another but each shuffled; sources blended but each in file
                 order; documents shuffled with the samples of each together, and these through a buffer of 1,000. Six
                 of these at a constant learning rate, too, three under WSD and with half and twice the peak, and four
                 in batches of half and twice the size
    repetition   N samples once, shuffled, twice, or N / E of them E times, in the same order again or shuffled anew
                 for every epoch; three of these at a constant learning rate, too
    annealing    the last source, a tenth of the run: spread out, twice, or in its last fifth, under four schedules of
                 the learning rate with three peaks each; under two of them also in its first fifth
    blend        two files of which one has a third of the samples and a weight of a tenth, read for more than five
                 epochs: Nanotron's order, which never reads most of that file, the stateless one, twice, and the
                 stateless one on the samples that Nanotron's reads

1. Every order is made by this package and saved as instance numbers; a Nanoset reads them, a DataLoader batches them.
2. In `buffers` and `annealing` all orders read the same samples, each once; in the others the same number of them.
3. A seed fixes the initial weights and the order, so that arms are compared seed by seed.
4. The loss on held-out samples of each source is measured after equal numbers of tokens, that of each row at the end.

A run takes four to seven seconds of one core, and with ten seeds and both texts there are 1,720 of them. With
`--size medium` a model of 0.56M parameters reads 11.2M tokens of generated text, 20 per parameter, in samples of 256
tokens: six orders of `buffers`, at seven minutes or more each. `--size "medium, short" narrow "narrow, short"` has the
same with a tenth of the text, with the small model's width, and with both: file order and a shuffle. A stopped call
goes on when it is repeated.

Six more experiments came later, and are trained only when they are named:

    batches      file order, shuffled documents and the shuffle in batches of 64, 128 and 256, at a peak that grows
                 with the square root of the batch
    rounds       with `--size narrow`: file order in ten rounds, so that a long run reads a source for no longer at a
                 time than "narrow, short" does; to be compared with that size's shuffle
    steady       file order in one round and in ten, and the shuffle, at a constant rate: whether "rounds" is an effect
                 of the falling one. What it should show is written at `order_arms.steady`
    few          the blend with other samples as few as Nanotron's, and with a little of the source that `blend` never
                 reads. What it should show is written at `order_arms.few`
    unread       `few`, and all samples in another shuffle; for `benchmarks.order_unread`
    blocks       file order in 1, 10 and 100 rounds and the shuffle, also with `--size "small, wide"`, twice as wide
                 as the small model. What it should show is written at `order_arms.blocks`
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.order_arms import EXPERIMENTS, FIRST, own_document_rows
from benchmarks.order_pieces import (
    complete_seeds,
    documents_of_samples,
    documents_read,
    runs_of,
    train_missing,
)
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import (
    REAL,
    documents_of,
    held_out_documents,
    prepare_text,
)

# ---- what came out


REFERENCES = {
    "buffers": "shuffled",
    "repetition": "fresh",
    "annealing": "spread out",
    "blend": "stateless",
    "batches": "shuffled",
    "rounds": "shuffled",
    "steady": "shuffled",
    "few": "all samples",
    "unread": "all samples",
    "blocks": "shuffled",
}


RATE = re.compile(
    r"(, (constant rate|cosine|WSD))?(, (half|twice) the peak)?"
    r"(, batches of \d+)?(, \d% of the middle source)?$"
)


def reference_of(experiment: str, arm: str) -> str:
    """What an arm is compared with: the reference at the same rate, in as large batches, with as much between."""
    return REFERENCES[experiment] + RATE.search(arm).group()


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


def report(runs: Sequence[Mapping[str, Any]]) -> str:
    """A table of all arms: the last held-out loss and its range, and how much more it is than the reference's."""
    lines = []
    for kind in dict.fromkeys(tuple(run["run"][:3]) for run in runs):
        size, text, experiment = kind
        mine = [run for run in runs if tuple(run["run"][:3]) == kind]
        for source in (None, *mine[0]["held_out"]):
            losses = at_the_end(mine, source)
            what = source or "mean of the sources"
            lines.append(f"\n{size}, {text}, {experiment}: held-out loss, {what}")
            for arm, by_seed in losses.items():
                ends = list(by_seed.values())
                reference = losses.get(reference_of(experiment, arm), by_seed)
                more = [by_seed[seed] - reference[seed] for seed in by_seed]
                lines.append(
                    f"  {arm:<50} {np.mean(ends):.3f} ({min(ends):.3f} to {max(ends):.3f})"
                    f"   {np.mean(more):+.3f} ({min(more):+.3f} to {max(more):+.3f})"
                )
    return "\n".join(lines)


def rows_path(path: Path) -> Path:
    """Where the losses of the held-out rows lie, beside the results in a path."""
    return path.with_name(path.stem + "_rows.npz")


def save(result: Mapping[str, Any], documents: Mapping[str, Any], path: Path) -> None:
    """As JSON, a line for each run; the losses of the held-out rows beside it, in hundredths of a nat.

    Args:
        result: what the JSON file holds; of each run, "rows" goes into the other file.
        documents: by text and source, the document that each row begins in.
        path: of the JSON file.
    """
    head = {name: value for name, value in result.items() if name != "runs"}
    lines, rows = [], {}
    for run in result["runs"]:
        shown = {name: value for name, value in run.items() if name != "rows"}
        lines.append("  " + json.dumps(shown))
    for text, sources in documents.items():
        mine = [run for run in result["runs"] if run["run"][1] == text]
        for source, places in sources.items():
            losses = [run["rows"][source] for run in mine]
            hundredths = np.rint(100 * np.array(losses)).astype("uint16")
            rows[f"{text}/{source}/losses"] = hundredths  # [runs of the text, rows]
            rows[f"{text}/{source}/documents"] = np.array(places, "uint16")
    runs = ",\n".join(lines)
    path.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "runs": [\n{runs}\n ]\n}}\n')
    np.savez_compressed(rows_path(path), **rows)


def prepared(
    folder: Path, size: str, text: str, real: Path | None
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """By source, what a text holds in its token files, written if need be; and the documents of its held-out rows."""
    place = folder / size / text
    if not (place / "facts.json").exists():
        prepare_text(documents_of(text, folder, real), place, SIZES[size])
    facts = json.loads((place / "facts.json").read_text())
    paths = {source: place / f"{source}_held_out_input_ids.npy" for source in facts}
    rows = {it: held_out_documents(path, SIZES[size]) for it, path in paths.items()}
    return facts, rows


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--size", nargs="+", choices=SIZES, default=["small"])
    found.add_argument("--experiments", nargs="+", choices=EXPERIMENTS)
    found.add_argument(
        "--real", type=Path, help="the folder that benchmarks.real_text wrote"
    )
    found.add_argument("--seeds", type=int, default=10)
    found.add_argument("--first-seed", type=int, default=0)
    found.add_argument("--processes", type=int, default=1)
    found.add_argument("--most", type=int, help="train at most so many runs now")
    found.add_argument(
        "--folder",
        type=Path,
        default=Path("data/order_matters"),
        help="for token files and finished runs",
    )
    found.add_argument("--output", type=Path, help="write the result here, as JSON")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    generated = not {"smallest", "small", "small, wide"} & {*options.size}
    experiments = options.experiments or (["buffers"] if generated else list(FIRST))
    names = ["generated" if generated else "corpus"]
    if options.real:
        names.append("real")
    texts, documents = {}, {}
    # sizes that are trained together have the same held-out rows
    for name, text in itertools.product(options.size, names):
        facts, documents[text] = prepared(options.folder, name, text, options.real)
        texts[text if len(options.size) == 1 else f"{name}: {text}"] = facts
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = runs_of(options.folder, options.size, names, experiments, seeds)
    trained = train_missing(options.folder, runs, options.processes, options.most)
    for result in trained:
        print(f"{result['run']}, {result['cpu_seconds']} s", flush=True)
    results = complete_seeds(options.folder, runs)
    print(f"{len(results)} of {len(runs)} runs are finished, in complete seeds")
    if not results:
        return
    print(report(results))
    if options.output:
        again = command("order_matters").replace(str(options.real), "FOLDER")
        sizes = {name: vars(SIZES[name]) for name in options.size}
        head = {"command": again, "machine": machine(), "sizes": sizes}
        if "batches" in experiments:
            head["rows_of_own_document"] = {
                text: own_document_rows(
                    documents_of_samples(options.folder, text, options.size[0])
                )
                for text in names
            }
        if "few" in experiments:
            head["documents_of_the_last_source"] = {
                text: documents_read(options.folder, text, options.size[0])
                for text in names
            }
        head |= {"real_text": REAL, "vocabulary": VOCABULARY, "texts": texts}
        save({**head, "runs": results}, documents, options.output)


if __name__ == "__main__":
    main()
