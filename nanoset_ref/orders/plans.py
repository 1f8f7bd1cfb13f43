"""Plans describe, as JSON, the tokens that a run reads; runs with equal plans read the same.

A plan holds everything that determines the tokens at every position; nothing else is compared:

    version    of the format of plans
    order      `Order.identity`: what determines its pairs, and the version of its algorithm
    rows       how rows are cut: sequence_length, row_length, packing, padding; for loaders also the
               masks: within_documents, what documents bound; documents_end_with, the id by which
               masks find them, or the boundaries; masked_as_padding, an id taken for padding
    files      for each file num_tokens, dtype, windows and checksum, and the checksum of its
               document boundaries where packing or masks use them. A checksum is the stored one
               next to the file; without one it is None, and the file is identified by its size and
               the probes ("known_by": "probes" instead of "content")
    probes     {position: [file, sample, hash of the tokens of the row]} at `probe_positions`
    recipe     how to build the order again; not compared, and neither are names of files

Two plans agree if all of this is equal, except that checksums and masks are compared only if both
plans have them, and a probe only if both plans have its position. The number of samples is not part
of a plan: a longer run has the same one. Probes alone detect another algorithm under the same
version, a stale compiled kernel, and different ids in a file without a checksum.

Probes are read from the files, so a dataset makes its plan when the plan or a state is first asked
for; opening a dataset reads only the first bytes of its files.
"""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import xxhash

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.types import Array, Json
from nanoset_ref.tokens.interface import Tokens

Plan = Json

PLAN_VERSION = 1  # of the format of plans
PROBE_BITS = 48  # offsets of probes are below 2**PROBE_BITS
NOT_COMPARED = {"name", "known_by", "recipe"}
# compared only if both plans have them
MASKS = {"within_documents", "documents_end_with", "masked_as_padding"}
OPTIONAL = {"checksum", "documents"} | MASKS
# a run may change these on purpose, for positions still to come
CHANGEABLE = ("order.skipped", *(f"rows.{name}" for name in MASKS))
# fields that differ if another field does
CONSEQUENCES = ("probes", "order.dataset_lengths")
MAX_LINES = 8
MAX_CHARACTERS = 90


class PlanMismatch(ValueError):
    """A state was saved under another plan, so its run would continue with different tokens."""


class Difference(NamedTuple):
    """A field that differs between two plans, and its value in each of them."""

    field: str
    saved: Any
    current: Any

    def __str__(self) -> str:
        return f"{self.field}: saved {_abbreviated(self.saved)}, now {_abbreviated(self.current)}"


# ---- the parts of a plan


@functools.cache
def probe_offsets() -> tuple[int, ...]:
    """0, and two numbers in each [2**i, 2**(i + 1)) that depend only on i, ascending."""
    offsets = {0}
    for i in range(PROBE_BITS):
        for key in (b"%d a" % i, b"%d b" % i):
            digest = hashlib.blake2b(key, digest_size=8).digest()
            drawn = int.from_bytes(digest, "little")
            offsets.add(2**i + drawn % 2**i)
    return tuple(sorted(offsets))


def probe_positions(start: int, stop: int) -> list[int]:
    """The probed positions of [start, stop), ascending: `probe_offsets` from `start`, and the last.

    A longer run therefore has all probes of a shorter one, except perhaps that one's last. An order
    that continues from a ledger is probed from its own first position.
    """
    drawn = [start + offset for offset in probe_offsets()]
    inside = [position for position in drawn if position < stop]
    if start < stop:
        inside.append(stop - 1)
    return sorted(set(inside))


def describe_file(file: Tokens) -> Json:
    """The entry of a file in a plan."""
    return {
        "name": file.path.name,
        "num_tokens": file.num_tokens,
        "dtype": file.dtype.name,
        "checksum": file.checksum,
        "known_by": "probes" if file.checksum is None else "content",
    }


def hash_rows(rows: Array) -> list[str]:
    """A hash of the ids of each row, whatever their dtype."""
    rows = np.ascontiguousarray(rows, dtype="<i8")
    return [xxhash.xxh3_64_hexdigest(row.data) for row in rows]


