"""The loaders of this package hold the laws that they claim."""

import pytest

from laws.our_loaders import OURS
from nanoset_ref.laws import check

RESUMED_HERE_ALONE = {"PackedNanoset", "StackDataset", "StatefulDataLoader"}


@pytest.mark.parametrize("name", OURS)
def test_a_loader_of_this_package_holds_its_laws(name: str) -> None:
    examples = 8 if name in RESUMED_HERE_ALONE else 3
    report = check(OURS[name], examples=examples, budget=150, limit=60.0, largest=257)
    assert (report.broken, report.unjudged) == ([], []), report
