"""Every committed notebook was run from top to bottom in a fresh kernel, says so, and shows something.

nbval compares outputs but passes a notebook that has none; what it cannot see is held here.
"""

import inspect
import json
import os
import re
import subprocess
import symtable
from collections.abc import Iterator
from pathlib import Path

import forked_kernels
import nbformat
import numpy as np
import pytest

from course import folds, registry
from figures.draw import DPI, WIDTH

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
REPOSITORY = "https://github.com/nanoset-ref/nanoset_ref"
FOLD = "<details><summary>Answer</summary>\n\n<!-- {} -->\n"
IMAGE = re.compile(r'<img src="images/([\w-]+\.png)" width="(\d+)" alt="([^"]*)">')
TRAINED_CURVES = {"09-3.png"}  # which differ a little between processors
GUESS = re.compile(r'guess\("(\d\d\.\d+)", \.\.\.\)  # your guess: .+')


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def notebook(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def answers(path: Path) -> dict[str, registry.Answer]:
    """By key, the answers of a page."""
    return answers_of(path.name[:2])


def answers_of(number: str) -> dict[str, registry.Answer]:
    registry.page(number)
    mine = {key: it for key, it in registry.ANSWERS.items() if key[:2] == number}
    return dict(sorted(mine.items(), key=lambda item: int(item[0][3:])))


def source(cell: dict) -> str:
    return "".join(cell["source"])


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def printed(cell: dict) -> list[str]:
    return "".join(
        "".join(output.get("text", "")) for output in cell["outputs"]
    ).splitlines()


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
        output
        for cell in cells
        for output in cell["outputs"]
        if output["output_type"] == "error"
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
                r"(?<![\w.])/(home|root|tmp|var|usr|work|Users|private)/|0x[0-9a-f]{6,}",
                text,
            ), text
            assert output.get("name") != "stderr", text


WIDEST = 104  # columns: what GitHub and JupyterLab show beside no scroll bar


def test_nothing_that_is_printed_is_wide(notebook: dict) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            shown = [*source(cell).splitlines(), *printed(cell)]
        else:
            blocks = re.findall(
                r"^```\w*\n(.*?)^```", source(cell), re.MULTILINE | re.DOTALL
            )
            shown = "\n".join(blocks).splitlines()
        assert [line for line in shown if len(line) > WIDEST] == []


def test_no_comparison_is_switched_off_and_nothing_is_hidden_that_github_shows(
    notebook: dict,
) -> None:
    assert "NBVAL" not in "\n".join(map(source, code_cells(notebook)))
    for cell in notebook["cells"]:
        if cell["id"] != notebook["cells"][1]["id"]:  # the first picture's is folded
            assert "jupyter" not in cell["metadata"]
        assert set(tags(cell)) <= {"exercise"}


def test_no_placeholder_and_no_confession_is_in_print(notebook: dict) -> None:
    for cell in notebook["cells"]:
        assert "@@" not in source(cell)
        assert "not run yet" not in source(cell)


def test_a_fold_ends_its_cell(notebook: dict) -> None:
    """Nothing puts room between `</details>` and a paragraph, but the end of a cell does."""
    for cell in notebook["cells"]:
        assert "</details>" not in source(cell).rstrip().removesuffix("</details>")


def test_moving_figures_of_answers_are_folded(notebook: dict) -> None:
    """Jupyter's readers move it first; who cannot, as on GitHub, unfolds it."""
    for cell in notebook["cells"]:
        if "**Try it** (moves in Jupyter)" in source(cell):
            assert "\n\n<details><summary>What you would find</summary>\n\n" in source(
                cell
            )
    shown = sum('class=\\"moving\\"' in json.dumps(cell) for cell in notebook["cells"])
    asked = sum("**Try it**" in source(cell) for cell in notebook["cells"])
    assert shown == asked


