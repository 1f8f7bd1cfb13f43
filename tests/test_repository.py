"""The repository: what `make` says when something is missing, what is pinned, what stands at the top."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from package_modules import MODULES
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
)


def make(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run make in a folder that holds nothing but what an installation reads; the output has its lines joined."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    outer = "PYTHON NOTEBOOKS MAKEFLAGS MAKEOVERRIDES MFLAGS PIP_FLAGS PYTEST_FLAGS JUPYTER_FLAGS".split()
    variables = {
        name: value for name, value in os.environ.items() if name not in outer
    }  # `make test` runs this, too
    command = ["make", *arguments]
    return subprocess.run(
        command, cwd=folder, env=variables | environment, capture_output=True, text=True
    )


def python_that(folder: Path, name: str, line: str) -> str:
    """A stand-in for an interpreter, written in shell."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def test_make_alone_says_what_there_is(tmp_path: Path) -> None:
    words = make(tmp_path).stdout
    assert all(
        f"make {target}" in words
        for target in ("lab", "test", "notebooks", "lint", "clean")
    )


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (
            "PYTHON={old}",
            r"3.12, 3.13 or 3.14 is needed; {old} is 3.8, none .* make lab PYTHON=/path/to/python3.12",
        ),
        ("PYTHON=/nowhere/python3", "no Python was found"),
        (
            "MEGABYTES=999999999999",
            r"only \d+ MB of disk are free here; \.venv needs about 9{12} MB",
        ),
    ],
)
def test_missing_tools_are_named_with_a_way_out_before_anything_is_made(
    tmp_path: Path, argument, words
) -> None:
    old = python_that(tmp_path, "old", "echo 3.8")
    result = make(
        tmp_path, "lab", f"PYTHON={sys.executable}", argument.replace("{old}", old)
    )
    assert result.returncode != 0
    assert re.search(words.replace("{old}", old), result.stderr)
    assert not (tmp_path / ".venv").exists()


def test_the_first_python_that_will_do_is_taken(tmp_path: Path) -> None:
    python_that(tmp_path, "python3", "echo 3.10")
    python_that(
        tmp_path,
        "python3.14",
        'echo "pyenv: python3.14: command not found" >&2; exit 127',
    )
    python_that(
        tmp_path, "python3.13", "case $2 in *version*) echo 3.13;; *) exit 1;; esac"
    )
    result = make(tmp_path, "lab", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "python3.13 has no venv module" in result.stderr
    assert "apt install python3-venv" in result.stderr


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        (
            "NewConnectionError: [Errno 101] Network is unreachable",
            "the package index cannot be reached: no network",
        ),
        (
            "ERROR: No matching distribution found for torch==9",
            "its words stand above, and in full in .venv/pip.log",
        ),
    ],
)
def test_a_failed_installation_says_why_and_leaves_no_stamp(
    tmp_path: Path, log: str, words: str
) -> None:
    line = f"case $* in *install*) echo '{log}' >.venv/pip.log; exit 1;; esac"
    python_that(tmp_path / ".venv" / "bin", "python", line)
    result = make(tmp_path, "lab")
    assert result.returncode != 0
    assert words in result.stderr
    assert sorted(path.name for path in (tmp_path / ".venv").iterdir()) == [
        "bin",
        "pip.log",
    ]


