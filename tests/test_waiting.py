"""docs/waiting.svg: drawn again out of the committed results, it has the same words."""

import importlib.util
from pathlib import Path

from test_cheat_sheet import words

DOCS = Path(__file__).parent.parent / "docs"


def test_drawn_again_it_has_the_same_words(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location(
        "waiting_figure", DOCS / "waiting_figure.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.save(tmp_path)
    found = words(tmp_path / "waiting.svg")
    assert found == words(DOCS / "waiting.svg")
    assert {title for title, *_ in module.PANELS} <= set(found)
