"""The rules of a card: `card_schema.json`, and what a schema cannot say.

The schema is a JSON Schema (2020-12) of these words only: type, const, enum, pattern, minimum, items, minItems,
maxItems, required, properties, additionalProperties, maxProperties. Each rule is worded in its description.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nanoset_ref.io.options import unknown_key
from nanoset_ref.io.paths import read_json

Schema = dict[str, Any]

SCHEMA = Path(__file__).with_name("card_schema.json")
LARGEST = 10_000  # bytes of a card
PROBES = 64
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


@functools.cache
def card_schema() -> Schema:
    """The committed schema, parsed."""
    schema: Schema = read_json(SCHEMA)
    return schema


def problems_of_card(facts: Any) -> list[str]:
    """Every field of a card that breaks a rule: its place, the rule, and the value that was found."""
    problems = [*_wrong(facts, card_schema(), "")]
    if problems:
        return problems  # what follows needs the right types
    return [*_inconsistent(facts)]


def _wrong(value: Any, schema: Schema, place: str) -> Iterator[str]:
    allowed = schema.get("type", [])
    names = [allowed] if isinstance(allowed, str) else allowed
    if not _fits(value, schema, names):
        rule = schema.get("description", "must be an object")
        yield f"{place or 'the card'}: must be {rule}; got {value!r:.80}"
    elif isinstance(value, dict):
        yield from _wrong_fields(value, schema, place)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _wrong(item, schema["items"], f"{place}[{number}]")


def _fits(value: Any, schema: Schema, names: list[str]) -> bool:
    """Whether a value keeps all rules but those of its fields and items."""
    types = tuple(kind for name in names for kind in TYPES[name])
    if types and (not isinstance(value, types) or isinstance(value, bool)):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return False
    if isinstance(value, (int, float)) and value < schema.get("minimum", value):
        return False
    if isinstance(value, list):
        return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    if isinstance(value, dict):
        return len(value) <= schema.get("maxProperties", len(value))
    return True


def _wrong_fields(value: dict[str, Any], schema: Schema, place: str) -> Iterator[str]:
    fields = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield f"{place}.{name}: is missing; it is {fields[name]['description']}".lstrip(".")
    for name, item in value.items():
        inner = fields.get(name, schema.get("additionalProperties"))
        where = f"{place}.{name}".lstrip(".")
        if inner is False:
            yield f"{where}: {unknown_key(name, fields)}"
        elif inner is not None:
            yield from _wrong(item, inner, where)


def _inconsistent(facts: dict[str, Any]) -> Iterator[str]:
    """What no single field shows."""
    sources = len(facts["sources"])
    if bool(sources) == ("listed" in facts):
        yield f"sources: name the files here or where they are listed, not both; got {sources}"
    for number, order in enumerate(facts["orders"]):
        yield from _wrong_order(order, sources, f"orders[{number}]")
    due = facts["stages"][0]["first_step"]
    for number, stage in enumerate(facts["stages"]):
        place = f"stages[{number}]"
        if stage["first_step"] != due:
            yield f"{place}.first_step: must be {due}, the step after the stage before"
        due = stage["first_step"] + stage["steps"]
        yield from _wrong_stage(stage, facts["orders"], place)


def _wrong_order(order: dict[str, Any], sources: int, place: str) -> Iterator[str]:
    for source in order.get("sources") or []:
        if source >= sources:
            yield f"{place}.sources: there is no source {source}: there are {sources}, counted from 0"
    samples = order["samples"]
    wrong = [key for key in order["probes"] if not key.isdecimal() or int(key) >= (samples or 0)]
    if wrong:
        yield f"{place}.probes: positions are whole numbers below {samples}; got {wrong[0]!r}"
    if order["probes"] and len(order["probes"]) != min(PROBES, samples or 0):
        due = min(PROBES, samples or 0)
        yield f"{place}.probes: must be {due} pairs, or none; got {len(order['probes'])}"


def _wrong_stage(stage: dict[str, Any], orders: list[Any], place: str) -> Iterator[str]:
    if stage["order"] >= len(orders):
        yield f"{place}.order: there is no order {stage['order']}: there are {len(orders)}"
        return
    samples = orders[stage["order"]]["samples"]
    stop = stage["first_position"] + stage["steps"] * stage["batch_size"]
    if samples is not None and stop > samples:
        yield f"{place}.steps: they read positions up to {stop:,}; the order has {samples:,}"
    layout = [stage[name] for name in ("layout", "dp_size", "micro_batch_size")]
    if None in layout:
        if layout != [None] * 3:
            yield f"{place}.layout: give layout, dp_size and micro_batch_size, or null for all three"
    elif stage["batch_size"] % (stage["dp_size"] * stage["micro_batch_size"]):
        yield f"{place}.batch_size: must be a multiple of dp_size * micro_batch_size"
