"""The control of notebook 17 on real text that no run reads: `python -m benchmarks.order_unread --real FOLDER`.

An order cannot do to a text what it does to its readers, if nobody reads it. So a cost to such a text is a cost of
something else, and bounds what can be said of those that are read.

1. The arms of `order_arms.unread` read WikiText and Shakespeare, with ten new seeds, as in `benchmarks.order_matters`.
   What they should show is written there.
2. Each model is also measured on 128 rows of each text of `TEXTS`, in its own vocabulary.
3. A comparison has the two tests of `benchmarks.order_statistics`; Holm's correction is over all twelve.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.order_arms import FEWER
from benchmarks.order_matters import prepared, save
from benchmarks.order_pieces import UNREAD, Run, runs_of, train_all
from benchmarks.order_questions import Question
from benchmarks.order_statistics import Finding, answers, corrected, rows_of, table
from benchmarks.real_text import documents_of_file
from benchmarks.record import command, machine
from benchmarks.small_model import SIZES, VOCABULARY
from benchmarks.small_text import (
    REAL,
    documents_of,
    held_out_documents,
    held_out_rows,
    parted,
    small_tokenizer,
    write_tokens,
)

SEEDS = range(30, 40)
TEXTS = {"novel": "botchan.jsonl", "code": "sentencepiece.jsonl"}
AGAIN = "all samples, shuffled again"
MEASURED = ("shakespeare", *(UNREAD + name for name in TEXTS))
RESULTS = Path(__file__).with_name("results") / "order_unread.json"


def write_unread(
    folder: Path, real: Path
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Write rows [128, S + 1] of each text of `TEXTS`; what it holds, and the document that each row begins in."""
    place = folder / "small/real"
    documents = documents_of("real", folder, real)
    train = [text for it in documents.values() for text in parted(it)["train"]]
    tokenizer = small_tokenizer(train)
    facts, begun = {}, {}
    for name, file in TEXTS.items():
        texts = documents_of_file(real / file)
        path = place / f"{name}_input_ids.npy"
        tokens = write_tokens(path, texts, tokenizer)
        begun[UNREAD + name] = held_out_documents(path, SIZES["small"])
        np.save(place / f"{UNREAD}{name}.npy", held_out_rows(path, SIZES["small"]))
        facts[UNREAD + name] = {
            "held_out_documents": len(texts),
            "characters_per_token": round(sum(map(len, texts)) / tokens, 3),
        }
    return facts, begun


def asked() -> list[Question]:
    """What few samples and another shuffle do to Shakespeare, which is read, and to what is not."""
    return [
        Question(f"{arm}: {source}", "unread", arm, "all samples", (source,))
        for arm in (*FEWER, AGAIN)
        for source in MEASURED
    ]


def outcomes(path: Path = RESULTS) -> list[Finding]:
    """What the runs say of the comparisons, corrected together."""
    result = json.loads(path.read_text())
    rows = rows_of(path, result["texts"])["real"]
    return corrected(answers(result["runs"], "real", rows, asked()))


def wanted(folder: Path) -> list[Run]:
    return runs_of(folder, ["small"], ["real"], ["unread"], SEEDS)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("data/order_unread"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    facts, documents = prepared(options.folder, "small", "real", options.real)
    more_facts, more_documents = write_unread(options.folder, options.real)
    runs = wanted(options.folder)
    results = train_all(options.folder, runs)
    again = command("order_unread").replace(str(options.real), "FOLDER")
    head = {"command": again, "machine": machine(), "seeds": list(SEEDS)}
    head |= {"sizes": {"small": vars(SIZES["small"])}, "real_text": REAL}
    head |= {"unread_text": TEXTS, "vocabulary": VOCABULARY}
    head |= {"texts": {"real": facts | more_facts}}
    rows = {"real": documents | more_documents}
    save({**head, "runs": results}, rows, options.output)
    print(table(outcomes(options.output)))


if __name__ == "__main__":
    main()
