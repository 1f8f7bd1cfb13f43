"""docs/decide.md asks at most twelve questions, and each answer leads on; the pages beside it lead somewhere, too."""

import re
from pathlib import Path

import pytest

import nanoset_ref
from nanoset_ref import streaming

DOCS = Path(__file__).parent.parent / "docs"
PAGES = "decide.md", "plan.md", "real_runs.md", "cheat_sheet.md"
PAGE = (DOCS / "decide.md").read_text(encoding="utf-8")
QUESTIONS = re.split(r"^\*\*(?=\d+\. )", PAGE, flags=re.MULTILINE)[1:]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NO_MORE = "go on", "nothing to do"  # answers that need no page


def test_there_are_twelve_questions_and_every_answer_leads_on() -> None:
    numbers = [int(question.split(".")[0]) for question in QUESTIONS]
    assert numbers == list(range(1, 13))
    for question in QUESTIONS:
        asked = question.split("**")[0]
        assert asked.rstrip().endswith("?")
        answers = re.split(r"^- ", question.split("\n## ")[0], flags=re.MULTILINE)[
            1:
        ] or [question]
        for answer in answers:
            leads_on = LINK.search(answer) or any(words in answer for words in NO_MORE)
            assert leads_on or "HF `datasets`" in answer, answer


@pytest.mark.parametrize("name", sorted(path.name for path in DOCS.glob("*.md")))
def test_every_link_within_the_repository_has_a_page(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    targets = LINK.findall(text) + re.findall(r'href="([^"]+)"', text)
    assert targets or name == "text_to_batches.md"  # all code
    for target in targets:
        path, _, anchor = target.partition("#")
        if path.startswith("https:"):
            continue
        there = DOCS / (path or name)
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", it).lower() for it in headings]
            assert anchor in [slug.replace(" ", "-") for slug in slugs], target


def test_names_on_the_page_exist() -> None:
    for name in ("PackedNanoset", "DocumentOptions"):
        assert name in PAGE and hasattr(nanoset_ref, name)
    assert "TokenStream" in PAGE and hasattr(streaming, "TokenStream")
    orders = nanoset_ref.orders.find_order
    for name in re.findall(
        r"`(nanotron|olmo_core|grain|llm_c|stateless|identity)`", PAGE
    ):
        assert orders(name).name == name


def test_the_site_and_the_readme_lead_to_each_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    contents = (DOCS / "contents.txt").read_text(encoding="utf-8")
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for name in PAGES:
        assert f"({name})" in index and f"\n{Path(name).stem}\n" in contents
        assert f"docs/{Path(name).stem}." in readme
