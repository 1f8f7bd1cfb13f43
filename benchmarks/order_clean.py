"""Notebook 17 on held-out text that shares nothing with the training text: `python -m benchmarks.order_clean`.

Most held-out documents of the embedded corpus share 13 tokens in a row with a training one, as its grammars are small.

1. The generator writes `WRITTEN` more documents of each source, behind all numbers of the corpus.
2. Those stay that share no `SHARED` tokens in a row with any training document of any source. The tokens are those of
   the corpus's own tokenizer, as in notebook 08.
3. The arms of `LABELS` are trained with ten seeds, as in `benchmarks.order_matters`. Each model is measured on its
   held-out rows, and on as many rows of the documents that stayed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.order_matters import prepared, save
from benchmarks.order_pieces import CLEAN, Run, complete_seeds, train_missing
from benchmarks.order_questions import APART, BLENDED, Question, questions
from benchmarks.order_statistics import Finding, answers, corrected, rows_of, table
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import (
    EOS_ID,
    documents_of,
    generated_document,
    held_out_documents,
    parted,
    small_tokenizer,
)
from nanoset_ref import TokenFileWriter, prepare_corpus

FIRST_NUMBER, WRITTEN = 10_000, 1_000  # documents of each source
SHARED = 13  # tokens
SEEDS = range(10)
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


def windows(texts: Iterable[str], tokenizer: Tokenizer) -> list[set[tuple[int, ...]]]:
    """All runs of `SHARED` tokens of each document."""
    encoded = [it.ids for it in tokenizer.encode_batch(list(texts))]
    return [
        {tuple(ids[first : first + SHARED]) for first in range(len(ids) - SHARED + 1)}
        for ids in encoded
    ]


def unseen_documents(folder: Path) -> tuple[dict[str, list[str]], Tokenizer]:
    """New documents of each source that share nothing with the training text, and the vocabulary of the models."""
    file = prepare_corpus(folder / "corpus").tokenizer / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    train = {
        source: parted(texts)["train"]
        for source, texts in documents_of("corpus", folder, None).items()
    }
    all_of_it = [text for texts in train.values() for text in texts]
    met = set().union(*windows(all_of_it, tokenizer))
    found = {}
    for source in train:
        texts = [
            generated_document(source, FIRST_NUMBER + number)
            for number in range(WRITTEN)
        ]
        pairs = zip(texts, windows(texts, tokenizer), strict=True)
        found[source] = [text for text, mine in pairs if not mine & met]
    return found, small_tokenizer(all_of_it)


def write_unseen(folder: Path) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Write the held-out files of such documents; what they hold, and the document that each row begins in."""
    documents, tokenizer = unseen_documents(folder)
    facts, rows = {}, {}
    for source, texts in documents.items():
        path = folder / f"small/corpus/{CLEAN}{source}_held_out_input_ids.npy"
        encoded = tokenizer.encode_batch(texts)
        with TokenFileWriter(path, dtype="uint16", overwrite=True) as file:
            file.write_document(
                np.concatenate([[*it.ids, EOS_ID] for it in encoded]).astype("uint16")
            )
        facts[CLEAN + source] = {"written": WRITTEN, "held_out_documents": len(texts)}
        rows[CLEAN + source] = held_out_documents(path, SIZES["small"])
    return facts, rows


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
    more_facts, more_documents = write_unseen(options.folder)
    for name, fact in more_facts.items():
        print(f"{name}: {fact['held_out_documents']} of {fact['written']} documents")
    runs = runs_of_labels()
    for result in train_missing(options.folder, runs, processes=1, most=None):
        print(f"{result['run']}, {result['cpu_seconds']} s", flush=True)
    results = complete_seeds(options.folder, runs)
    head = {"command": command("order_clean"), "machine": machine()}
    head |= {"seeds": list(SEEDS), "sizes": {"small": vars(SIZES["small"])}}
    head |= {"vocabulary": VOCABULARY, "texts": {"corpus": facts | more_facts}}
    rows = {"corpus": documents | more_documents}
    save({**head, "runs": results}, rows, options.output)
    for prefix in ("", CLEAN):
        print(table(outcomes(prefix, options.output)))


if __name__ == "__main__":
    main()
