"""The batches of a run, by plain.py: the positions that each rank reads, and the fields that a collator makes."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from combined.axes import PADDED, Draw, padding_of
from combined.expected import EOS
from nanoset_ref import plain


def positions_read(draw: Draw, count: int, consumed: int) -> list[list[list[int]]]:
    """For each rank its micro-batches from a global count to the end of the epoch."""
    shape = draw["dp_size"], draw["micro_batch_size"]
    left = plain.positions_left(count, consumed, *shape, draw["tail"])
    return [
        plain.micro_batches_of_rank(left, rank, *shape, draw["layout"])
        for rank in range(draw["dp_size"])
    ]


def documents_of(starts: NDArray[np.bool_]) -> dict[str, Any]:
    """The fields about documents of a batch, from where they begin in its rows [B, S + 1]."""
    of_inputs = [plain.document_fields(row[:-1]) for row in starts]
    of_rows = [plain.document_fields(row) for row in starts]
    length = starts.shape[1] - 1
    edges = [
        number * length + found["cu_seqlens"][:-1]
        for number, found in enumerate(of_inputs)
    ]
    cu_seqlens = np.append(np.concatenate(edges), len(starts) * length).astype(np.int32)
    return {
        "position_ids": np.stack([found["position_ids"] for found in of_inputs]).astype(
            np.int64
        ),
        "attention_mask": np.stack([found["attention_mask"] for found in of_inputs])[
            :, None
        ],
        "label_mask": np.stack([found["label_mask"] for found in of_rows]),
        "cu_seqlens": cu_seqlens,
        "max_seqlen": max(
            later - earlier
            for earlier, later in itertools.pairwise(cu_seqlens.tolist())
        ),
    }


def expected_batch(
    draw: Draw, rows: NDArray[np.int32], starts: NDArray[np.bool_], pp_rank: int
) -> dict[str, Any]:
    """What a pipeline rank gets of a batch: arrays, and ("pointer", r) for what rank r has."""
    last = draw["pp_size"] - 1
    if draw["collator"] in ("clm", "positions"):
        rows = np.maximum(rows, 0)  # no model can look up -1
    fields: dict[str, Any] = plain.collate(rows, pp_rank, 0, last)
    if draw["collator"] != "clm" and pp_rank in (0, last):
        return OTHER_COLLATORS[draw["collator"]](draw, rows, starts, fields, pp_rank)
    padded = draw["dataset"] in PADDED
    if draw["masks"] == "eos" and not padded:
        starts = np.stack([plain.starts_after_eos(row, EOS) for row in rows])
    known = documents_of(starts)
    asked = set(known) if draw["masks"] else {"label_mask"} if padded else set()
    if draw["collator"] != "clm":
        asked = set()
    for name in asked:
        owner = {"position_ids": 0, "label_mask": last}.get(
            name, pp_rank if pp_rank in (0, last) else 0
        )
        fields[name] = known[name] if owner == pp_rank else ("pointer", owner)
    return fields


def with_labels(
    draw: Draw, rows: Any, starts: Any, fields: dict[str, Any], pp_rank: int
) -> dict[str, Any]:
    return {"input_ids": rows.astype(np.int64), "labels": rows.astype(np.int64)}


def with_positions(
    draw: Draw, rows: Any, starts: Any, fields: dict[str, Any], pp_rank: int
) -> dict[str, Any]:
    """The columns of context-parallel rank 1 of `cp_size`, or of the only one."""
    known, last = documents_of(starts), draw["pp_size"] - 1
    width = draw["sequence_length"] // draw["cp_size"]
    first = (draw["cp_size"] - 1) * width
    fields = fields | {
        "position_ids": known["position_ids"] if pp_rank == 0 else ("pointer", 0)
    }
    if pp_rank == last:
        fields["label_mask"] = known["label_mask"]
    del fields["input_mask"]
    for name in fields.keys() - {"position_ids"}:
        if not isinstance(fields[name], tuple):
            columns = fields[name][:, first : first + width]
            fields[name] = (
                columns if columns.dtype == bool else columns.astype(np.int64)
            )
    return fields


def with_megatron(
    draw: Draw, rows: Any, starts: Any, fields: dict[str, Any], pp_rank: int
) -> dict[str, Any]:
    known = documents_of(np.stack([plain.starts_after_eos(row, EOS) for row in rows]))
    shape = len(rows), draw["sequence_length"]
    # Megatron finds padding by its id, also within a text
    padded = rows == padding_of(draw)
    tokens = np.where(padded, 0, rows).astype(np.int64)
    counted = ~padded[:, 1:]
    found = {
        "tokens": tokens[:, :-1],
        "labels": tokens[:, 1:],
        "loss_mask": counted.astype(np.float32),
        "position_ids": np.broadcast_to(np.arange(shape[1]), shape),
    }
    if draw["masks"] == "eos":
        found |= {
            name: known[name]
            for name in ("position_ids", "attention_mask", "cu_seqlens", "max_seqlen")
        }
        found["loss_mask"] = (known["label_mask"] & counted).astype(np.float32)
    return found


def with_function(
    draw: Draw, rows: Any, starts: Any, fields: dict[str, Any], pp_rank: int
) -> dict[str, Any]:
    return {"rows": rows}


OTHER_COLLATORS = {
    "labels": with_labels,
    "positions": with_positions,
    "megatron": with_megatron,
    "function": with_function,
}