def test_versions_stand_before_the_references_and_not_before_the_first_section(
    notebook: dict,
) -> None:
    [place] = [
        source(cell) for cell in notebook["cells"] if "**Versions**" in source(cell)
    ]
    assert "## References\n\n**Versions**: " in place


def test_it_opens_with_a_question_and_a_picture(notebook: dict) -> None:
    question, picture, plan = notebook["cells"][:3]
    assert re.match(r"# \d\d · ", source(question))
    assert 30 <= len(without_buttons(source(question)).split()) <= 150
    assert [
        kind for output in picture["outputs"] for kind in output.get("data", {})
    ].count("image/png") == 1
    text = source(plan).lower()
    assert all(words in text for words in ("you will learn", "you need", "minutes"))


def without_buttons(text: str) -> str:
    return re.sub(r"^\[!\[.*$", "", text, flags=re.MULTILINE)


def test_every_page_can_be_opened_from_a_bare_machine(
    notebook: dict, path: Path
) -> None:
    """The cell of the first picture gets the course and the package; on a machine that has them it prints nothing."""
    question, picture = notebook["cells"][:2]
    assert source(picture) == folds.OPENING.format(path.name[:2])
    assert picture["metadata"] == folds.FOLDED
    kinds = {output["output_type"] for output in picture["outputs"]}
    assert kinds == {"display_data"}
    place = f"nanoset-ref/nanoset_ref/blob/main/notebooks/{path.name}"
    assert f"https://colab.research.google.com/github/{place}" in source(question)
    place = f"nanoset-ref/nanoset_ref/HEAD?urlpath=lab/tree/notebooks/{path.name}"
    assert f"https://mybinder.org/v2/gh/{place}" in source(question)


def test_a_bare_machine_gets_package_and_course_once(tmp_path: Path) -> None:
    """The line of each page's first picture, run twice; pip and git are recorded instead of run."""
    said = tmp_path / "said"
    (tmp_path / "bin").mkdir()
    clone = f"mkdir -p .src/notebooks/course && cp {FOLDER.parent}/Makefile .src"
    for name, does in {"pip": "true", "git": clone}.items():
        command = tmp_path / "bin" / name
        command.write_text(f'#!/bin/sh\necho {name} "$@" >> {said}\n{does}\n')
        command.chmod(0o755)
    line = folds.OPENING.splitlines()[1]
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for _ in range(2):
        subprocess.run(
            ["sh", "-c", line[1:]], cwd=tmp_path, env=os.environ | {"PATH": path}
        )
        assert (tmp_path / "course").is_dir()
    assert said.read_text().splitlines() == [
        f"git clone -q {REPOSITORY} .src",
        "pip install -q .[lab]",
    ]


def test_an_answer_stands_in_a_fold_of_markdown_behind_a_guess(
    notebook: dict, path: Path, answers: dict[str, registry.Answer]
) -> None:
    cells = notebook["cells"]
    keys = []
    for place, cell in enumerate(cells):
        if "**Predict" in source(cell):
            asked = GUESS.fullmatch(source(cells[place + 1]))
            assert asked, source(cells[place + 1])
            assert cells[place + 1]["outputs"] == []
            assert source(cells[place + 2]).startswith(FOLD.format(asked[1]))
            assert cells[place + 2]["cell_type"] == "markdown"
            keys.append(asked[1])
    assert len(keys) >= 4
    assert keys == list(answers)
    for key, inside in folds.folds_of(nbformat.read(path, as_version=4)).items():
        assert inside.strip(), key


def test_only_the_fold_gives_the_answer_away(
    notebook: dict, answers: dict[str, registry.Answer]
) -> None:
    """Its words stand in the fold; neither the page before it nor its section after it has them."""
    cells = [f"{source(cell)}\n{outputs_as_text(cell)}" for cell in notebook["cells"]]
    page = "\n\n".join(cells)
    for key, answer in answers.items():
        before, rest = page.split(FOLD.format(key))
        fold, after = rest.split("</details>", 1)
        section = re.split(r"^##+ ", after, maxsplit=1, flags=re.MULTILINE)[0]
        for words in answer.words:
            assert words in fold, (key, words)
            assert words not in before, (key, words)
            assert words not in section, (key, words)


