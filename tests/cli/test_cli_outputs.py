"""The help of every command, and outputs that are closed, full, left by their reader or cannot encode."""

import os
import subprocess
import sys
from functools import partial

import pytest
from token_files import write_range

from nanoset_ref import tokens
from nanoset_ref.cli import COMMANDS


def test_every_subcommand_has_help(run):
    for name in COMMANDS:
        code, said, _ = run(name, "--help")
        assert code == 0
        assert said.startswith(f"usage: nanoset-ref {name} ")
        assert len(said) > 200 or name == "chunks", "chunks has commands of its own"


def test_help_imports_neither_torch_nor_numpy():
    code = "import sys; from nanoset_ref.cli import main; main(['--help']); "
    code += "print({'torch', 'numpy'} & set(sys.modules))"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("usage: nanoset-ref ") and said.endswith("set()\n")


@pytest.mark.parametrize(
    "words", [["--help"], ["inspect", "raw.npy", "--eos-token-id", "7"]]
)
def test_a_reader_that_leaves_and_a_full_disk_are_no_traceback(tmp_path, words):
    write_range(tmp_path / "raw.npy", 41)
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }
    command = partial(
        subprocess.run, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    )
    command = partial(command, [sys.executable, "-m", "nanoset_ref.cli", *words])
    read, write = os.pipe()
    os.close(read)
    gone = command(stdout=write)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        told = command(stdout=full)
    name = "nanoset-ref" if "--help" in words else "nanoset-ref inspect"
    said = f"{name}: error: No space left on device\n"
    assert (told.returncode, told.stderr) == (1, said)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_without_an_output_does_its_work(tmp_path, closed):
    write_range(tmp_path / "raw.npy", 41)
    command = (
        f"{sys.executable} -m nanoset_ref.cli convert raw.npy b.bin --eos-token-id 7"
    )
    done = subprocess.run(f"{command} {closed}", shell=True, cwd=tmp_path)
    assert done.returncode == 0
    assert tokens.open_tokens(tmp_path / "b.bin").num_tokens == 41


def test_characters_that_an_output_cannot_encode_are_escaped(tmp_path):
    write_range(tmp_path / "raw.npy", 41)
    words = "audit --data raw.npy --sequence-length 4".split()
    told = subprocess.run(
        [sys.executable, "-m", "nanoset_ref.cli", *words],
        cwd=tmp_path,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (told.returncode, told.stderr) == (0, b"")
    assert b"\\u2584" in told.stdout
