"""nanoset-ref: one command for everything that is done to token files, orders and runs.

Every subcommand prints for people, and those that look at something also print JSON for machines (--json); errors are
one line on standard error. Exit codes: 0 done, 1 the input is at fault or a law is broken, 2 the command line is wrong,
3 done, but more than 1 % of the documents could not be used and were left out (--on-error skip).
A subcommand is a function (see `nanoset_ref.cli.command`), imported when it is asked for.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pkgutil import resolve_name
from typing import Any

from nanoset_ref.cli.command import UsageError, one_line, run

FILES, RUNS = "nanoset_ref.cli.file_commands:", "nanoset_ref.cli.run_commands:"

# name: (module:function, what it does); a `main(arguments, prog)` parses its command line itself.
COMMANDS = {
    "inspect": (
        FILES + "inspect",
        "statistics of tokenised documents: counts, lengths, EOS, duplicates",
    ),
    "verify": (
        FILES + "verify_files",
        "compare files with what is recorded of them: checksum, size, ids",
    ),
    "convert": (
        FILES + "convert_file",
        "convert between .npy, .bin/.idx and .ds, proven by a hash",
    ),
    "merge": (
        FILES + "merge_files",
        "put the documents of several files one after another into one file",
    ),
    "split": (
        FILES + "split_file",
        "hold out documents: write a file without them, and one of them",
    ),
    "show": (RUNS + "show_text", "decode a sample, a document or a step to text"),
    "where": (
        RUNS + "where_from",
        "where the tokens of a step come from: file, sample, documents, bytes",
    ),
    "when": (
        RUNS + "when_read",
        "every epoch, step, rank and row at which a document or a piece of text is read",
    ),
    "loss": (RUNS + "plot_loss", "the loss of a run as a plot of text, from its metrics.jsonl"),
    "audit": (
        RUNS + "audit_run",
        "simulate all ranks of a run and prove that every position is read once",
    ),
    "laws": (
        "nanoset_ref.laws.laws_command:main",
        "put any data loader to the laws of loading; the smallest case that breaks each",
    ),
    "estimate": (
        "nanoset_ref.cli.estimate:estimate_run",
        "hours, memory, disk and epochs of a run before it begins",
    ),
    "preprocess": (
        "nanoset_ref.preprocess:main",
        "text to a token file; also python -m nanoset_ref.preprocess",
    ),
    "megatron-preprocess": (
        "nanoset_ref.megatron.preprocess:main",
        "text to .bin/.idx with Megatron-LM's flags",
    ),
    "index": (
        "nanoset_ref.megatron.index:main",
        "build the indexes of a Megatron-style dataset before a run",
    ),
    "train": (
        "nanoset_ref.train:main",
        "train from a YAML file; several processes: torchrun -m nanoset_ref.train",
    ),
    "chunks": (
        "nanoset_ref.chunks.__main__:main",
        "prepare a corpus: download, tokenize, mix, validate, convert",
    ),
}


def choose(command: str, /) -> None:
    raise UsageError(f"there is no command {command!r}")


WHAT = (
    "How tokens reach the GPUs: look into token files, orders and runs. "
    "COMMAND --help lists the options of a command."
)
choose.__doc__ = "\n".join(
    [WHAT, "", *(f"{name:<21}{what}" for name, (_, what) in COMMANDS.items())]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    name, *words = [*(sys.argv[1:] if arguments is None else arguments)] or [""]
    if name not in COMMANDS:
        return run(choose, [name] if name else [], "nanoset-ref")
    prog = f"nanoset-ref {name}"
    try:
        work = resolve_name(COMMANDS[name][0])
    except ImportError as error:
        print(f"{prog}: error: {one_line(error)}", file=sys.stderr)
        return 1
    return int(work(words, prog)) if work.__name__ == "main" else run(work, words, prog)


@dataclass(frozen=True)
class Commands:
    """Commands as a step of a datatrove pipeline, for its executors on local processes, Slurm or Ray.

    Task r of N runs commands r, r + N, r + 2 N, ... one after another, each in its own process. So files are the same,
    byte for byte, as when the commands are typed on one machine. An executor that fails or is killed skips completed
    tasks when it runs again; give it as many tasks as there are commands.

    Args:
        commands: lists of the words after `nanoset-ref`.

    Raises:
        RuntimeError: (when run) a command failed; the last line it wrote.
    """

    commands: Sequence[Sequence[str]]

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Any:
        """Run this task's commands; `data` goes on to the next step unchanged."""
        for words in islice(self.commands, rank, None, world_size):
            done = subprocess.run(
                [sys.executable, "-m", "nanoset_ref.cli", *words], stderr=subprocess.PIPE, text=True
            )
            if done.returncode:
                said = done.stderr.strip().splitlines()[-1:]
                raise RuntimeError(
                    f"nanoset-ref {shlex.join(words)} ended with exit code {done.returncode}: {said}"
                )
        return data
