"""The recipes of docs/trainers.md, run by two processes: each reads its rank's share, stops, and goes on exactly."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks
from ranks.tasks import run_script

from nanoset_ref import Nanoset, Schedule

ROOT = Path(__file__).parent
SCRIPTS = [
    path
    for path in sorted((ROOT / "trainers").glob("*.py"))
    if path.stem != "trainer_helpers"
]


def test_every_recipe_has_a_script() -> None:
    titles = re.findall(
        "^## (.*)$", (ROOT.parent / "docs" / "trainers.md").read_text(), flags=re.M
    )
    assert sorted(titles) == sorted(
        re.search(r'recipe\("(.*)"\)', path.read_text())[1] for path in SCRIPTS
    )


def firsts(dataset: Nanoset, positions: np.ndarray) -> list[list[int]]:
    """The first token of each sample."""
    return [[int(dataset[k]["input_ids"][0]) for k in row] for row in positions]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_recipe_reads_its_share_and_continues_exactly(
    tmp_path: Path, script: Path
) -> None:
    np.arange(20_000, dtype=np.uint16).tofile(tmp_path / "a_input_ids.npy")
    Ranks(2, run_script, (str(script), str(tmp_path)), tmp_path / "log").wait()
    dataset = Nanoset.from_config(
        str(tmp_path / "a_input_ids.npy"),
        sequence_length=16,
        train_split_num_samples=100,
    )
    schedule = Schedule(dp_size=2, micro_batch_size=2)
    for rank in range(2):
        seen = json.loads((tmp_path / f"{rank}.json").read_text())
        # HF and Lightning run on after the 25th micro-batch, which ends an epoch in the middle of a step
        positions = schedule.rank_batches(0, rank, len(seen["whole"][0]))
        assert len(positions) >= (26 if script.stem in ("hf", "lit") else 18)
        assert seen["whole"][0] == firsts(dataset, positions % 100)
        assert seen["first"][0] + seen["second"][0] == seen["whole"][0]
        assert seen["second"][1] == seen["whole"][1] != seen["first"][1]
        if seen["resized"]:  # after 3 steps of 8 samples
            rest = Schedule(dp_size=2, micro_batch_size=1).rank_batches(24, rank, 8)
            assert seen["resized"][0] == firsts(dataset, rest)
