"""Every committed notebook was run from top to bottom in a fresh kernel, says so, and shows something.

nbval compares outputs but passes a notebook that has none; what it cannot see is held here.
"""

import json
import re
import symtable
from pathlib import Path

import nbclient
import nbformat
import pytest

from figures.draw import DPI, WIDTH

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

# tags, and what JupyterLab folds: the source, the outputs
HIDING = [
    (set(), (False, False)),
    ({"hide-input"}, (True, False)),
    ({"hide-output"}, (False, True)),
]
HIDING += [({"hide-cell"}, (True, True))]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> dict:
    return json.loads(request.param.read_text(encoding="utf-8"))


def source(cell: dict) -> str:
    return "".join(cell["source"])


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def printed(cell: dict) -> list[str]:
    return "".join("".join(output.get("text", "")) for output in cell["outputs"]).splitlines()


def solutions(path: Path) -> list[str]:
    """What goes in the place of each exercise's lines above its `check`, from `solutions/<notebook>.py`."""
    text = (FOLDER / "solutions" / f"{path.stem}.py").read_text(encoding="utf-8")
    return re.split(r"^# %% .*\n", text, flags=re.MULTILINE)[1:]


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebooks_are_numbered() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == [
        f"{number:02}_" for number in range(1, len(NOTEBOOKS) + 1)
    ]


def test_every_cell_was_run_in_order_from_a_fresh_default_kernel_without_an_error(
    notebook: dict,
) -> None:
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [
        output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"
    ]
    assert not [cell for cell in notebook["cells"] if "execution" in cell["metadata"]]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)


def test_no_output_depends_on_where_or_how_fast_it_ran(notebook: dict) -> None:
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            text = "".join(output.get("text", [])) + "".join(
                output.get("data", {}).get("text/plain", [])
            )
            assert not re.search(
                r"(?<![\w.])/(home|root|tmp|var|usr|work|Users|private)/|0x[0-9a-f]{6,}", text
            ), text
            assert output.get("name") != "stderr", text


def test_no_comparison_is_switched_off_and_what_the_site_hides_is_hidden_in_jupyterlab(
    notebook: dict,
) -> None:
    assert "NBVAL" not in "\n".join(map(source, code_cells(notebook)))
    for cell in notebook["cells"]:
        jupyter = cell["metadata"].get("jupyter", {})
        folded = jupyter.get("source_hidden", False), jupyter.get("outputs_hidden", False)
        assert (set(tags(cell)) - {"exercise"}, folded) in HIDING, source(cell)


def test_it_opens_with_a_question_and_a_picture(notebook: dict) -> None:
    question, picture, plan = notebook["cells"][:3]
    assert re.match(r"# \d\d · ", source(question))
    assert 30 <= len(source(question).split()) <= 150
    assert tags(picture) == ["hide-input"]
    assert [kind for output in picture["outputs"] for kind in output.get("data", {})].count(
        "image/png"
    ) == 1
    text = source(plan).lower()
    assert all(words in text for words in ("you will learn", "you need", "minutes"))


def test_no_prediction_can_be_read_before_it_is_asked_for(notebook: dict) -> None:
    cells = notebook["cells"]
    places = [place for place, cell in enumerate(cells) if "**Predict" in source(cell)]
    assert len(places) >= 4
    for place in places:
        assert set(tags(cells[place + 1])) & {"hide-cell", "hide-output"}, source(cells[place])


def test_exercises_are_open_and_have_solutions(
    notebook: dict, request: pytest.FixtureRequest
) -> None:
    exercises = [cell for cell in code_cells(notebook) if "exercise" in tags(cell)]
    assert len(exercises) >= 3
    for cell in exercises:
        assert "..." in source(cell).split("check(")[0]
        assert {line.split(":")[0] for line in printed(cell)} <= {"open", "not yet"}, printed(cell)
    assert len(solutions(request.node.callspec.params["notebook"])) == len(exercises)


