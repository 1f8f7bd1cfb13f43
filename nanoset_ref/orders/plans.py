"""Plans: what a run reads, as JSON, and whether two runs read the same.

A plan holds all that decides the tokens at every position, and nothing else is compared:

    version    of this form of plans
    order      `Order.identity`: what its pairs are a function of, and the version of its algorithm
    rows       how rows are cut: sequence_length, row_length, packing, padding
    files      of each file num_tokens, dtype, windows and checksum, and the checksum of its document boundaries where
               packing or masks read them. A checksum is the one that lies beside the file; without one it is None, and
               the file is known by its size and the probes ("known_by": "probes" instead of "content")
    probes     {position: [file, sample, hash of the tokens of the row]} at `probe_positions`
    recipe     how to build the order again; not compared, and neither are names of files

Two plans agree if all of it is equal, except that a checksum is compared where both plans have it, and a probe where
both plans have its position. The number of samples is no part: a longer run is the same plan. Probes find what nothing
else shows: another algorithm under the same version, a stale compiled kernel, other ids in a file without a checksum.

A plan is made when it or a state is first asked for, as probes are read from the files; opening reads none.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

Plan = dict[str, Any]

VERSION = 1
OCTAVES = 48
NOT_COMPARED = {"name", "known_by", "recipe"}
WHERE_BOTH_HAVE_ONE = {"checksum", "documents"}
CONSEQUENCES = ("probes", "order.dataset_lengths")  # what differs as soon as something else does
MOST_LINES, MOST_CHARACTERS = 8, 90


class PlanMismatch(ValueError):
    """A state was saved under another plan: continuing would read other tokens than the run it belongs to."""


class Difference(NamedTuple):
    """One thing that two plans disagree on, and what each of them holds."""

    part: str
    saved: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.part}: saved {_short(self.saved)}, now {_short(self.now)}"


# ---- what a plan is made of


@functools.cache
def keyed_offsets() -> tuple[int, ...]:
    """0, and two numbers of each [2**i, 2**(i + 1)) that depend on nothing but i, ascending."""
    found = {0}
    for i in range(OCTAVES):
        for key in (b"%d a" % i, b"%d b" % i):
            drawn = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
            found.add(2**i + drawn % 2**i)
    return tuple(sorted(found))


def probe_positions(first: int, stop: int) -> list[int]:
    """The positions of [first, stop) that a plan probes, ascending: `keyed_offsets` from `first` on, and the last one.

    So the plan of a longer run has the probes of a shorter one, its last but for chance. An order that goes on from a
    ledger is probed from its own first position on.
    """
    found = {first + offset for offset in keyed_offsets()} | {stop - 1}
    return sorted(position for position in found if first <= position < stop)


def fingerprint_of(facts: Any) -> str:
    """32 hexadecimal digits of what can be written as JSON."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def compared(value: Any) -> Any:
    """A plan, or a part of one, without what is not compared and without its probes."""
    if isinstance(value, dict):
        return {
            name: compared(part)
            for name, part in value.items()
            if name not in NOT_COMPARED | {"probes"}
        }
    return [compared(part) for part in value] if isinstance(value, list) else value


# ---- two plans


def check_plan(saved: Plan | None, current: Plan | None) -> None:
    """Let a state of the plan `saved` continue under `current`; where one is None, nothing is compared.

    Raises:
        PlanMismatch: they do not agree; the message says which parts differ and what both plans hold. Or the state is
            of a version of this package whose plans held something else.
        ValueError: what was saved is no plan.
    """
    if saved is None or current is None:
        return
    if not isinstance(saved, dict):
        raise ValueError(f"a state holds the plan of a dataset or null; got {str(saved)[:200]}")
    if saved.get("version") != current.get("version"):
        raise PlanMismatch(
            f"this state was saved with plans of version {saved.get('version')}, now they are of version "
            f"{current.get('version')}, so nothing says whether position k still holds the same tokens: to go on "
            'unchecked, set the state\'s "plan" to null (a TokenStream: seek to its count); or begin a new run'
        )
    if lines := describe_differences(saved, current):
        raise PlanMismatch(
            "this state was saved under another plan, so position k would hold other tokens:\n"
            f"{''.join(f'  {line}' + chr(10) for line in lines)}Continue with the saved plan, or begin a new run."
        )


def describe_differences(saved: Plan, current: Plan) -> list[str]:
    """A line for each of the `differences`, of many the first ones."""
    lines = [str(difference) for difference in differences(saved, current)]
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"and {more:,} more"]


def differences(saved: Plan, current: Plan) -> list[Difference]:
    """What two plans disagree on; empty if they agree. What only follows from another difference is left out."""
    found = [*_differing("", saved, current)]
    causes = [difference for difference in found if not difference.part.startswith(CONSEQUENCES)]
    return causes or found


def _differing(part: str, saved: Any, now: Any) -> Iterator[Difference]:
    if part == "probes" and isinstance(saved, dict) and isinstance(now, dict):
        yield from _differing_probes(saved, now)
    elif isinstance(saved, dict) and isinstance(now, dict):
        for name in {**saved, **now}:
            values = saved.get(name), now.get(name)
            if name in NOT_COMPARED or (name in WHERE_BOTH_HAVE_ONE and None in values):
                continue
            yield from _differing(f"{part}.{name}".lstrip("."), *values)
    elif _is_list_of_dicts(saved) and _is_list_of_dicts(now):
        if len(saved) != len(now):
            yield Difference(f"number of {part}", len(saved), len(now))
        for number, items in enumerate(zip(saved, now, strict=False)):
            names = dict.fromkeys(str(item["name"]) for item in items if "name" in item)
            told = f" ({', now '.join(names)})" if names else ""
            yield from _differing(f"{part}[{number}]{told}", *items)
    elif saved != now:
        yield Difference(part, saved, now)


def _differing_probes(saved: dict[str, Any], now: dict[str, Any]) -> Iterator[Difference]:
    """The first position whose pair differs, or else whose tokens do."""
    differing = [
        position for position in saved if position in now and saved[position] != now[position]
    ]
    of_pairs = [
        position for position in differing if _pair(saved[position]) != _pair(now[position])
    ]
    for position in (of_pairs or differing)[:1]:
        what = "file and sample" if of_pairs else "a hash of the tokens"
        count = f"{len(of_pairs or differing)} of {len(saved.keys() & now.keys())}"
        yield Difference(
            f"probes ({count} differ), {what} at position {position}",
            saved[position],
            now[position],
        )


def _is_list_of_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _pair(probe: Any) -> Any:
    """File and sample of a probe; of something else, as a damaged state may hold it, all."""
    return probe[:2] if isinstance(probe, list) else probe


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 4]} ..."
