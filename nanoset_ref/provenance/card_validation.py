"""The rules of a card: `card_schema.json`, and rules that a schema cannot express.

The schema is a JSON Schema (2020-12) of these words only: type, const, enum, pattern, minimum,
items, minItems, maxItems, required, properties, additionalProperties, maxProperties. A field's
description states its rule.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nanoset_ref.io.checks import unknown_key_problem
from nanoset_ref.io.paths import as_list, read_json
from nanoset_ref.io.types import Json

SCHEMA = Path(__file__).with_name("card_schema.json")
MAX_CARD_BYTES = 10_000
NUM_PROBES = 64
MAX_NUMBER = 2**62 - 1  # so that sums of a few numbers fit in int64
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


@functools.cache
def card_schema() -> Json:
    """The committed schema, parsed."""
    return read_json(SCHEMA)


def problems_of_card(facts: Any) -> list[str]:
    """Every field of a card that breaks a rule: its path, the rule, and the value."""
    problems = list(_problems_of_value(facts, card_schema(), ""))
    if problems:
        return problems  # the other rules need the right types
    return list(_problems_between_fields(facts))


def _problems_of_value(
    value: Any,
    schema: Json,
    path: str,
) -> Iterator[str]:
    """The problems of a value and everything in it, by the schema."""
    if not _is_valid(value, schema):
        rule = schema.get("description", "an object")
        yield f"{path or 'the card'}: must be {rule}; got {value!r:.80}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _problems_of_value(item, schema["items"], f"{path}[{number}]")
    elif isinstance(value, dict):
        # fields that are missing, unknown or wrong
        fields = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                field_path = f"{path}.{name}".lstrip(".")
                yield f"{field_path}: is missing; it is {fields[name]['description']}"
        for name, item in value.items():
            field_schema = fields.get(name, schema.get("additionalProperties"))
            field_path = f"{path}.{name}".lstrip(".")
            if field_schema is False:
                yield f"{field_path}: {unknown_key_problem(name, fields)}"
            elif field_schema is not None:
                yield from _problems_of_value(item, field_schema, field_path)


def _is_valid(value: Any, schema: Json) -> bool:
    """Whether a value itself keeps the rules; its fields and items are not checked."""
    names = as_list(schema.get("type", []))
    types = tuple(kind for name in names for kind in TYPES[name])
    if types and (not isinstance(value, types) or isinstance(value, bool)):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, (int, float)):
        return schema.get("minimum", value) <= value <= MAX_NUMBER
    if isinstance(value, list):
        maximum = schema.get("maxItems", len(value))
        return schema.get("minItems", 0) <= len(value) <= maximum
    if isinstance(value, dict):
        return len(value) <= schema.get("maxProperties", len(value))
    return True


def _problems_between_fields(facts: Json) -> Iterator[str]:
    """The problems between fields."""
    sources = len(facts["sources"])
    if bool(sources) == ("listed" in facts):
        yield f"sources: name the files here or where they are listed, not both; got {sources}"
    pattern = facts.get("listed", {}).get("pattern")
    if pattern is not None and not _has_one_group(pattern):
        yield f"listed.pattern: must be a regular expression with one group; got {pattern!r}"
    for number, order in enumerate(facts["orders"]):
        yield from _problems_of_order(order, sources, f"orders[{number}]")
    next_step = facts["stages"][0]["first_step"]
    for number, stage in enumerate(facts["stages"]):
        path = f"stages[{number}]"
        if stage["first_step"] != next_step:
            yield f"{path}.first_step: must be {next_step}, the step after the stage before"
        next_step = stage["first_step"] + stage["steps"]
        yield from _problems_of_stage(stage, facts["orders"], path)


def _has_one_group(pattern: str) -> bool:
    """Whether a text is a regular expression with one group."""
    try:
        return re.compile(pattern).groups == 1
    except re.error:
        return False


def _problems_of_order(
    order: Json,
    sources: int,
    path: str,
) -> Iterator[str]:
    """The problems between the fields of an order, and with the sources."""
    for source in order.get("sources") or []:
        if source >= sources:
            counted = f"there are {sources}, counted from 0"
            yield f"{path}.sources: there is no source {source}: {counted}"
    weights = order.get("weights")
    weighted = order.get("options", {}).get("folders") or order.get("sources")
    count = len(weighted) if isinstance(weighted, list) else sources
    # weights of an unknown order may be of folders; listed sources are not counted here
    is_counted = sources and order["name"] != "unknown"
    if weights is not None and is_counted and len(weights) != count:
        yield f"{path}.weights: must be {count}, one for each source or folder; got {len(weights)}"
    samples = order["samples"] or 0
    probes = order["probes"]
    wrong = [key for key in probes if not key.isdecimal() or int(key) >= samples]
    if wrong:
        yield f"{path}.probes: positions are whole numbers below {samples}; got {wrong[0]!r}"
    num_probes = min(NUM_PROBES, samples)
    # an order that continues from a ledger may have fewer positions than samples
    continues = "start" in order.get("options", {})
    if probes and not continues and len(probes) != num_probes:
        yield f"{path}.probes: must be {num_probes} pairs, or none; got {len(probes)}"


def _problems_of_stage(
    stage: Json,
    orders: list[Any],
    path: str,
) -> Iterator[str]:
    """The problems between the fields of a stage, and with the orders."""
    if stage["order"] >= len(orders):
        yield f"{path}.order: there is no order {stage['order']}: there are {len(orders)}"
        return
    samples = orders[stage["order"]]["samples"]
    stop = stage["first_position"] + stage["steps"] * stage["batch_size"]
    if samples is not None and stop > samples:
        yield f"{path}.steps: they read positions up to {stop:,}; the order has {samples:,}"
    ranks = [stage[name] for name in ("layout", "dp_size", "micro_batch_size")]
    if None in ranks:
        if ranks != [None] * 3:
            yield f"{path}.layout: give layout, dp_size and micro_batch_size, or null for all three"
    elif stage["batch_size"] % (stage["dp_size"] * stage["micro_batch_size"]):
        yield f"{path}.batch_size: must be a multiple of dp_size * micro_batch_size"