def fingerprint_of(facts: Any) -> str:
    """32 hexadecimal digits, a hash of facts that can be written as JSON."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def fingerprint_of_rows(plan: Json, rows: Array) -> str:
    """The `fingerprint_of` a plan without probes, and of the rows that probe it."""
    return fingerprint_of([PLAN_VERSION, comparable_part(plan), hash_rows(rows)])


def comparable_part(value: Any) -> Any:
    """A plan, or a part of one, without its probes and the fields that are not compared."""
    if isinstance(value, list):
        return [comparable_part(part) for part in value]
    if not isinstance(value, dict):
        return value
    ignored = NOT_COMPARED | {"probes"}
    return {
        name: comparable_part(part)
        for name, part in value.items()
        if name not in ignored
    }


# ---- two plans


def check_loader_state(state: Json, loader: Any) -> int:
    """Let a state of a `NanosetDataLoader` continue in another one; see `check_plan`.

    Returns:
        See `check_counts`.

    Raises:
        PlanMismatch: the plans do not agree; or see `check_counts`.
        ValueError: the plan is not a plan, or one of the counts of samples not a number.
    """
    if state.get("plan") is not None:
        check_plan(state["plan"], loader.plan)
    return check_counts(state, len(loader.dataset))


def check_counts(state: Mapping[str, Any], length: int) -> int:
    """Let the counts of a state continue in a dataset of `length` samples.

    Returns:
        The samples that were dropped at the end of the saved run's last epoch.

    Raises:
        PlanMismatch: the datasets have different lengths, and the state counts more samples than
            one of them has: it is in another epoch then. Or it counts the samples that tail="drop"
            left out at the end of the shorter one.
        ValueError: one of the counts is not a number.
    """
    saved_length = whole_number(state.get("num_samples", length), '"num_samples"', 1)
    consumed = state["consumed_train_samples"]
    dropped = whole_number(state.get("dropped", 0), '"dropped"', 0)
    if consumed == saved_length < length and dropped:
        raise PlanMismatch(
            f"this state counts an epoch of {saved_length:,} samples, whose last {dropped} filled "
            f"no batch and were dropped; here an epoch has {length:,}. To read them, set the "
            f"state's consumed_train_samples to {saved_length - dropped}; to go on after them, "
            f"its num_samples to {length}"
        )
    if saved_length != length and consumed > min(saved_length, length):
        raise PlanMismatch(
            f"this state counts {consumed:,} samples, in epochs of {saved_length:,}; here an epoch "
            f"has {length:,}, so it would continue elsewhere: make a dataset of {saved_length:,} "
            "samples"
        )
    return dropped


def check_plan(saved: Plan | None, current: Plan | None) -> None:
    """Let a state of the plan `saved` continue under `current`; if one is None, compare nothing.

    Raises:
        PlanMismatch: they do not agree; the message lists the parts that differ, with the values of
            both plans. Or the state is from a version of this package with another form of plans.
        ValueError: `saved` is not a plan.
    """
    if saved is None or current is None:
        return
    if not isinstance(saved, dict):
        raise ValueError(
            f"a state holds the plan of a dataset or null; got {str(saved)[:200]}"
        )
    if saved.get("version") != current.get("version"):
        raise PlanMismatch(
            f"this state holds a plan of version {saved.get('version')}, but this package writes "
            f"version {current.get('version')}, so position k may hold different tokens: "
            'to continue unchecked, set the state\'s "plan" to null (a '
            "TokenStream: seek to its count); or begin a new run"
        )
    lines = describe_differences(saved, current)
    if lines:
        listed = "".join(f"  {line}\n" for line in lines)
        way_out = "Continue with the saved plan, or begin a new run."
        if all(line.startswith(CHANGEABLE) for line in lines):
            way_out += (
                " To change this for the positions still to come, load no state: build the loader "
                'with the state\'s "consumed_train_samples".'
            )
        raise PlanMismatch(
            "this state was saved under another plan, so position k would hold different tokens "
            f"or masks:\n{listed}{way_out}"
        )


def describe_differences(saved: Plan, current: Plan) -> list[str]:
    """A line for each of the `differences`; if there are many, for the first ones."""
    differing = differences(saved, current)
    lines = [str(difference) for difference in differing[:MAX_LINES]]
    more = len(differing) - MAX_LINES
    if more > 0:
        lines.append(f"and {more:,} more")
    return lines


def differences(saved: Plan, current: Plan) -> list[Difference]:
    """The fields in which two plans differ, without mere consequences; empty if they agree."""
    differing = list(_differing("", saved, current))
    causes = [
        difference
        for difference in differing
        if not difference.field.startswith(CONSEQUENCES)
    ]
    return causes or differing


def _differing(
    field: str,
    saved: Any,
    current: Any,
) -> Iterator[Difference]:
    """Yield the differences of two values of a field, down to the smallest part."""
    both = (saved, current)
    if all(isinstance(value, dict) for value in both):
        if field == "probes":
            yield from _differing_probes(saved, current)
        else:
            yield from _differing_fields(field, saved, current)
    elif all(_is_list_of_dicts(value) for value in both):
        if len(saved) != len(current):
            yield Difference(f"number of {field}", len(saved), len(current))
        for number, items in enumerate(zip(saved, current, strict=False)):
            named = [str(item["name"]) for item in items if "name" in item]
            name = ""
            if named:
                name = f" ({', now '.join(dict.fromkeys(named))})"
            yield from _differing(f"{field}[{number}]{name}", *items)
    elif saved != current:
        yield Difference(field, saved, current)


def _differing_fields(
    field: str,
    saved: Json,
    current: Json,
) -> Iterator[Difference]:
    """Yield the differences of two sections, without fields that are not compared."""
    for name in saved | current:
        values = (saved.get(name), current.get(name))
        is_optional = name in OPTIONAL and None in values
        if name not in NOT_COMPARED and not is_optional:
            yield from _differing(f"{field}.{name}".lstrip("."), *values)


def _differing_probes(saved: Json, current: Json) -> Iterator[Difference]:
    """The first position where the pair differs, or else where only the tokens do."""
    shared = [position for position in saved if position in current]
    differ = [position for position in shared if saved[position] != current[position]]
    what = "a hash of the tokens"
    other_pairs = [
        position
        for position in differ
        if _pair(saved[position]) != _pair(current[position])
    ]
    if other_pairs:
        differ = other_pairs
        what = "file and sample"
    if differ:
        first = differ[0]
        field = f"probes ({len(differ)} of {len(shared)} differ), {what} at position {first}"
        yield Difference(field, saved[first], current[first])


def _is_list_of_dicts(value: Any) -> bool:
    """Whether a value is a list of sections, such as the files of a plan."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _pair(probe: Any) -> Any:
    """The file and sample of a probe; a damaged state may hold something else, which is kept."""
    return probe[:2] if isinstance(probe, list) else probe


def _abbreviated(value: Any) -> str:
    """A value as text of at most MAX_CHARACTERS."""
    text = repr(value)
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[: MAX_CHARACTERS - 4]} ..."
