"""The rows that a run must skip so that it never reads some documents, byte ranges or passages."""

import json
import math
from collections.abc import Iterable, Sequence

import numpy as np

from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.orders.base import NO_POSITIONS
from nanoset_ref.orders.skipping import merge_ranges
from nanoset_ref.provenance.bulk_queries import QueryParser, query_batches
from nanoset_ref.provenance.stage_reader import StageReader


def rows_to_skip(
    readers: Sequence[StageReader],
    parser: QueryParser,
    lines: Iterable[str],
) -> list[Json]:
    """Find the rows that a run must skip so that it never reads the tokens of queries.

    Returns:
        For each stage {"stage": its name,
        "rows": the number of its rows to skip,
        "steps": the number of steps that read them,
        "first_step": the first step whose rows change, or None,
        "before": the rows that earlier stages skip in the same order, before this stage begins,
        "ledger_changes": whether it continues from a ledger of stages that skip rows: then all its
        rows change, and "ranges" holds only until the ledger is made again,
        "ranges": the positions, as `SkippingOrder` takes them}
    """
    no_span = np.empty((0, 4), dtype=np.int64)
    spans = np.concatenate([no_span, *map(parser.spans, query_batches(lines))])
    skipped: dict[str, Int64Array] = {}  # positions by order, in the stages so far
    # the first skipped position, by name and seed of an order
    first_skipped: dict[tuple[str, int], float] = {}
    stages = []
    for reader in readers:
        _, read_at, _, _ = reader.find(spans).T
        positions = np.unique(read_at)
        slots = reader.schedule.slot(positions)
        steps = np.unique(slots.step).tolist()
        # the stages of a config have equal orders, but one each
        key = json.dumps(reader.order.identity, sort_keys=True)
        earlier = skipped.get(key, NO_POSITIONS)
        skipped[key] = np.union1d(earlier, positions)
        before = int(np.sum(earlier < reader.schedule.consumed_train_samples))
        run = (reader.order.name, reader.order.random_seed)
        ledger_changes = first_skipped.get(run, math.inf) < reader.order.first_position
        if len(positions):
            first_skipped[run] = min(first_skipped.get(run, math.inf), positions[0])
        first_step = steps[0] if steps else None
        if before or ledger_changes:
            first_step = reader.schedule.first_step
        stages.append(
            {
                "stage": reader.name,
                "rows": len(positions),
                "steps": len(steps),
                "first_step": first_step,
                "before": before,
                "ledger_changes": bool(ledger_changes),
                "ranges": merge_ranges([[k, k + 1] for k in positions.tolist()]),
            }
        )
    return stages
