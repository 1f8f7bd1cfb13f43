"""Notebook 17 on held-out rows that share nothing with the training text: `python -m benchmarks.order_clean`.

Most held-out documents of the embedded corpus share 13 tokens in a row with a training one, as its grammars are small.

1. The generator writes `WRITTEN` more documents of each source, with numbers that the corpus does not have.
2. They are cut into rows. A row is clean if no `SHARED` of its ids in a row, in the vocabulary of the models, are in a
   training document of any source. 128 clean rows of each source are taken, spread over all of them.
3. The arms of `LABELS` are trained with five seeds, as in `benchmarks.order_matters`. Each model is measured on its
   held-out rows and on the clean ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.order_matters import prepared, save
from benchmarks.order_pieces import CLEAN, Run, train_all
from benchmarks.order_questions import APART, BLENDED, Question, questions
from benchmarks.order_statistics import Finding, answers, corrected, rows_of, table
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import (
    documents_of,
    generated_document,
    parted,
    small_tokenizer,
)

FIRST_NUMBER, WRITTEN = 10_000, 300  # documents of each source
SHARED = 13  # ids
SEEDS = range(5)
SOURCES = ("stories", "arithmetic", "programs")
LABELS = (
    "in file order",
    "a buffer of 1,000",
    APART,
    BLENDED,
    "in file order, last 20% shuffled",
    "16 epochs",
    "last fifth, constant: better source",
)
RESULTS = Path(__file__).with_name("results") / "order_clean.json"


# ---- the text


def windows(ids: NDArray[np.uint16]) -> set[bytes]:
    """All runs of `SHARED` ids.

    >>> len(windows(np.arange(14, dtype="uint16")))
    2
    """
    firsts = range(len(ids) - SHARED + 1)
    return {ids[first : first + SHARED].tobytes() for first in firsts}


def write_clean(folder: Path) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Write clean rows [128, S + 1] of each source; how many there were, and the document that each comes from."""
    documents = documents_of("corpus", folder, None)
    train = [text for it in documents.values() for text in parted(it)["train"]]
    tokenizer = small_tokenizer(train)
    met: set[bytes] = set()
    for text in train:
        met |= windows(encoded(text, tokenizer))
    facts, places = {}, {}
    for source in documents:
        rows, numbers, count = clean_rows(source, tokenizer, met)
        chosen = np.linspace(0, len(rows) - 1, SIZES["small"].held_out).astype(int)
        np.save(folder / f"small/corpus/{CLEAN}{source}.npy", rows[chosen])
        places[CLEAN + source] = numbers[chosen].tolist()
        facts[CLEAN + source] = {
            "documents_written": WRITTEN,
            "rows_written": count,
            "clean_rows": len(rows),
            "documents": len(np.unique(numbers[chosen])),
        }
    return facts, places


def clean_rows(
    source: str, tokenizer: Tokenizer, met: set[bytes]
) -> tuple[NDArray[np.uint16], NDArray[np.int64], int]:
    """The clean rows [n, S + 1] of new documents, the number [n] of the document of each, and of how many rows."""
    length = SIZES["small"].sequence_length
    rows, numbers, count = [], [], 0
    for number in range(WRITTEN):
        ids = encoded(generated_document(source, FIRST_NUMBER + number), tokenizer)
        for first in range(0, len(ids) - length, length):
            row = ids[first : first + length + 1]
            count += 1
            if not windows(row) & met:
                rows.append(row)
                numbers.append(number)
    return np.array(rows), np.array(numbers), count


def encoded(text: str, tokenizer: Tokenizer) -> NDArray[np.uint16]:
    return np.array(tokenizer.encode(text).ids, dtype=np.uint16)


# ---- what came out


def asked(prefix: str = "") -> list[Question]:
    """The comparisons, on the rows of the sources whose names begin so."""
    return [
        it._replace(sources=tuple(prefix + name for name in it.sources or SOURCES))
        for it in questions(SOURCES)
        if it.label in LABELS
    ]


def outcomes(prefix: str = "", path: Path = RESULTS) -> list[Finding]:
    """What the runs say of the comparisons on these rows, corrected together."""
    result = json.loads(path.read_text())
    rows = rows_of(path, result["texts"])["corpus"]
    return corrected(answers(result["runs"], "corpus", rows, asked(prefix)))


def runs_of_labels() -> list[Run]:
    """Both arms of each comparison, seed by seed."""
    arms = {
        (it.experiment, arm): None for it in asked() for arm in (it.arm, it.reference)
    }
    return [Run("small", "corpus", *arm, seed) for seed in SEEDS for arm in arms]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data/order_clean"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    facts, documents = prepared(options.folder, "small", "corpus", None)
    more_facts, more_documents = write_clean(options.folder)
    print(more_facts)
    runs = runs_of_labels()
    results = train_all(options.folder, runs)
    head = {"command": command("order_clean"), "machine": machine()}
    head |= {"seeds": list(SEEDS), "sizes": {"small": vars(SIZES["small"])}}
    head |= {"vocabulary": VOCABULARY, "texts": {"corpus": facts | more_facts}}
    rows = {"corpus": documents | more_documents}
    save({**head, "runs": results}, rows, options.output)
    for prefix in ("", CLEAN):
        print(table(outcomes(prefix, options.output)))


if __name__ == "__main__":
    main()
