"""docs/changing_a_run.md: every line of its code does what the page says."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "changing_a_run.md"


def test_the_code_of_the_page_runs() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\n```", "\n\n```")
    parsed = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(parsed.examples) >= 10
    assert doctest.DocTestRunner().run(parsed).failed == 0


def test_the_site_leads_there() -> None:
    assert "\nchanging_a_run\n" in (PAGE.parent / "contents.txt").read_text(
        encoding="utf-8"
    )
