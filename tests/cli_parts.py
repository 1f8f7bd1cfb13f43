"""What the tests of the tool share: where the fixture `corpus` has its token files, and the layout of a run."""

from __future__ import annotations

from pathlib import Path

LAYOUT = ("--sequence-length", "32", "--dp-size", "2", "--micro-batch-size", "2", "--batch-accumulation", "2")


def ids_of(folder: Path, domain: str = "stories") -> Path:
    return folder / f"{domain}_input_ids.npy"
