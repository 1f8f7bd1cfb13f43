"""The config of another loader, and the parts of a card that are made from it.

If a config lacks facts for which its system has no defaults, one error names all of them. The
card lists the defaults as inferred.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nanoset_ref.io.checks import unknown_key_problem
from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.types import Json

GIVEN_NAMES = {
    "batch_size": "rows of a step on all ranks together",
    "dp_size": "data-parallel ranks",
    "dtype": "of the ids, such as uint16",
    "files": "how many token files the mix names",
    "micro_batch_size": "rows of a rank in a micro-batch",
    "seed": "of the order",
    "sequence_length": "tokens of a row, without the label of the last one",
    "steps": "optimizer steps of the run",
}


class LoaderConfig:
    """A config and the facts that the user gives because the config lacks them.

    Args:
        values: the config, parsed.
        given: {a name in GIVEN_NAMES: its value}.

    Raises:
        ValueError: an unknown name.
    """

    def __init__(self, values: Json, given: Mapping[str, str]) -> None:
        for name in given:
            if name not in GIVEN_NAMES:
                raise ValueError(
                    f"--given {name}: {unknown_key_problem(name, GIVEN_NAMES)}"
                )
        self.values = values
        self.given = given
        self._asked: set[str] = set()
        self._missing: dict[str, str] = {}

    def fact(self, name: str, value: Any = None, *, needed: bool = True) -> Any:
        """The config's value, else the given one; an integer, except for the dtype.

        If both are missing: None, or 1 as a placeholder for a needed fact: call `check` before use.

        Raises:
            ValueError: the given value differs from the config's.
        """
        self._asked.add(name)
        given = self.given.get(name)
        if value is None or str(value).startswith("$"):
            value = given
        elif given not in (None, str(value)):
            raise ValueError(f"--given {name}={given}: the config says {value}")
        if value is None and needed:
            self._missing[name] = GIVEN_NAMES[name]
            return 1
        if value is None or name == "dtype":
            return value
        try:
            return int(value)
        except ValueError:
            raise ValueError(f"{name}: must be an integer, got {value!r}") from None

    def check(self) -> None:
        """Raise ValueError with the names of all needed facts that are missing, or without use."""
        unused = ", ".join(sorted(self.given.keys() - self._asked))
        if unused:
            raise ValueError(
                f"--given {unused}: this loader's card needs no such fact; drop it"
            )
        if self._missing:
            lacks = "; ".join(
                f"{name} ({what})" for name, what in self._missing.items()
            )
            names = " ".join(f"{name}=..." for name in self._missing)
            raise ValueError(f"the config lacks {lacks}: add --given {names}")

    def stage_facts(
        self,
        number: int,
        steps: range,
        batch_size: int,
        layout: str,
        dp_size: Any = None,
        micro_batch_size: Any = None,
    ) -> Json:
        """A stage of a card that reads order `number` from position 0 on.

        Args:
            number: of the stage and its order, from 0.
            steps: the optimizer steps.
            batch_size: rows of a step.
            layout: how ranks share a micro-batch.
            dp_size, micro_batch_size: as in the config; None if it has none. If one of them is
                given by hand, the card needs both.
        """
        needed = "dp_size" in self.given or "micro_batch_size" in self.given
        ranks = {
            "layout": layout,
            "dp_size": self.fact("dp_size", dp_size, needed=needed),
            "micro_batch_size": self.fact(
                "micro_batch_size", micro_batch_size, needed=needed
            ),
        }
        if None in ranks.values():
            ranks = dict.fromkeys(ranks)
        return {
            "name": str(number + 1),
            "first_step": steps.start,
            "steps": len(steps),
            "order": number,
            "first_position": 0,
            "batch_size": batch_size,
        } | ranks

    def stages_of_batches(
        self,
        batches: Mapping[int, int],
        **options: Any,
    ) -> list[Json]:
        """A stage for each size of a step, all of one order, one after another.

        Args:
            batches: {rows of a step: steps}.
            **options: the others of `stage_facts`.
        """
        stages = []
        first_step = 1
        position = 0
        for number, (rows, count) in enumerate(batches.items()):
            stop = first_step + count
            stage = self.stage_facts(number, range(first_step, stop), rows, **options)
            stages.append(stage | {"order": 0, "first_position": position})
            first_step = stop
            position += rows * count
        return stages


def unsupported_error(option: str) -> ValueError:
    """The error for an option of another system that no card of its config describes."""
    return ValueError(
        f"{option} changes which rows a step reads, which this command cannot describe: write the "
        "card by hand"
    )


def source_facts(path: str, header: int = 0) -> Json:
    """A token file of a card, with its size if the file exists here.

    Args:
        path: the file.
        header: bytes before its ids.
    """
    size = os.path.getsize(path) if os.path.isfile(path) else None
    facts = {"name": path, "bytes": size}
    if header:
        facts["first_byte"] = header
    return facts


def order_facts(name: str, seed: int, **facts: Any) -> Json:
    """An order of a card, without probes."""
    return {"name": name, "seed": seed, "samples": None, "probes": {}} | facts


def tokenizer_facts(name: str | None) -> Json:
    """The tokenizer of a card, and whether it is unknown."""
    unknown = [] if name else ["the tokenizer"]
    return {"tokenizer": {"name": name, "hash": None}, "unknown": unknown}


def read_command_line(path: PathLike) -> Json:
    """Parse a command line, or the script that holds it.

    A word with a $ is kept if it is the first value of its name, and otherwise skipped: a card must
    not guess how a shell expands it.

    Returns:
        {name without leading dashes, with underscores: its value, a list of them, or True}
    """
    # a comment in another encoding changes nothing
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    text = text.replace("\\\n", " ")
    words = {}
    name = None
    try:
        shell_words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; close it in a copy of the file") from error
    for word in shell_words:
        if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word):
            name, _, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            words[name] = [value] if value else []
        elif name and ("$" not in word or not words[name] or name == "data_path"):
            words[name].append(word)
    arguments: Json = {}
    for name, values in words.items():
        if len(values) == 1:
            arguments[name] = values[0]
        else:
            arguments[name] = values or True
    return arguments
