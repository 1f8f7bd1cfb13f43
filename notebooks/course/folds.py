"""Runs pages and writes what they show: outputs into cells, answers into folds, pictures into images/.

    python -m course.folds 05_checkpoint_and_resume.ipynb

A fold is Markdown, so it is closed wherever HTML's <details> is known. Between its marks,
`<!-- 05.3 -->` and `<!-- / -->`, stands what the function marked `@answer("05.3", ...)` printed and
drew when the page was last run, and where its code is.
"""

import base64
import copy
import html
import io
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import numpy as np
from PIL import Image

from course.registry import ANSWERS, page

FOLDER = Path(__file__).parent.parent
GUESS = re.compile(r'^guess\("(\d\d\.\d+)"', re.MULTILINE)
MARKS = re.compile(r"<!-- (\d\d\.\d+) -->\n\n(.*?)<!-- / -->", re.DOTALL)
WIDTH = 750  # pixels of a picture on the page

Pictures = dict[str, bytes]  # by file name in images/

# the second cell of each page: its first line gets the course where it is missing, as on Colab
OPENING = """\
# Shows this page's picture. The next line installs the course where it is missing, as on Colab.
!test ! -d course && git clone -q https://github.com/nanoset-ref/nanoset_ref .src && make -sC .src colab
from course import opening

opening("{}")"""
FOLDED = {"jupyter": {"source_hidden": True}}


def with_answers(notebook: Any) -> Any:
    """A copy of a page with one more cell behind each guess, which shows the answer."""
    longer = copy.deepcopy(notebook)
    longer.cells = []
    for cell in notebook.cells:
        longer.cells.append(copy.deepcopy(cell))
        key = key_of(cell)
        if key:
            source = f'from course import show_answer\n\nshow_answer("{key}")'
            longer.cells.append(nbformat.v4.new_code_cell(source, metadata={"answer": key}))
    return longer


def key_of(cell: Any) -> str | None:
    """The key of the question that a cell asks a guess for."""
    found = GUESS.search(cell.source) if cell.cell_type == "code" else None
    return found[1] if found else None


def run(notebook: Any, folder: Path = FOLDER, kernel: str = "python3") -> Any:
    """Execute all cells of a page in a fresh kernel, in place."""
    place = {"metadata": {"path": str(folder)}}
    options = {"timeout": 900, "record_timing": False, "coalesce_streams": True}
    client = nbclient.NotebookClient(
        notebook, resources=place, kernel_name=kernel, startup_timeout=600, **options
    )
    client.execute()
    return notebook


def answers_of(executed: Any) -> dict[str, tuple[str, Pictures]]:
    """By key, the Markdown of each answer of an executed page, and its pictures."""
    found = {}
    for cell in executed.cells:
        key = cell.metadata.get("answer")
        if key:
            found[key] = markdown_of(key, cell.outputs)
    return found


def markdown_of(key: str, outputs: list[Mapping[str, Any]]) -> tuple[str, Pictures]:
    """The Markdown of one answer, and its pictures."""
    parts, pictures = [], {}
    for output in outputs:
        data = output.get("data", {})
        if output["output_type"] == "stream":
            parts.append(f"```text\n{output['text'].rstrip()}\n```")
        elif "image/png" in data:
            name = f"{key.replace('.', '-')}{'-' + str(len(pictures) + 1) if pictures else ''}.png"
            pictures[name] = with_few_colors(base64.b64decode(data["image/png"]))
            said = html.escape(output["metadata"]["image/png"]["alt"])
            parts.append(f'<img src="images/{name}" width="{WIDTH}" alt="{said}">')
        elif "text/markdown" in data:
            parts.append(data["text/markdown"])
        else:
            parts.append(f"```text\n{data['text/plain'].rstrip()}\n```")
    page(key)
    code = ANSWERS[key].run
    parts.append(f"Code: [`{code.__name__}`](course/pages/{code.__module__.rpartition('.')[2]}.py)")
    return "\n\n".join(parts) + "\n", pictures


def with_few_colors(png: bytes) -> bytes:
    """The same picture in 64 colors, a third of the bytes."""
    small = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(small, "PNG", optimize=True)
    return small.getvalue()


def pixels(png: bytes) -> np.ndarray:
    """The colors of a picture [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def folds_of(notebook: Any) -> dict[str, str]:
    """By key, what stands between the marks of each fold of a page."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    return {
        key: inside.removesuffix("\n")
        for cell in cells
        for key, inside in MARKS.findall(cell.source)
    }


def write(path: Path) -> None:
    """Run a page; write its outputs, its folds and their pictures."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source = OPENING.format(path.name[:2])
    notebook.cells[1].metadata = nbformat.from_dict(FOLDED)
    executed = run(with_answers(notebook))
    answers = answers_of(executed)
    executed.cells = [cell for cell in executed.cells if "answer" not in cell.metadata]
    count = 0
    for cell in executed.cells:
        if cell.cell_type == "markdown":
            cell.source = MARKS.sub(
                lambda found: f"<!-- {found[1]} -->\n\n{answers[found[1]][0]}\n<!-- / -->",
                cell.source,
            )
            continue
        count += 1
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    for _, pictures in answers.values():
        for name, png in pictures.items():
            (FOLDER / "images" / name).write_bytes(png)
    nbformat.write(executed, path)


if __name__ == "__main__":
    for argument in sys.argv[1:] or sorted(map(str, FOLDER.glob("*.ipynb"))):
        write(Path(argument).resolve())
        print(argument)
