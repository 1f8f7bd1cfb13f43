"""A pytest plugin: `def test_loader(laws): laws.hold(make)`; `loading_law` gives a test per law."""

import warnings
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Laws:
    """The value of the fixtures `laws` and `loading_law`.

    Args:
        budget: seconds for a test.
        seed: the seed of the search.
        law: the law to check; None: all that the loader claims.
    """

    budget: float
    seed: int
    law: str | None = None

    def hold(self, loader: Any, *, examples: int = 60, **options: Any) -> None:
        """Fail with the report if the loader breaks a law; the options are fields of the adapter.

        If no law was judged, skip the test; if only some were, warn of the others.
        """
        # pytest loads the plugin in every project
        from nanoset_ref.laws.case_search import as_adapter, check

        adapter = as_adapter(loader, options)
        if self.law and self.law not in adapter.claims.split():
            pytest.skip("not claimed")
        report = check(
            adapter,
            laws=self.law,
            budget=self.budget,
            seed=self.seed,
            examples=examples,
        )
        if report.broken:
            first = report.broken[0]
            pytest.fail(f"{report.line(first)}\n{report}", pytrace=False)
        unjudged = "\n".join(map(report.line, report.unjudged))
        if len(report.unjudged) == len(report.outcomes):
            pytest.skip(unjudged or "no law is claimed")
        if unjudged:
            warnings.warn(unjudged, stacklevel=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --laws-budget and --laws-seed."""
    group = parser.getgroup("laws of loading")
    group.addoption(
        "--laws-budget", type=float, default=60.0, help="seconds for a test"
    )
    group.addoption("--laws-seed", type=int, default=0, help="seed of the search")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `loading_law` once for each law."""
    if "loading_law" in metafunc.fixturenames:
        # pytest loads the plugin in every project
        from nanoset_ref.laws.rules import LAWS

        metafunc.parametrize("loading_law", LAWS, indirect=True)


@pytest.fixture
def laws(pytestconfig: pytest.Config) -> Laws:
    """All laws that a loader claims, in one test."""
    return Laws(
        pytestconfig.getoption("--laws-budget"), pytestconfig.getoption("--laws-seed")
    )


@pytest.fixture
def loading_law(request: pytest.FixtureRequest, laws: Laws) -> Laws:
    """One law; the test runs once for each."""
    return Laws(laws.budget, laws.seed, request.param)
