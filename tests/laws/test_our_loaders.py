"""The loaders of this package hold the laws that they claim."""

from pathlib import Path

import pytest

from laws.our_loaders import OURS
from nanoset_ref.laws import Adapter, check, write_corpus

SAME_LOADER = {
    "Nanoset, nanotron",
    "Nanoset, identity",
}  # as "Nanoset, stateless" in all but the order
OF_ORDER = (
    "once ranks order workers repeat seed epochs resume spread weights data".split()
)
RESUMED_HERE_ALONE = {"PackedNanoset", "StackDataset", "StatefulDataLoader"}
RESUMING = {"resume", "killed", "elastic"}


@pytest.mark.parametrize("name", OURS)
def test_a_loader_of_this_package_holds_its_laws(name: str, tmp_path: Path) -> None:
    read_here(OURS[name], tmp_path)
    resumed = RESUMING if name in RESUMED_HERE_ALONE else set()
    cases = {
        law: 4 if law in resumed else 2
        for law in OURS[name].claims.split()
        if name not in SAME_LOADER or law in OF_ORDER
    }
    # some of the numbers of ranks and batches that are drawn have no others with the same product
    for law in cases.keys() & {"order", "elastic"}:
        cases[law] += 3
    for examples in sorted(set(cases.values())):
        chosen = [law for law, count in cases.items() if count == examples]
        report = check(
            OURS[name],
            laws=chosen,
            examples=examples,
            budget=900,
            limit=60.0,
            largest=257,
        )
        assert (report.broken, report.unjudged) == ([], []), report


def read_here(adapter: Adapter, folder: Path) -> None:
    """Read an epoch in this process: the many that the check forks then have imports and kernels."""
    data = 4 if adapter.format == "rows" else write_corpus(folder, adapter.format, [4])
    place = {
        "rank": 0,
        "world_size": 1,
        "workers": 0,
        "seed": 0,
        "epoch": 0,
        "batch_size": 2,
    }
    assert len(list(adapter.make(data, state=None, **place))) == 2
