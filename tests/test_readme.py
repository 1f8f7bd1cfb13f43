"""The README keeps its word: its commands and its code are run, and what it shows is what they print."""

import contextlib
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

from benchmarks import tables
from nanoset_ref.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SPEED = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
PIPELINES = (ROOT / "docs" / "text_to_batches.md").read_text(encoding="utf-8")


class Shell:
    """Runs blocks of commands in sh, where `nanoset-ref` hands its words to this process, which need not start anew."""

    def __init__(self, folder: Path) -> None:
        self.words, self.code, command = (
            folder / name for name in ("words", "code", "nanoset-ref")
        )
        os.mkfifo(self.words)
        os.mkfifo(self.code)
        command.write_text(
            f"#!/bin/sh\nprintf '%s\\0' \"$@\" >{self.words}\nread code <{self.code}\nexit $code\n"
        )
        command.chmod(0o755)
        path = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = os.environ | {"PATH": os.pathsep.join(path)}

    def run(self, block: str) -> None:
        ending = f"trap ': >{self.words}' EXIT\n"  # no words: the block has ended
        shell = subprocess.Popen(
            ["sh", "-e", "-c", ending + block], env=self.environment
        )
        try:
            while words := self.words.read_text():
                self.code.write_text(f"{main(words.split(chr(0))[:-1])}\n")
            assert shell.wait() == 0, block
        finally:
            shell.kill()


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        (
            README,
            ["sh", *["sh", "text", "python", "text"], *["sh", "python", "text"], "sh"],
        ),
        (
            PIPELINES,
            ["sh", "sh", *["python", "text"] * 2, "sh", "sh", *["python", "text"] * 2],
        ),
    ],
)
def test_commands_and_code_do_what_the_page_shows(
    page: str,
    kinds: list[str],
    tmp_path: Path,
    tmp_path_factory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shell, names = Shell(tmp_path_factory.mktemp("bin")), {}
    printed = ""
    checked = []
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, flags=re.M | re.S)
    for (kind, block), (_, shown) in zip_longest(
        blocks, blocks[1:], fillvalue=("", "")
    ):
        checked.append(kind)
        if kind == "sh" and not block.startswith("make "):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                shell.run(block)
            # the page shows the first lines
            printed = output.getvalue()[: len(shown)]
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(block, names)
            printed = output.getvalue()
        elif kind == "text":
            assert printed == block
    assert checked == kinds


def test_the_names_here_of_what_has_another_name_elsewhere_exist() -> None:
    table = PIPELINES.partition("## Names you may know")[2]
    here = "".join(row.split(" | ")[1] for row in table.splitlines() if " | " in row)
    names = re.findall(r"`((?:[a-z_]+\.)*[A-Z]\w+(?:\.\w+)?|plain\.\w+)\b", here)
    assert len(names) >= 6
    for name in names:
        rooms = ("", "nanoset_ref.", "nanoset_ref.megatron.")
        assert any(_exists(f"{room}{name}") for room in rooms), name
    commands = re.findall(r"`nanoset-ref ([a-z -]+?)(?: --\w|`)", here)
    assert len(commands) >= 6
    for command in commands:
        assert main([*command.split(), "--help"]) == 0


def _exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ModuleNotFoundError):
        return False
    return True


def test_make_has_the_targets_named() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"make (\w+)", README)
    assert {"lab", "test"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, flags=re.M) for target in targets)


def test_every_link_leads_somewhere() -> None:
    links = [
        link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link
    ]
    assert [link for link in links if not (ROOT / link).exists()] == []
    for link in re.findall(r"urlpath=lab/tree/([^)\s]+)\)", README):
        assert (ROOT / link).is_file()


def test_the_reading_list_is_what_a_plain_loader_imports() -> None:
    part = README.partition("## Where to begin reading")[2].partition(
        "A batch takes this path"
    )[0]
    listed = set(re.findall(r"`(?:\w+/)?(\w+)\.py`", part))
    modules = "import sys; from nanoset_ref import Nanoset, NanotronOrder, build_nanoset_dataloader"
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{modules}; from nanoset_ref.load import gather_kernel, mapped_files\n"
            + SHOW,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {name.rpartition(".")[2] for name in found.stdout.split()}
    packages = {"nanoset_ref", "io", "load", "tokens"}
    assert listed - {"plain", "__init__"} == imported - packages - {
        "orders",
        "compilation",
    }


SHOW = "print(*[name for name in sys.modules if name.split('.')[0] == 'nanoset_ref'])"


def test_every_notebook_is_listed() -> None:
    assert [
        path.name
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        if path.name not in README
    ] == []


def test_the_tables_are_those_of_the_committed_results() -> None:
    assert tables.filled(SPEED) == SPEED, "python -m benchmarks.tables writes them"
    assert re.findall(r"^<!-- benchmarks: (\w+) -->$", SPEED, flags=re.M) == [
        *tables.TABLES
    ]
    assert re.search(r"^\| Nanotron \|( 1\.0 \|){6}$", SPEED, flags=re.M)


def test_the_speeds_have_a_month_and_the_pinned_versions() -> None:
    pinned = (ROOT / "benchmarks" / "constraints.txt").read_text()
    versions = dict(re.findall(r"^([\w-]+)==(\S+)$", pinned, flags=re.M))
    assert SPEED.split("\n\n")[1].startswith(
        "Measured in November 2026 with Nanotron 2e36d6f"
    )
    names = {
        "Megatron-Core": "megatron-core",
        "OLMo-core": "ai2-olmo-core",
        "grain": "grain",
        "litdata": "litdata",
        "datatrove": "datatrove",
    }
    for name, package in names.items():
        assert f"{name} {versions[package]}" in " ".join(SPEED.split())


def test_the_readme_says_the_speeds_of_the_table() -> None:
    rows = re.findall(r"^\| \**([\w-]+)\** \| [\d.]+ \| ([\d.]+) \|", SPEED, flags=re.M)
    first = dict(
        reversed(rows)
    )  # by system, its first row: from memory, one process, 2,048 tokens
    said = (
        f"as multiples of Nanotron's Nanosets (2024): nanoset_ref {first['nanoset_ref']}, "
        f"datatrove {first['datatrove']}, litdata {first['litdata']}, "
        f"Megatron-Core {first['Megatron-Core']}."
    )
    assert said in " ".join(README.split())


def test_the_loaders_said_to_break_a_law_broke_it() -> None:
    results = ROOT / "benchmarks" / "results" / "laws_peers.json"
    judged = json.loads(results.read_text())
    rows = re.findall(
        r"^\| \[(.+?)\]\(benchmarks/laws/\w+\.py\).* \| `(\w+)` \|", README, re.M
    )
    assert len(rows) == 6
    for version, law in rows:
        found = [
            facts["laws"] for name, facts in judged.items() if f"({version}" in name
        ]
        assert any(laws[law]["status"] == "broken" for laws in found), version


def test_the_readme_is_short_and_begins_with_what_a_reader_does_first() -> None:
    assert len(README.split()) < 1900
    headings = re.findall(r"^## (.+)$", README, flags=re.M)
    assert headings[:4] == ["Install", "One question", "Ten lines", "The course"]
