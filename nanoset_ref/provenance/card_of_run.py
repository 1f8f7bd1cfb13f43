"""Cards of runs of nanoset_ref, from the segments of a config."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.io.types import Json
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.orders import recipe_of
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_facts import NOT_COMPUTED, num_bytes
from nanoset_ref.provenance.card_validation import NUM_PROBES
from nanoset_ref.provenance.run_segments import RunSegment

# fields that differ in a longer order
WITHOUT_LENGTH: Json = {"samples": 0, "probes": {}}


def card_of_segments(
    segments: Sequence[RunSegment],
    name: str,
    date: str,
    tokenizer: str | None = None,
) -> Card:
    """Make the card of a run from its files and orders.

    Args:
        segments: see `segments_of_config`.
        name: the name of the run.
        date: the year and month of the run.
        tokenizer: the name of its tokenizer, if known.

    Raises:
        ValueError: a card cannot describe the run: see `RunSegment.require_cut_rows`; or its stages
            cut files differently, or an order cannot be built from its name, such as one
            with skipped positions.
    """
    nanosets = [segment.require_cut_rows() for segment in segments]
    files: dict[Path, Any] = {}
    for nanoset in nanosets:
        files |= {file.path: file for file in nanoset.files}
    orders: list[Json] = []
    numbers = []
    for segment, nanoset in zip(segments, nanosets, strict=True):
        order = _order(segment.name, nanoset, list(files))
        number = _number_of_order(order, segment, orders)
        # a new order, or a longer form of an earlier one
        orders[number : number + 1] = [order]
        numbers.append(number)
    facts = {
        "card": 1,
        "name": name,
        "date": date,
        "links": [],
        "loader": {"name": "nanoset_ref", "version": version("nanoset_ref")},
        "tokenizer": {"name": tokenizer, "hash": None},
        **_row_facts(nanosets),
        "sources": list(map(_source, files.values(), _names_of(list(files)))),
        "orders": orders,
        "stages": list(map(_stage, segments, numbers)),
        "known": ["files, orders and steps, from the run's config"],
        "inferred": [],
        "unknown": [],
    }
    return Card(facts)


def _names_of(paths: Sequence[Path]) -> list[str]:
    """A different name for each file: its own, or its path."""
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = list(map(str, paths))
    if len(set(names)) < len(names):  # URLs that differ in a hidden query
        names = [f"{name} ({number})" for number, name in enumerate(names)]
    return names


def _number_of_order(order: Json, segment: RunSegment, earlier: Sequence[Json]) -> int:
    """The number of a segment's order: a new one, or that of the order it continues."""
    if segment.schedule.consumed_train_samples > 0:
        for number in reversed(range(len(earlier))):
            if earlier[number] | WITHOUT_LENGTH == order | WITHOUT_LENGTH:
                return number
    return len(earlier)


def _row_facts(nanosets: Sequence[Nanoset]) -> Json:
    """The dtype and the window of a run; ValueError if its stages have several."""
    windows = set()
    dtypes = set()
    for nanoset in nanosets:
        dtypes |= {file.dtype.name for file in nanoset.files}
        windows |= {(nanoset.row_length, stride) for stride in nanoset.strides.tolist()}
    if len(windows) > 1 or len(dtypes) > 1:
        raise ValueError(
            f"a card has one window and one dtype of ids; this run has {sorted(windows)} and "
            f"{sorted(dtypes)}: write a card for each stage"
        )
    row_length, stride = windows.pop()
    window = {"row_length": row_length, "stride": stride}
    return {"dtype": dtypes.pop(), "window": window}


def _source(file: Any, name: str) -> Json:
    """A token file as a source of a card."""
    return {
        "name": name,
        "bytes": num_bytes(file),
        "first_byte": file.first_byte,
        "checksum": file.checksum,
    }


def _order(segment: str, nanoset: Nanoset, paths: list[Path]) -> Json:
    """The order of a segment; ValueError if it cannot be built from a name."""
    recipe = recipe_of(nanoset.order)
    if recipe is None:
        raise ValueError(
            f"{segment}: a card names its order, and a {type(nanoset.order).__name__} cannot be "
            "built from a name"
        )
    return {
        "name": recipe["name"],
        "seed": recipe["random_seed"],
        "samples": len(nanoset),
        "weights": recipe["dataset_weights"],
        "options": recipe["options"],
        "sources": [paths.index(file.path) for file in nanoset.files],
        "probes": probes_of(nanoset.order, len(nanoset)),
    }


def _stage(segment: RunSegment, order: int) -> Json:
    """A segment as a stage of a card that reads order number `order`."""
    schedule = segment.schedule
    return {
        "name": segment.name,
        "first_step": schedule.first_step,
        "steps": segment.num_steps,
        "order": order,
        "first_position": schedule.consumed_train_samples,
        "batch_size": schedule.global_batch_size,
        "layout": schedule.layout,
        "dp_size": schedule.dp_size,
        "micro_batch_size": schedule.micro_batch_size,
    }


def add_probes(card: Card) -> None:
    """Add the samples and the probes of each order whose files have known sizes to a card."""
    for number, order in enumerate(card.facts["orders"]):
        sources = card.source_numbers(number)
        sizes = [card.sources[source]["bytes"] for source in sources]
        if order["name"] not in NOT_COMPUTED and sizes and None not in sizes:
            order["samples"] = card.num_positions(number)
            order["probes"] = probes_of(card.unchecked_order(number), order["samples"])


def probes_of(order: Any, samples: int) -> dict[str, list[int]]:
    """{position: [file, sample]} at 64 evenly spaced positions from the first to the last.

    Args:
        order: an order; only its `lookup` and `first_position` are used.
        samples: the position after its last one.
    """
    first = order.first_position
    count = min(NUM_PROBES, samples - first)
    last = max(count - 1, 1)
    positions = [first + (samples - 1 - first) * k // last for k in range(count)]
    pairs = np.stack(order.lookup(np.array(positions, dtype=np.int64)), axis=1)
    return dict(zip(map(str, positions), pairs.tolist(), strict=True))