def test_pip_runs_once_until_what_it_reads_changes(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    python_that(tmp_path / ".venv" / "bin", "python", f'echo "$*" >> {tmp_path}/calls')

    def calls(*arguments: str) -> list[str]:
        (tmp_path / "calls").unlink(missing_ok=True)
        result = make(tmp_path, *arguments)
        assert result.returncode == 0, result.stderr
        return (tmp_path / "calls").read_text().splitlines()

    first = calls("test")
    assert "--constraint constraints.txt --editable .[lab,test]" in first[1]
    corpus = [
        "-m nanoset_ref.chunks.corpus data",
        "-c import course; course.tiny_corpus()",
    ]
    suite = "-m pytest --nbval --nbval-current-env -n 2 --dist loadfile --no-loadscope-reorder"
    assert first[-3:] == [*corpus, suite]
    later = (
        tmp_path / "constraints.txt"
    ).stat().st_mtime + 3600  # make() copies it anew for each call
    for stamp in ("installed-lab", "installed-test"):
        os.utime(tmp_path / ".venv" / stamp, (later, later))
    assert calls("test", "PYTEST_FLAGS=-x") == [*corpus, f"{suite} -x"]
    opened = [
        *corpus,
        "-m jupyter trust notebooks/*.ipynb",
        "-m jupyter lab --no-browser",
    ]
    assert calls("lab", "JUPYTER_FLAGS=--no-browser") == opened


def test_everything_that_is_installed_is_pinned() -> None:
    extras = PROJECT["optional-dependencies"]
    todo = [
        Requirement(line)
        for line in PROJECT["dependencies"] + extras["lab"] + extras["test"]
    ]
    seen: set[str] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen or name.startswith(("nvidia", "cuda", "triton")):
            continue
        seen.add(str(requirement))
        if name == "nanoset-ref":
            todo += [
                Requirement(line)
                for extra in requirement.extras
                for line in extras[extra]
            ]
            continue
        assert name in PINS, f"constraints.txt does not pin {name}"
        for line in metadata.distribution(name).requires or []:
            needed = Requirement(line)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": e}) for e in requirement.extras | {""}
            ):
                todo.append(needed)
    assert len(seen) > 100
    assert not [
        name for name in PINS if name.startswith(("nvidia", "cuda", "triton"))
    ], "these differ by platform"
    assert not [version for version in PINS.values() if re.search("[+@;]", version)]


def test_every_peer_of_the_benchmarks_is_pinned() -> None:
    pins = dict(
        re.findall(
            "^([^#=]+)==(.+)$",
            (ROOT / "benchmarks" / "constraints.txt").read_text(),
            flags=re.M,
        )
    )
    peers = [Requirement(line) for line in PROJECT["optional-dependencies"]["bench"]]
    assert len(peers) >= 4
    assert [
        peer.name
        for peer in peers[1:]
        if not peer.specifier.contains(pins[canonicalize_name(peer.name)])
    ] == []
    assert pins["torch"] == PINS["torch"]


def test_every_import_is_declared() -> None:
    imported = {name.partition(".")[0] for module in MODULES for name in module.imports}
    # loaders under the laws write their own formats; pytest loads the plugin
    peers = {"litdata", "streaming", "pytest"}
    extras = PROJECT["optional-dependencies"]
    optional = [
        extras[name]
        for name in "text train bucket laws gigatoken datatrove lab lightning megatron sentencepiece".split()
    ]
    declared = {
        canonicalize_name(Requirement(line).name)
        for line in sum(optional, PROJECT["dependencies"])
    }
    distributions = {
        "ruamel": "ruamel.yaml",
        "llvmlite": "numba",
        "megatron": "megatron-core",
    }
    third_party = imported - set(sys.stdlib_module_names) - {"nanoset_ref"} - peers
    assert {
        name
        for name in third_party
        if canonicalize_name(distributions.get(name, name)) not in declared
    } == set()


