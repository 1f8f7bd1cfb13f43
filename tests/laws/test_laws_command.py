"""The command and the plugin of pytest that judge a loader of one's own."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from nanoset_ref.laws import LAWS, laws_command
from nanoset_ref.laws.pytest_plugin import Laws


def test_the_fixture_takes_the_number_of_examples() -> None:
    def make(data: int, **_: Any) -> Any:
        return [[row] for row in range(data)]

    Laws(20.0, 0).hold(make, claims="once", examples=2, max_ranks=1, max_batch_size=1)


LOADER = """
from nanoset_ref.laws import adapter

@adapter(claims="once ranks", tail="drop")
def make(data, *, rank, world_size, batch_size, **place):
    step = world_size * batch_size
    for first in range(0, data - step + 1 - {less}, step):
        yield list(range(first + rank * batch_size, first + (rank + 1) * batch_size))
"""


def test_the_command_judges_a_function_of_a_module(tmp_path: Path) -> None:
    for name, less, code in (("right", 0, 0), ("wrong", 1, 1)):
        (tmp_path / f"{name}.py").write_text(LOADER.format(less=less))
        words = [f"{name}:make", "--budget", "600", "--html", "laws.html", "--badge"]
        words.append("--overwrite")  # the report of the loader before
        program = "import sys; from nanoset_ref.laws.laws_command import main; sys.exit(main())"
        call = [sys.executable, "-c", program, *words]
        done = subprocess.run(
            call, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (code, "")
        assert done.stdout.splitlines()[1].split()[:2] == ["ranks", "holds"]
        assert done.stdout.splitlines()[2].startswith(
            "not claimed: order workers repeat"
        )
        page = (tmp_path / "laws.html").read_text()
        assert f"<title>{name}:make under the laws of loading</title>" in page
        assert f"nanoset_ref {version('nanoset_ref')}; seed 0" in page
        assert (">broken</b>" in page) == bool(code)


def test_the_badge_leaves_the_json_of_the_command_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loader_of_json.py").write_text(LOADER.format(less=0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command adds the folder
    words = ["loader_of_json:make", "--law", "once", "--json", "--badge"]
    assert laws_command.main(words) == 0
    output = capsys.readouterr()
    assert set(json.loads(output.out)["laws"]) >= {"once"}
    assert output.err.startswith("![laws of loading](")


def test_the_plugin_has_a_test_for_all_laws_and_one_for_each(tmp_path: Path) -> None:
    (tmp_path / "test_loader.py").write_text(
        LOADER.format(less=1)
        + "\ndef test_all(laws):\n    laws.hold(make)\n\ndef test_each(loading_law):\n    loading_law.hold(make)\n"
    )
    options = "-q -p no:cacheprovider --laws-budget 600".split()
    call = [sys.executable, "-m", "pytest", *options, "test_loader.py"]
    done = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    assert f"2 failed, 1 passed, {len(LAWS) - 2} skipped" in done.stdout
    assert "row 0 was never read" in done.stdout


def test_claims_that_are_no_string_are_refused_by_the_fixture_too() -> None:
    def make(data: Any, **place: Any) -> Any:
        return []

    with pytest.raises(
        TypeError, match="claims must be one string of names, got .'once'."
    ):
        Laws(1.0, 0, "once").hold(make, claims=["once"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("right", "a loader is named MODULE:NAME, such as right:make; got 'right'"),
        (
            "right:mak",
            "right has no 'mak'; name a function or an adapter of the module",
        ),
        (
            "nowhere:make",
            "cannot import nowhere: ModuleNotFoundError: No module named 'nowhere'",
        ),
        (
            "typing_error:make",
            "unexpected keyword argument 'formt'",
        ),
        ("script:make", "cannot import script: SystemExit: 0, in <module> (script.py"),
        (
            "./right.py:make",
            "not a path; got './right': go to its folder, and name right:",
        ),
        ("right:make --html no/laws.html", "no/laws.html: there is no folder no; make"),
        ("right:make --script no/laws.py", "no/laws.py: there is no folder no; make"),
        ("right:make --html right.py", "right.py is read and cannot be written"),
        ("right:make --script right.py", "right.py is read and cannot be written"),
        ("right:make --script wrong.py", "wrong.py exists and is left unchanged"),
        ("right:make --html wrong.py", "wrong.py exists and is left unchanged"),
        ("claims_list:make", "claims must be one string of names, got ['once']"),
        ("no_format:make", "format must be rows or one of npy, bin"),
    ],
)
def test_a_wrong_module_or_adapter_is_an_error_in_one_line_and_no_broken_law(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    name: str,
    message: str,
) -> None:
    right = LOADER.format(less=0)
    for module, text in (
        ("right", right),
        ("wrong", right),
        ("script", f"{right}\nraise SystemExit(0)"),
        ("typing_error", right.replace("tail=", "formt=")),
        ("claims_list", right.replace('"once ranks"', '["once"]')),
        ("no_format", right.replace("tail=", "format='bin16', tail=")),
    ):
        (tmp_path / f"{module}.py").write_text(text.strip())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "right", raising=False)
    assert laws_command.main(name.split()) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.out == ""
    assert laws_command.main(["right.py:make", "--budget", "1e-9"]) == 3
