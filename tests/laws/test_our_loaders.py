"""The loaders of this package hold the laws that they claim."""

import pytest

from laws.our_loaders import OURS
from nanoset_ref.laws import check


@pytest.mark.parametrize("name", OURS)
def test_a_loader_of_this_package_holds_its_laws(name: str) -> None:
    report = check(OURS[name], examples=3, budget=150, limit=60.0, largest=257)
    assert report.broken == [], report
