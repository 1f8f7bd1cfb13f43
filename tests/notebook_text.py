"""What stands on a page of the course."""

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def page_17() -> str:
    notebook = NOTEBOOKS / "17_does_the_order_matter.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)
