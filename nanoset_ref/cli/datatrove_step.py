"""Commands as a step of a datatrove pipeline."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any


@dataclass(frozen=True)
class Commands:
    """Commands as a step of a datatrove pipeline, which runs them locally, on Slurm or on Ray.

    Task r of N runs commands r, r + N, r + 2 N, ... one after another, each in its own process. So
    files are the same, byte for byte, as when the commands are typed on one machine. An executor
    that fails or is killed skips completed tasks when it runs again; give it as many tasks as there
    are commands, and give them --overwrite, because a task that was killed at its end runs again.

    Args:
        commands: lists of the words after `nanoset-ref`. Exit code 3, complete files without some
            documents, is no failure: their number is in the task's log.

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
            sys.stderr.write(done.stderr)
            if done.returncode not in (0, 3):
                last_line = done.stderr.strip().rpartition("\n")[2]
                raise RuntimeError(
                    f"nanoset-ref {shlex.join(words)} ended with exit code {done.returncode}: "
                    f"{last_line}"
                )
        return data