def test_every_file_of_data_is_shipped_with_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "setuptools"
    ]
    files = [
        path
        for path in (ROOT / "nanoset_ref").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    data = {
        path.relative_to(ROOT / "nanoset_ref").as_posix()
        for path in files
        if path.suffix not in (".py", ".pyi")
    }
    patterns = settings["package-data"]
    assert patterns["*"] == ["*.pyi"]
    shipped = {
        path.relative_to(ROOT / "nanoset_ref").as_posix()
        for pattern in patterns["nanoset_ref"]
        for path in (ROOT / "nanoset_ref").glob(pattern)
    }
    assert shipped == data
    assert "chunks/corpus.json.zst" in data


def test_binder_names_its_python_and_every_dependency_and_stops_at_the_first_error() -> (
    None
):
    extras = PROJECT["optional-dependencies"]
    needed = PROJECT["dependencies"] + extras["text"] + extras["train"] + extras["lab"]
    names = {canonicalize_name(Requirement(line).name) for line in needed}
    names -= {
        "jupyterlab",
        "nanoset-ref",
    }  # Binder has its own; the package itself comes last
    environment = YAML(typ="safe").load(ROOT / "binder" / "environment.yml")
    *conda, by_pip = environment["dependencies"]
    specs = [
        canonicalize_name(re.split("[=<>]", line)[0])
        for line in [*conda, *by_pip["pip"]]
    ]
    conda_names = {
        "torch": "pytorch",
        "matplotlib": "matplotlib-base",
        "xxhash": "python-xxhash",
    }
    assert {conda_names.get(name, name) for name in names} <= set(specs)
    assert "python=3.12" in conda
    assert any(re.fullmatch(r"pytorch=.*=cpu\*", line) for line in conda)
    assert "set -e" in (ROOT / "binder" / "postBuild").read_text()
    assert os.access(ROOT / "binder" / "postBuild", os.X_OK)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_actions_are_pinned_by_commit() -> None:
    workflows = [
        path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")
    ]
    uses = [
        line.split("uses:")[1].strip()
        for text in workflows
        for line in text.splitlines()
        if "uses:" in line
    ]
    assert len(uses) >= 6
    assert [
        line
        for line in uses
        if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)
    ] == []


def modules_named(text: str) -> list[str]:
    """The names of "name, name  what they hold", lines of a package's docstring."""
    lines = re.findall(r"^ {0,4}([a-z]\w*(?:, [a-z]\w*)*) {2,}\S", text, flags=re.M)
    return [name for line in lines for name in line.split(", ")]


def test_the_docstring_of_a_package_names_each_of_its_modules_once() -> None:
    """So that a reader finds a file from its package, and no line names a file that is gone."""
    packages = sorted((ROOT / "nanoset_ref").rglob("__init__.py"))
    assert len(packages) > 12
    for package in packages:
        files = [
            path
            for path in package.parent.glob("*.py")
            if not path.stem.startswith("__")
        ]
        folders = [path.parent for path in package.parent.glob("*/__init__.py")]
        present = {path.stem for path in files + folders} - {"plain"}
        text = ast.get_docstring(ast.parse(package.read_text())) or ""
        assert sorted(modules_named(text)) == sorted(present), package


def test_the_version_is_one() -> None:
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert PROJECT["version"] in (ROOT / "CHANGELOG.md").read_text()


def test_every_law_has_its_number_and_tests_that_exist() -> None:
    text = (ROOT / "docs" / "laws.md").read_text()
    laws = text.split("\n## ")[1:]
    assert [law.split(".")[0] for law in laws] == [
        str(number) for number in range(1, 12)
    ]
    for law in laws:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", law)
        assert named, law
        for path, test in named:
            assert f"def {test or 'test_'}" in (ROOT / path).read_text(), (path, test)


def test_every_file_of_the_package_that_a_page_names_exists() -> None:
    """A later name in a list may leave out the folder that the first one has."""
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("notebooks/*.md"),
        *ROOT.glob("notebooks/*.ipynb"),
    ]
    missing = []
    count = 0
    for page in pages:
        listed = re.findall(
            r"`nanoset_ref/[\w/]+\.py`(?:, `[\w/]+\.py`)*", page.read_text()
        )
        for names in listed:
            first, *others = re.findall(r"`([^`]+)`", names)
            paths = [ROOT / first]
            for name in others:
                base = ROOT if name.startswith("nanoset_ref/") else paths[0].parent
                paths.append(base / name)
            missing += [(page.name, str(path)) for path in paths if not path.is_file()]
            count += len(paths)
    assert missing == []
    assert count > 50