def test_every_picture_has_one_width_a_caption_and_words_for_who_cannot_see_it(
    notebook: dict,
) -> None:
    pictures = 0
    for cell in code_cells(notebook):
        kinds = [next(iter(output.get("data", {})), "") for output in cell["outputs"]]
        assert "image/svg+xml" not in kinds
        for place, kind in enumerate(kinds):
            if kind == "image/png":
                said = cell["outputs"][place]["metadata"]["image/png"]
                assert said["width"] == WIDTH * DPI / 2
                assert len(said["alt"]) >= 60
                assert kinds[place + 1] == "text/markdown"
                pictures += 1
    assert pictures >= 2


def test_it_says_who_says_so_and_how_to_go_on(notebook: dict) -> None:
    text = "\n".join(source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert all(
        f"## {heading}" in text
        for heading in ("Exercises", "Summary", "References", "Where the code lives")
    )
    references = text.split("## References")[1].split("\n## ")[0]
    assert 3 <= len(re.findall(r"https://", references)) <= 8


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for solved notebooks, so that they share no file with the open ones that run beside them."""
    folder = tmp_path_factory.mktemp("solved") / "notebooks"
    folder.mkdir()
    for name in ("course", "figures", "images", "../benchmarks"):
        (folder / name).symlink_to((FOLDER / name).resolve())
    return folder


def names(cell: dict) -> tuple[set[str], set[str]]:
    """The names a cell makes or changes, by `name.method()` or `name[...] = ...` on a line too, and those it reads."""
    text = re.sub(r"^%.*", "", source(cell), flags=re.MULTILINE)
    tables = [top := symtable.symtable(text, "a cell", "exec")]
    for table in tables:
        tables += table.get_children()
    made = {it.get_name() for it in top.get_symbols() if it.is_assigned() or it.is_imported()}
    read = {
        it.get_name()
        for table in tables
        for it in table.get_symbols()
        if table is top or it.is_global()
    }
    return made | {*re.findall(r"^ *(\w+)[.\[]", text, flags=re.MULTILINE)}, read


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_exercises_can_be_solved(path: Path, elsewhere: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    exercises = [cell for cell in notebook.cells if "exercise" in tags(cell)]
    for cell, solution in zip(exercises, solutions(path), strict=True):
        cell.source = solution + cell.source[cell.source.index("check(") :]
    needed = set()
    for cell in reversed(
        code_cells(notebook)
    ):  # nbval runs them all; here, those that an exercise asks for
        made, read = names(cell)
        if cell in exercises or made & needed:
            needed |= read
        else:
            cell.source = ""
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(elsewhere)}}
    ).execute()
    for cell in exercises:
        assert printed(cell)
        assert set(printed(cell)) == {"right"}, source(cell)


# how the course names other systems, by the word that stands for each in a page's line of versions
SYSTEMS = {
    "Nanotron": r"\bNanotron\b",
    "Megatron": r"\bMegatron\b",
    "OLMo-core": r"\bOLMo\b",
    "grain": r"\bgrain's\b",
    "torchtitan": r"\b[Tt]orchtitan\b",
    "nanochat": r"\bnanochat\b",
    "nanoGPT": r"\bnanoGPT\b",
    "litdata": r"\blitdata\b",
    "mosaicml-streaming": r"\bmosaicml\b",
    "torchdata": r"\btorchdata\b",
    "GPT-NeoX": r"\bGPT-NeoX\b",
    "Lhotse": r"\bLhotse\b",
    "WebDataset": r"\bWebDataset\b",
}


def test_a_page_says_which_version_of_another_system_it_speaks_of(notebook: dict) -> None:
    text = "\n".join(
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    )
    [versions] = re.findall(r"^\*\*Versions\*\*: (.*)$", text, flags=re.M)
    rest = text.replace(versions, "")
    named = {name for name, pattern in SYSTEMS.items() if re.search(pattern, rest)}
    stated = {name for name in SYSTEMS if f"*{name}*" in versions}
    assert stated >= named
    for statement in versions.split("; "):
        assert re.search(r"20\d\d|\d+\.\d+|issues linked", statement), statement
