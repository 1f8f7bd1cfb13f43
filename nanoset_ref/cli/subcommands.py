"""The commands of nanoset-ref; the module of one is imported when it is chosen."""

from collections.abc import Sequence

from nanoset_ref import cli
from nanoset_ref.cli.arguments import UsageError
from nanoset_ref.cli.command import command_line, run
from nanoset_ref.cli.startup import begin_command

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


def _start(command: str, words: Sequence[str], prog: str) -> int:
    """Import a command and run it; return the exit code. `cli` has its own by name."""
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
            return run(getattr(cli, command.replace(" ", "_")), words, prog)
    return main(words, prog)


def refuse_unknown(command: str, /) -> None:
    from nanoset_ref.io.checks import unknown_key_problem  # it imports numpy

    raise UsageError(f"{command}: {unknown_key_problem(command, COMMANDS, 'command')}")


SUMMARY = (
    "How tokens reach the GPUs: look into token files, orders and runs. "
    "COMMAND --help lists the options of a command."
)
LINES = [f"{name:<21}{summary}" for name, summary in COMMANDS.items()]
refuse_unknown.__doc__ = "\n".join([SUMMARY, "", *LINES])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    begin_command()
    words = command_line(arguments)
    if not words or words[0] not in COMMANDS:
        return run(refuse_unknown, words[:1], "nanoset-ref")
    length = 2 if words[:2] == ["card", "complete"] else 1
    command = " ".join(words[:length])
    return _start(command, words[length:], f"nanoset-ref {command}")
