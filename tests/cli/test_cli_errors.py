"""nanoset-ref with what can go wrong: one line on standard error, an exit code, nothing half-written."""

import os
import shlex
import signal
import subprocess
import sys
from functools import partial

import pytest
from cli_parts import ids_of
from test_nanoset import write_range

from nanoset_ref.cli import COMMANDS, file_commands


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("where --step 1", "say which run is meant"),
        ("where --data a=1 b --step 1", "give every file a weight or none"),
        ("where --data nothing.npy --step 1", "no token file at nothing.npy"),
        ("where --data m.bin=1 --step 1", "give --num-samples"),
        ("where --data raw.npy=x --step 1", "no token file at raw.npy=x"),
        ("where --data raw.npy --sequence-length 9 --dp-size 9 --step 1", "has no steps"),
        ("where --config raw.npy --data raw.npy --step 1", "either --config FILE.yaml, or --data"),
        ("where --config nothing.yaml --step 1", "nothing.yaml: No such file"),
        ("where --config broken.yaml --step 1", "broken.yaml"),
        ("when --data raw.npy --sequence-length 4 --text ' '", "does not say its tokenizer"),
        ("audit --data raw.npy --sequence-length 4 --state raw.npy", "raw.npy is not JSON"),
        (
            "audit --data raw.npy --sequence-length 4 --state list.json",
            "cannot be compared with this run (AttributeError",
        ),
        ("audit --data raw.npy --sequence-length 4 --state half.json", "a plan of version None, this package"),
        ("audit --data m.bin --sequence-length 4 --state half.json", "reads .bin/.idx pairs"),
        ("inspect m.bin --png nofolder/a.png", "the folder nofolder does not exist"),
        ("verify m.bin --png", "unrecognized arguments: --png; see nanoset-ref verify --help"),
        ("verify m.bin --vocab-size 0", "must be a whole number from 1 on, got '0'"),
        ("show --data raw.npy --sequence-length 4 --position -1", "there is no position -1"),
        ("convert m.bin a.npy --dtype wide", "argument --dtype: invalid choice: 'wide' (choose from"),
        ("split m.bin a.npy raw.npy --held-out 1", "raw.npy exists"),
        ("split m.bin a.npy a.npy --held-out 1", "two files, got a.npy for both"),
        ("split m.bin a.npy b.npy --held-out nan", "lies between 0 and 1, got nan"),
        ("split m.bin a.npy b.npy --held-out 9", "9 asks for 9"),
        ("inspect raw.npy", "raw.npy has no manifest"),
        ("show --data raw.npy --sequence-length 4 --sample 99", "there is no sample 99"),
        ("show --data raw.npy --sequence-length 4 --sample 0 --source 3", "no file 3"),
        ("show --data raw.npy --sequence-length 4 --position 1000", "there is no position 1000"),
        ("audit --data raw.npy --sequence-length 4 --micro-batch-size 99", "num_steps must be at least 1"),
    ],
)
def test_bad_input_is_one_line_on_standard_error(run, tmp_path, monkeypatch, line, message):
    arguments = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    write_range(tmp_path / "raw.npy", 41)
    assert run("convert", "raw.npy", "m.bin", "--eos-token-id", 7)[0] == 0
    (tmp_path / "broken.yaml").write_text("a: [1\nb: 2\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "half.json").write_text('{"consumed_train_samples": 1, "plan": {"files": [{}]}}')
    before = sorted(tmp_path.iterdir())
    code, out, error = run(*arguments)
    assert (code in (1, 2), out) == (True, "")
    assert message in error
    assert error.startswith(f"nanoset-ref {arguments[0]}: error: ") and error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_wrong_command_line_is_exit_code_2(run):
    for arguments in ([], ["fly"], ["show", "--data", "x"], ["show", "--position", "1", "--step", "2"]):
        code, _, message = run(*arguments)
        assert code == 2
        assert message.startswith("nanoset-ref") and message.endswith("--help\n") and message.count("\n") == 1


def test_every_subcommand_has_help(run):
    for name in COMMANDS:
        code, said, _ = run(name, "--help")
        assert code == 0
        assert said.startswith(f"usage: nanoset-ref {name} ")
        assert len(said) > 200 or name == "chunks", "chunks has commands of its own"


def test_help_imports_neither_torch_nor_numpy():
    code = (
        "import sys; from nanoset_ref.cli import main; main(['--help']); print({'torch', 'numpy'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("usage: nanoset-ref ") and said.endswith("set()\n")


@pytest.mark.parametrize("words", [["--help"], ["inspect", "raw.npy", "--eos-token-id", "7"]])
def test_a_reader_that_leaves_and_a_full_disk_are_no_traceback(tmp_path, words):
    write_range(tmp_path / "raw.npy", 41)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = partial(subprocess.run, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment)
    command = partial(command, [sys.executable, "-m", "nanoset_ref.cli", *words])
    read, write = os.pipe()
    os.close(read)
    gone = command(stdout=write)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        told = command(stdout=full)
    if "inspect" in words:
        assert (told.returncode, told.stderr) == (1, "nanoset-ref inspect: error: No space left on device\n")


def python(folder, *words):
    """Run `python -m` with the modules of a folder first, where SIGINT is not ignored, as shells have it behind."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    not_ignored = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, preexec_fn=not_ignored, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["cli verify x", "chunks mix", "megatron.index", "preprocess"])
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path, module):
    (tmp_path / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    said = "nanoset_ref: error: interrupted before it began; nothing was written\n"
    assert python(tmp_path, *f"nanoset_ref.{module}".split()) == (1, "", said)


def test_a_program_that_imports_the_package_keeps_its_own_interrupts(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("import nanoset_ref\n")
    (tmp_path / "trainer" / "loop.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('saved')\n"
    )
    assert python(tmp_path, "trainer.loop") == (0, "saved\n", "")


def test_an_interrupt_is_one_line(run, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(file_commands, "open_tokens", lambda *_: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have what they put behind ignore it
    try:
        code, out, error = run("convert", ids_of(corpus), tmp_path / "a.npy")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out, error) == (1, "", "nanoset-ref convert: error: interrupted; no file is half written\n")