def outputs_as_text(cell: dict) -> str:
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts += ["".join(output.get("text", "")), "".join(data.get("text/plain", ""))]
        parts.append("".join(data.get("text/markdown", "")))
    return "\n".join(parts)


def test_exercises_are_open_and_have_rules_and_solutions(
    notebook: dict, path: Path
) -> None:
    exercises = [cell for cell in code_cells(notebook) if "exercise" in tags(cell)]
    assert len(exercises) >= 3
    registry.page(path.name)
    for number, cell in enumerate(exercises, 1):
        key = f"{path.name[:2]}.{number}"
        before, check = source(cell).split("check(")
        assert "..." in before
        assert re.match(rf'"{key}", [\w, ()]+\)$', check, re.MULTILINE), check
        assert cell["outputs"] == []
        assert len(registry.RULES[key].hint) > 20
    assert len(solutions(path)) == len(exercises)
    text = "\n".join(map(source, notebook["cells"]))
    assert f"## Exercises\n\n[Solutions](solutions/{path.stem}.py)\n" in text


def test_every_picture_has_one_width_a_caption_and_words_for_who_cannot_see_it(
    notebook: dict, path: Path
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
    for inside in folds.folds_of(nbformat.read(path, as_version=4)).values():
        for name, width, alt in IMAGE.findall(inside):
            assert (FOLDER / "images" / name).exists()
            assert int(width) == WIDTH * DPI / 2
            assert len(alt) >= 60
            pictures += 1
    assert pictures >= 2


def test_every_picture_of_a_fold_is_shown() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    kept = {path.name for path in (FOLDER / "images").glob("[0-9]*.png")}
    assert kept == set(re.findall(r"images/(\d\d-[\d-]+\.png)", pages))


def test_it_says_who_says_so_and_how_to_go_on(notebook: dict) -> None:
    text = "\n".join(
        source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    )
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


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch, forked_kernels.nursery(folder) as name:
        patch.setenv("JUPYTER_PATH", str(folder))
        yield name


def names(text: str) -> tuple[set[str], set[str]]:
    """The names a cell makes or changes, by `name.method()` or `name[...] = ...` on a line too, and those it reads."""
    text = re.sub(r"^( *)[%!].*", r"\1pass", text, flags=re.MULTILINE)
    tables = [top := symtable.symtable(text, "a cell", "exec")]
    for table in tables:
        tables += table.get_children()
    made = {
        it.get_name()
        for it in top.get_symbols()
        if it.is_assigned() or it.is_imported()
    }
    read = {
        it.get_name()
        for table in tables
        for it in table.get_symbols()
        if table is top or it.is_global()
    }
    return made | {*re.findall(r"^ *(\w+)[.\[]", text, flags=re.MULTILINE)}, read


def variables_of(cell: dict) -> set[str]:
    """The variables of the page that the answer or the rule behind a cell asks for."""
    if "answer" in cell.metadata:
        function = registry.ANSWERS[cell.metadata["answer"]].run
    else:
        function = registry.RULES[re.search(r'check\("(.*?)"', cell.source)[1]].holds
    return set(inspect.signature(function).parameters)


def test_its_exercises_can_be_solved_and_its_folds_say_what_is_so(
    path: Path, elsewhere: Path, kernel: str, answers: dict[str, registry.Answer]
) -> None:
    committed = nbformat.read(path, as_version=4)
    notebook = folds.with_answers(committed)
    exercises = [cell for cell in notebook.cells if "exercise" in tags(cell)]
    for cell, solution in zip(exercises, solutions(path), strict=True):
        cell.source = solution + cell.source[cell.source.index("check(") :]
    asked = [
        cell
        for cell in code_cells(notebook)
        if "answer" in cell.metadata or cell in exercises
    ]
    kept = path.name[:2] in NEED_OPENING
    leave_out_what_nobody_asks_for(notebook, asked, kept)
    folds.run(notebook, elsewhere, kernel)
    for cell in exercises:
        assert printed(cell)
        assert set(printed(cell)) == {"right"}, source(cell)
    found = folds.answers_of(notebook)
    assert found.keys() == answers.keys()
    inside = folds.folds_of(committed)
    for key, (markdown, pictures) in found.items():
        assert inside[key] == markdown, key
        for name, png in pictures.items():
            assert_same_picture(
                folds.pixels(png),
                folds.pixels((FOLDER / "images" / name).read_bytes()),
                0.004 if name in TRAINED_CURVES else 0.002,
            )


# pages whose cells read files that the opening has made
NEED_OPENING = {"07", "08", "10", "11"}


def leave_out_what_nobody_asks_for(
    notebook: dict, asked: list[dict], opening_kept: bool
) -> None:
    """Empty the cells that neither an answer nor an exercise needs: nbval runs them all."""
    opening = code_cells(notebook)[0]
    needed = set()
    for cell in reversed(code_cells(notebook)):
        if cell.source.startswith("%%writefile"):
            continue
        if cell is opening and opening_kept:
            continue
        made, read = names(cell.source)
        if cell in asked:
            needed |= read | variables_of(cell)
        elif made & needed:
            needed |= read
        else:
            cell.source = ""


def assert_same_picture(drawn: np.ndarray, kept: np.ndarray, limit: float) -> None:
    """Equal but for a few pixels at the edges of letters, or of a curve of a trained model."""
    assert drawn.shape == kept.shape
    differs = np.abs(drawn.astype(int) - kept).max(axis=-1) > 64
    assert differs.mean() < limit


# how the course names other systems, by the word that stands for each in a page's line of versions
SYSTEMS = {
    "Nanotron": r"\bNanotron\b",
    "Megatron": r"\bMegatron\b(?!-Bridge)",
    "Megatron-Bridge": r"\bMegatron-Bridge\b",
    "OLMo-core": r"\bOLMo\b(?! 2)",
    "OLMo 2": r"\bOLMo 2\b",
    "grain": r"\bgrain's\b",
    "torchtitan": r"\b[Tt]orchtitan\b",
    "nanochat": r"\bnanochat\b",
    "nanoGPT": r"\bnanoGPT\b",
    "litdata": r"\blitdata\b",
    "mosaicml-streaming": r"\b[Mm]osaic(ml|ML)\b",
    "torchdata": r"\btorchdata\b",
    "GPT-NeoX": r"\bGPT-NeoX\b",
    "Lhotse": r"\bLhotse\b",
    "WebDataset": r"\bWebDataset\b",
    "Hugging Face datasets": r"\bHugging Face datasets\b|\bload_dataset\b",
    "accelerate": r"\baccelerate\b",
    "transformers": r"\btransformers\b(?!-)",
    "torch": r"\b[Tt]orch\b|\bPyTorch\b",
    "tf.data": r"\btf\.data\b",
    "datatrove": r"\bdatatrove\b",
    "FlashAttention": r"\bFlashAttention\b",
    "Transformer Engine": r"\bTransformer ?Engine\b",
    "modded-nanogpt": r"\bmodded-nanogpt\b",
    "TRL": r"\bTRL\b",
    "Lightning": r"\bLightning\b",
}


def test_a_page_says_which_version_of_another_system_it_speaks_of(
    notebook: dict,
) -> None:
    text = "\n".join(
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    )
    [versions] = re.findall(r"^\*\*Versions\*\*: (.*)$", text, flags=re.M)
    rest = text.replace(versions, "")
    named = {name for name, pattern in SYSTEMS.items() if re.search(pattern, rest)}
    stated = {name for name in SYSTEMS if f"*{name}*" in versions}
    assert stated >= named
    for statement in versions.split("; "):
        assert re.search(r"20\d\d|\d+\.\d+|issues linked", statement), statement
