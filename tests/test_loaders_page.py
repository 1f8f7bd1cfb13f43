"""docs/loaders.md: its table of document boundaries says of each stack what the options it names do here."""

import calendar
import re
from pathlib import Path

from nanoset_ref import DocumentOptions

PAGE = (Path(__file__).parents[1] / "docs/loaders.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Document boundaries by default\n")[1].split("\n## ")[0]
# | stack | masked | positions | loss across | switches and remarks | options here |
ROWS = re.findall(
    r"^\| (.+) \| \[(yes|no)\]\S+ \| \[(row|document)\]\S+ \| \[(counts|left out)\]\S+ \| .* \| (.+) \|$",
    SECTION,
    re.MULTILINE,
)


def test_every_row_of_the_table_is_read() -> None:
    lines = [line for line in SECTION.splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(lines) - 1 > 15  # but for the line of titles


def test_the_options_of_a_row_keep_within_documents_what_its_stack_does() -> None:
    for stack, masked, positions, loss, here in ROWS:
        flags = re.findall(r"`([a-z_]+)`", here)
        assert flags or here.startswith("none"), stack
        options = DocumentOptions(**dict.fromkeys(flags, True))
        within = {
            "attention": masked == "yes",
            "loss": loss == "left out",
            "positions": positions == "document",
        }
        wanted = [name for name, is_within in within.items() if is_within]
        assert options.within_documents == wanted, stack


def test_every_link_to_a_line_is_of_a_commit_that_the_page_dates() -> None:
    """Somewhere on the page a month follows the commit."""
    linked = re.findall(r"github\.com/[\w./-]+?/blob/(\w+)/\S+?(#L\d+|\))", SECTION)
    assert len(linked) > 60 and all(line != ")" for _, line in linked)
    months = "|".join(calendar.month_name[1:])
    for commit in {commit for commit, _ in linked}:
        dated = rf"\b{commit}\)?, ([\d.]+, )?({months}) 20\d\d\b"
        assert re.search(dated, PAGE), commit
