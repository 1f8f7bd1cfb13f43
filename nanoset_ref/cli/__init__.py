"""nanoset-ref: one command for token files, orders and runs.

Every subcommand prints text for people; most read-only ones also print JSON (--json). An
error is one line on standard error. Exit codes:

    0   done
    1   the input is wrong, or a law is broken
    2   the command line is wrong
    3   done in part: more than 1 % of the documents could not be used and were left out
        (--on-error skip), or a law could not be judged

A command's module is imported when the command is chosen, so a command loads neither torch nor
another package that it does not use.

command, launcher           commands made from functions; the start of a process
run_options                 options that name a run
file_commands               inspect, verify, convert, merge, split
lookup_commands             show, where, when
run_commands                replay, skip, audit, loss
card_commands               card, compare
estimate, estimate_sources  estimate: the command, and the sizes of a stage's sources

The other commands are in their own packages.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from nanoset_ref.cli.command import UsageError, command_line, run
from nanoset_ref.cli.launcher import begin_command

COMMANDS = {
    "inspect": "statistics of tokenized documents: counts, lengths, EOS, duplicates",
    "verify": "compare files with what is recorded about them: checksum, size, ids",
    "convert": "convert between .npy, .bin/.idx and .ds, verified by a hash",
    "merge": "join the documents of several files into one file",
    "split": "hold out documents: write them to one file, and all others to another",
    "show": "decode a sample, a document or a step to text",
    "where": "where the tokens of a step come from: file, sample, documents, bytes",
    "when": "when a document or text is read: epoch, step, rank, row",
    "replay": "the ids of the rows that steps read, for training on them again",
    "skip": "the run without some documents: what changes, and from which step",
    "loss": "the loss of a run as a plot of text, from its metrics.jsonl",
    "audit": "simulate all ranks of a run and check that every position is read once",
    "card": "write the card of a run: its files, order and steps in 10 kB; `card complete` adds "
    "the sizes of its files",
    "compare": "two run cards: the first step at which they read different rows",
    "estimate": "hours, memory, disk and epochs of a run before it begins",
    "laws": "test any data loader against the laws of loading; the smallest case that breaks each",
    "preprocess": "text to a token file; also python -m nanoset_ref.preprocess",
    "megatron-preprocess": "text to .bin/.idx with Megatron-LM's flags",
    "index": "build the indexes of a Megatron-style dataset before a run",
    "train": "train from a YAML file; several processes: torchrun -m nanoset_ref.train",
    "chunks": "prepare a corpus: download, tokenize, mix, validate, convert",
}


def _function_of(command: str) -> Any:
    """Import the function that `run` makes a command of; it has the name of the command."""
    match command:
        case "inspect" | "verify" | "convert" | "merge" | "split":
            from nanoset_ref.cli import file_commands

            module: Any = file_commands
        case "show" | "where" | "when":
            from nanoset_ref.cli import lookup_commands

            module = lookup_commands
        case "card" | "card complete" | "compare":
            from nanoset_ref.cli import card_commands

            module = card_commands
        case "estimate":
            from nanoset_ref.cli import estimate

            module = estimate
        case _:
            from nanoset_ref.cli import run_commands

            module = run_commands
    return getattr(module, command.replace(" ", "_"))


def _start(command: str, words: Sequence[str], prog: str) -> int:
    """Import a command and run it; return the exit code."""
    match command:
        case "laws":
            from nanoset_ref.laws.laws_command import main
        case "preprocess":
            from nanoset_ref.preprocess import main
        case "megatron-preprocess":
            from nanoset_ref.megatron.preprocess import main
        case "index":
            from nanoset_ref.megatron.index.index_command import main
        case "train":
            from nanoset_ref.train import main
        case "chunks":
            from nanoset_ref.chunks.commands import main
        case _:
            return run(_function_of(command), words, prog)
    return main(words, prog)


def choose(command: str, /) -> None:
    raise UsageError(f"there is no command {command!r}")


SUMMARY = (
    "How tokens reach the GPUs: look into token files, orders and runs. "
    "COMMAND --help lists the options of a command."
)
LINES = [f"{name:<21}{summary}" for name, summary in COMMANDS.items()]
choose.__doc__ = "\n".join([SUMMARY, "", *LINES])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    begin_command()
    words = command_line(arguments)
    if not words or words[0] not in COMMANDS:
        return run(choose, words[:1], "nanoset-ref")
    length = 2 if words[:2] == ["card", "complete"] else 1
    command = " ".join(words[:length])
    return _start(command, words[length:], f"nanoset-ref {command}")


@dataclass(frozen=True)
class Commands:
    """Commands as a step of a datatrove pipeline, which runs them locally, on Slurm or on Ray.

    Task r of N runs commands r, r + N, r + 2 N, ... one after another, each in its own process. So
    files are the same, byte for byte, as when the commands are typed on one machine. An executor
    that fails or is killed skips completed tasks when it runs again; give it as many tasks as there
    are commands.

    Args:
        commands: lists of the words after `nanoset-ref`.

    Raises:
        RuntimeError: (when run) a command failed; the message ends with its last line of stderr.
    """

    commands: Sequence[Sequence[str]]

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Any:
        """Run this task's commands, and return `data` unchanged for the next step."""
        for words in islice(self.commands, rank, None, world_size):
            done = subprocess.run(
                [sys.executable, "-m", "nanoset_ref.cli", *words],
                stderr=subprocess.PIPE,
                text=True,
            )
            if done.returncode:
                last_line = done.stderr.strip().rpartition("\n")[2]
                raise RuntimeError(
                    f"nanoset-ref {shlex.join(words)} ended with exit code {done.returncode}: "
                    f"{last_line}"
                )
        return data
