"""The search: hypothesis draws cases, and shrinks a case that breaks a law to the smallest one.

A run is repeatable: the cases follow from the seed, as long as the budget does not end the search
early.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.extras import extra
from nanoset_ref.laws.adapter import Adapter
from nanoset_ref.laws.corpora import write_corpus
from nanoset_ref.laws.findings import Verdict
from nanoset_ref.laws.law_report import LawReport, Outcome
from nanoset_ref.laws.rules import LAWS, check_case
from nanoset_ref.laws.runner import SETTINGS, LoaderProcesses
from nanoset_ref.laws.trial import Case, CaseRefused

with extra("laws", "the search for a case that breaks a law"):
    import hypothesis
    from hypothesis import strategies

STATEFUL = {"resume", "killed", "elastic", "refuses"}
SMALL_CASE = 24  # rows at most, in the cases tried first: quick to run and to shrink
BOUNDARIES = [4**power + 1 for power in range(3, 12)]


def as_adapter(loader: Any, options: dict[str, Any]) -> Adapter:
    """Make an adapter from an adapter or a `make`, with some fields changed.

    Raises:
        TypeError: its claims are not one string.
    """
    adapter = loader if isinstance(loader, Adapter) else Adapter(make=loader)
    adapter = replace(adapter, **options)
    if not isinstance(adapter.claims, str):
        raise TypeError(f"claims must be one string of names, got {adapter.claims!r}")
    return adapter


def check(
    loader: Any,
    *,
    laws: Sequence[str] | str | None = None,
    budget: float = 60.0,
    seed: int = 0,
    examples: int = 60,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> LawReport:
    """Check the laws that a loader claims.

    Args:
        loader: an `Adapter`, or its `make`.
        laws: check only these; None: all that the loader claims.
        budget: seconds for all laws together; a case that has begun is finished.
        seed: the seed of the search.
        examples: the maximum number of cases per law.
        progress: called with the name of each law before its search, and the rest of its line
            after it.
        options: fields of the adapter.

    Raises:
        ImportError: a library that writes the format is not installed.
        ValueError: a law or a claim has an unknown name, a law needs what the adapter lacks, `laws`
            is empty, or a field, the budget or the number of examples is out of range.
        TypeError: `make` does not take the arguments of an adapter; its claims are not one string.
    """
    if not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, got {budget}")
    whole_number(examples, "examples", 1)
    adapter = as_adapter(loader, options)
    _check_signature(adapter)
    checked = _laws_to_check(adapter, laws)
    report = LawReport(adapter, {}, seed)
    show = progress or (lambda text: None)
    end = time.monotonic() + budget
    with LoaderProcesses(adapter) as processes:
        search = Search(processes, seed, examples)
        folder = Path(processes.temporary.name, "1")
        write_corpus(folder, adapter.format, [1])  # fails early
        for number, law in enumerate(checked):
            show(f"{law:<8} ")
            now = time.monotonic()
            left = max(end - now, 0)
            share = left / (len(checked) - number)
            known = None
            if law == "killed" and "resume" in report.outcomes:
                known = report.outcomes["resume"].case
            shrink_until = now + max(share, left / 2)
            report.outcomes[law] = search.run(law, now + share, shrink_until, known)
            show(report.line(law)[9:] + "\n")
    return report


def judge(loader: Any, law: str, case: Case, **options: Any) -> Verdict:
    """Check one law in one case, like the script of a counterexample; None: the law holds."""
    adapter = as_adapter(loader, options)
    with LoaderProcesses(adapter) as processes:
        return check_case(processes, law, case)


def _check_signature(adapter: Adapter) -> None:
    """Raise TypeError unless `make` takes the arguments of an adapter."""
    keywords = dict.fromkeys(("rank", *SETTINGS, "state"))
    try:
        inspect.signature(adapter.make).bind(None, **keywords)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{adapter.make!r} must be a function make(data, *, rank, world_size, workers, seed, "
            f"epoch, batch_size, state=None): {error}"
        ) from error


def _laws_to_check(adapter: Adapter, laws: Sequence[str] | str | None) -> list[str]:
    """The names of the requested laws, or of the claimed ones, in the order of `LAWS`."""
    claims = adapter.claims.split()
    names = laws.split() if isinstance(laws, str) else laws
    if names is None:
        names = claims
    elif not names:
        raise ValueError(f"laws must name a law, or be None for all claims; got {laws}")
    for name in [*claims, *names]:
        if name not in LAWS:
            raise ValueError(f"{name!r} is not a law; the laws are {', '.join(LAWS)}")
        if name in STATEFUL and adapter.state_of is None:
            raise ValueError(f"the law {name!r} needs state_of")
        if name == "masks" and not adapter.mask:
            raise ValueError("the law 'masks' needs the name of the field: mask=")
    return [law for law in LAWS if law in names]


@dataclass(frozen=True)
class Search:
    """Looks for a case that breaks a law."""

    processes: LoaderProcesses
    seed: int
    examples: int

    def run(
        self,
        law: str,
        search_until: float,
        shrink_until: float,
        known: Case | None,
    ) -> Outcome:
        """Search, unless the law is broken by `known`, the smallest case of a similar law.

        Args:
            law: its name.
            search_until: the end of the search for a case that breaks the law.
            shrink_until: the end of shrinking it.
            known: the case to try first.
        """
        outcome = Outcome()
        judged = {}
        deadline = search_until

        def breaks(case: Case) -> bool:
            nonlocal deadline
            if case not in judged:
                if time.monotonic() > deadline:
                    outcome.late = True
                    return False
                try:
                    judged[case] = check_case(self.processes, law, case)
                except CaseRefused as reason:
                    outcome.refused = str(reason)
                    return False
                if judged[case]:
                    deadline = shrink_until
            return judged[case] is not None

        if known and breaks(known):
            case: Case | None = known
        else:
            case = self._find(law, breaks)
        outcome.cases = len(judged)
        outcome.case = case
        outcome.finding = judged[case] if case else None
        return outcome

    def _find(self, law: str, breaks: Callable[[Case], bool]) -> Case | None:
        """The smallest case that breaks a law: among small ones, among all, and at boundaries."""
        adapter = self.processes.adapter
        random = Random(f"{self.seed} {law}")
        num_small = max(1, self.examples // 3)
        small = min(SMALL_CASE, adapter.max_rows), num_small
        others = adapter.max_rows, 1 + self.examples - num_small
        for max_rows, num_cases in (small, others):
            settings = hypothesis.settings(
                max_examples=num_cases, database=None, deadline=None
            )
            cases = _cases(adapter, law, max_rows)
            with suppress(hypothesis.errors.NoSuchExample):
                return hypothesis.find(cases, breaks, settings=settings, random=random)
        if law == "once" and adapter.format == "rows":
            seconds = 0.0
            for rows in BOUNDARIES:
                # four times the rows of the last one, and twice that for safety
                if rows > adapter.largest or 8 * seconds > adapter.limit:
                    break
                begun = time.monotonic()
                case = Case(rows=rows)
                if breaks(case):
                    return case
                seconds = time.monotonic() - begun
        return None


def _cases(
    adapter: Adapter,
    law: str,
    max_rows: int,
) -> strategies.SearchStrategy[Case]:
    """The strategy that draws cases of a law."""
    integers = strategies.integers
    rows = integers(1, max_rows)
    if law == "spread":
        rows = integers(200, 400)
    stops = strategies.lists(integers(0, 20), min_size=1, max_size=3)
    fields = {
        "rows": rows,
        "world_size": integers(1, adapter.max_ranks),
        "batch_size": integers(1, adapter.max_batch_size),
        "workers": integers(0, adapter.max_workers),
        "seed": integers(0, 5),
        "epoch": integers(0, 3),
        "other": integers(1, 5),
        "stops": stops.map(tuple),
    }
    _, names = LAWS[law]
    drawn = {name: fields[name] for name in names.split()}
    return strategies.builds(Case, **drawn)
