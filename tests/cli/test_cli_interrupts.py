"""nanoset-ref, interrupted by Ctrl-C or SIGTERM at any moment: one line, nothing half-written."""

import os
import signal
import subprocess
import sys
import threading
import tomllib
from functools import partial
from pathlib import Path

import pytest
from cli_helpers import ids_of

from nanoset_ref import tokens

ROOT = Path(__file__).parents[2]


def python(folder, *words):
    """Run `python -m` with the modules of a folder first."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])
    }
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


EARLY = "nanoset_ref: error: interrupted before it began; nothing was written\n"
LATE = "nanoset_ref.megatron.index: error: interrupted; no file is half written\n"


@pytest.mark.parametrize("module", ["argparse", "dataclasses", "logging"])
def test_an_interrupt_while_a_command_begins_is_one_line(tmp_path, module):
    """The standard library's modules take longer than anything before them."""
    (tmp_path / f"{module}.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert python(tmp_path, "nanoset_ref.cli", "verify", "x") == (1, "", EARLY)


def test_the_installed_command_begins_as_python_m_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"nanoset-ref": "nanoset_ref.cli.__main__:main"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cli verify x", EARLY),
        ("chunks mix", EARLY),
        ("preprocess", EARLY),
        ("megatron.index --data-path x --sequence-length 4 --path-to-cache c", LATE),
    ],
)
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path, line, said):
    (tmp_path / "numpy.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert python(tmp_path, *f"nanoset_ref.{line}".split()) == (1, "", said)


def test_a_program_that_imports_the_package_keeps_its_own_interrupts(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("import nanoset_ref\n")
    (tmp_path / "trainer" / "loop.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('saved')\n"
    )
    assert python(tmp_path, "trainer.loop") == (0, "saved\n", "")


def test_an_interrupt_is_one_line(run, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(
        tokens, "open_tokens", lambda *_: signal.raise_signal(signal.SIGINT)
    )
    code, out, error = run("convert", ids_of(corpus), tmp_path / "a.npy")
    assert (code, out, error) == (
        1,
        "",
        "nanoset-ref convert: error: interrupted; no file is half written\n",
    )


def test_ended_by_sigterm_together_with_its_workers_a_command_says_so(
    run, corpus, tmp_path, monkeypatch, request
):
    """torchrun and Slurm send SIGTERM to all processes of a rank; torch then raises for the workers."""

    def worker_ended(*_):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")

    def end_with_workers(*_):
        signal.signal(signal.SIGCHLD, worker_ended)
        both = {signal.SIGTERM, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.pthread_kill(threading.get_ident(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)

    for number in (signal.SIGTERM, signal.SIGCHLD):
        request.addfinalizer(partial(signal.signal, number, signal.getsignal(number)))
    monkeypatch.setattr(tokens, "open_tokens", end_with_workers)
    code, out, error = run("convert", ids_of(corpus), tmp_path / "a.npy")
    assert (code, out, error) == (
        1,
        "",
        "nanoset-ref convert: error: ended by SIGTERM; no file is half written\n",
    )


@pytest.mark.parametrize("handler", [lambda *_: None, signal.SIG_IGN])
def test_a_program_that_calls_a_command_keeps_its_own_handler(handler, run):
    """A trainer that saves on SIGTERM may prepare its text first."""
    before = signal.signal(signal.SIGTERM, handler)
    try:
        for words in (["show", "nowhere"], ["--help"]):
            run(*words)
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_command_may_be_called_in_a_thread_of_a_program(tmp_path):
    (tmp_path / "program.py").write_text(
        "import threading\nfrom nanoset_ref.cli import main\n"
        "thread = threading.Thread(target=lambda: print(main(['train', '--example', 'x'])))\n"
        "thread.start()\nthread.join()\n"
    )
    code, out, error = python(tmp_path, "program")
    assert (code, out) == (0, "2\n") and "there is no example 'x'" in error
