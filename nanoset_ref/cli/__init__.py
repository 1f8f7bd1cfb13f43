"""nanoset-ref: one command for everything that is done to token files, orders and runs.

Every subcommand prints for people, and those that look at something also print JSON for machines (--json); errors are
one line on standard error. Exit codes: 0 done, 1 the input is at fault or a law is broken, 2 the command line is wrong,
3 done, but more than 1 % of the documents could not be used and were left out (--on-error skip).

A subcommand is a function here, with its line of help as docstring. It imports its module in its body, so that a
command loads neither torch nor another package that it does not use.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from nanoset_ref.cli.command import UsageError, run
from nanoset_ref.cli.launcher import begin_command

Words = Sequence[str]


def inspect(words: Words, prog: str) -> int:
    """statistics of tokenized documents: counts, lengths, EOS, duplicates"""
    from nanoset_ref.cli.file_commands import inspect

    return run(inspect, words, prog)


def verify(words: Words, prog: str) -> int:
    """compare files with what is recorded of them: checksum, size, ids"""
    from nanoset_ref.cli.file_commands import verify_files

    return run(verify_files, words, prog)


def convert(words: Words, prog: str) -> int:
    """convert between .npy, .bin/.idx and .ds, proven by a hash"""
    from nanoset_ref.cli.file_commands import convert_file

    return run(convert_file, words, prog)


def merge(words: Words, prog: str) -> int:
    """put the documents of several files one after another into one file"""
    from nanoset_ref.cli.file_commands import merge_files

    return run(merge_files, words, prog)


def split(words: Words, prog: str) -> int:
    """hold out documents: write a file without them, and one of them"""
    from nanoset_ref.cli.file_commands import split_file

    return run(split_file, words, prog)


def show(words: Words, prog: str) -> int:
    """decode a sample, a document or a step to text"""
    from nanoset_ref.cli.run_commands import show_text

    return run(show_text, words, prog)


def where(words: Words, prog: str) -> int:
    """where the tokens of a step come from: file, sample, documents, bytes"""
    from nanoset_ref.cli.run_commands import where_from

    return run(where_from, words, prog)


def when(words: Words, prog: str) -> int:
    """every epoch, step, rank and row at which a document or a piece of text is read"""
    from nanoset_ref.cli.run_commands import when_read

    return run(when_read, words, prog)


def replay(words: Words, prog: str) -> int:
    """the ids of the rows that steps read, for training on them again"""
    from nanoset_ref.cli.run_commands import replay_steps

    return run(replay_steps, words, prog)


def skip(words: Words, prog: str) -> int:
    """what a run reads without some documents, and from which step on it differs"""
    from nanoset_ref.cli.run_commands import skip_rows

    return run(skip_rows, words, prog)


def loss(words: Words, prog: str) -> int:
    """the loss of a run as a plot of text, from its metrics.jsonl"""
    from nanoset_ref.cli.run_commands import plot_loss

    return run(plot_loss, words, prog)


def audit(words: Words, prog: str) -> int:
    """simulate all ranks of a run and prove that every position is read once"""
    from nanoset_ref.cli.run_commands import audit_run

    return run(audit_run, words, prog)


def card(words: Words, prog: str) -> int:
    """write the card of a run, its files, order and steps in 10 kB; or `card complete` one with sizes"""
    from nanoset_ref.cli.card_commands import complete_card, write_card

    if words[:1] == ["complete"]:
        return run(complete_card, words[1:], f"{prog} complete")
    return run(write_card, words, prog)


def compare(words: Words, prog: str) -> int:
    """two run cards: the first step at which they read other rows"""
    from nanoset_ref.cli.card_commands import compare_cards

    return run(compare_cards, words, prog)


def estimate(words: Words, prog: str) -> int:
    """hours, memory, disk and epochs of a run before it begins"""
    from nanoset_ref.cli.estimate import estimate_run

    return run(estimate_run, words, prog)


def preprocess(words: Words, prog: str) -> int:
    """text to a token file; also python -m nanoset_ref.preprocess"""
    from nanoset_ref.preprocess import main

    return main(words, prog)


def megatron_preprocess(words: Words, prog: str) -> int:
    """text to .bin/.idx with Megatron-LM's flags"""
    from nanoset_ref.megatron.preprocess import main

    return main(words, prog)


def index(words: Words, prog: str) -> int:
    """build the indexes of a Megatron-style dataset before a run"""
    from nanoset_ref.megatron.index import main

    return main(words, prog)


def train(words: Words, prog: str) -> int:
    """train from a YAML file; several processes: torchrun -m nanoset_ref.train"""
    from nanoset_ref.train import main

    return main(words, prog)


def laws(words: Words, prog: str) -> int:
    """put any data loader to the laws of loading; the smallest case that breaks each"""
    from nanoset_ref.laws.laws_command import main

    return main(words, prog)


def chunks(words: Words, prog: str) -> int:
    """prepare a corpus: download, tokenize, mix, validate, convert"""
    from nanoset_ref.chunks.commands import main

    return main(words, prog)


FUNCTIONS: list[Callable[[Words, str], int]] = [
    inspect,
    verify,
    convert,
    merge,
    split,
    show,
    where,
    when,
    replay,
    skip,
    loss,
    audit,
    card,
    compare,
    estimate,
    laws,
    preprocess,
    megatron_preprocess,
    index,
    train,
    chunks,
]
COMMANDS = {function.__name__.replace("_", "-"): function for function in FUNCTIONS}


def choose(command: str, /) -> None:
    raise UsageError(f"there is no command {command!r}")


WHAT = (
    "How tokens reach the GPUs: look into token files, orders and runs. "
    "COMMAND --help lists the options of a command."
)
LINES = [f"{name:<21}{command.__doc__}" for name, command in COMMANDS.items()]
choose.__doc__ = "\n".join([WHAT, "", *LINES])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    begin_command()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        return run(choose, words[:1], "nanoset-ref")
    return COMMANDS[words[0]](words[1:], f"nanoset-ref {words[0]}")


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
