"""Build the cached indexes of a run ahead of it, on one process, so that its ranks only map them.

    python -m nanoset_ref.megatron.index --data-path web_text_document=0.7 books_text_document=0.3 --split 949,50,1 \\
        --sequence-length 4096 --split-num-samples 1000000 1000 0 --random-seed 1234 --path-to-cache cache

The flags are the fields of `NanosetConfig`. A run with the same fields finds everything there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanoset_ref.megatron.builder import NanosetBuilder
from nanoset_ref.megatron.nanoset_config import DataPath, NanosetConfig
from nanoset_ref.preprocess import run_command


def parse_data_path(items: Sequence[str]) -> DataPath:
    """["a", "b"] -> ["a", "b"]; ["a=3", "b=1", "a=2"] -> [3.0, "a", 1.0, "b", 2.0, "a"].

    Raises:
        ValueError: weights for some of them only.
    """
    parts = [item.rpartition("=") for item in items]
    if not any(name for name, _, _ in parts):
        return list(items)
    if not all(name for name, _, _ in parts):
        raise ValueError(f"give every prefix a weight (prefix=weight) or none, got {' '.join(items)}")
    return [entry for name, _, weight in parts for entry in (float(weight), name)]


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.megatron.index") -> int:
    parser = argparse.ArgumentParser(prog=prog, description="Build the cached indexes of a Megatron-style dataset.")
    add = parser.add_argument
    add("--data-path", required=True, nargs="+", help="prefix, several of them, or prefix=weight for each")
    add("--split", default="949,50,1", help="sizes of train, valid and test (default: %(default)s)")
    add("--sequence-length", required=True, type=int, help="tokens per sample")
    add(
        "--split-num-samples",
        nargs=3,
        type=_count,
        default=(None,) * 3,
        metavar=("TRAIN", "VALID", "TEST"),
        help="samples wanted; none: one epoch",
    )
    add("--random-seed", type=int, default=1234, help="seed of every shuffle (default: %(default)s)")
    add("--path-to-cache", required=True, help="the folder of the indexes")
    add(
        "--mid-level-dataset-surplus",
        type=float,
        default=0.005,
        help="reserve of each corpus of a weighted blend (default: %(default)s)",
    )
    add(
        "--no-extra-token",
        dest="add_extra_token_to_sequence",
        action="store_false",
        help="samples of S tokens, not S + 1",
    )
    add(
        "--keep-last-partial",
        dest="drop_last_partial_validation_sequence",
        action="store_false",
        help="keep the last, partial sample of valid",
    )
    options = vars(parser.parse_args(arguments))

    def work() -> list[Any]:
        Path(options["path_to_cache"]).mkdir(parents=True, exist_ok=True)  # a run falls back on memory, this must not
        return NanosetBuilder(NanosetConfig(data_path=parse_data_path(options.pop("data_path")), **options)).build()

    for dataset in run_command(prog, work):
        if dataset is not None:
            sys.stdout.write(f"{dataset}\n")
    return 0


def _count(text: str) -> int | None:
    return None if text.lower() == "none" else int(text)


if __name__ == "__main__":
    sys.exit(main())
