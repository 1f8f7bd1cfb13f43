"""The options of a run, the combinations that are refused, and how runs are drawn.

A draw is a dict of one value for each axis. The first value of an axis is its default.
"""

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Draw = dict[str, Any]

AXES: dict[str, tuple[Any, ...]] = {
    # what is read
    "dataset": (
        "windows",
        "disjoint",
        "packed",
        "megatron",
        "megatron padded",
        "stream",
    ),
    "files": ("npy", "raw", "raw with eos", "bin", "ds", "mixed", "bucket"),
    "dtype": ("uint16", "int32"),
    "sequence_length": (4, 7),
    "order": (
        "nanotron",
        "stateless",
        "identity",
        "published",
        "published raw",
        "published short",
        # those of other loaders; "modded_nanogpt" has no order of fixed rows
        "grain",
        "levanter",
        "llm_c:micro_batch_size=2,dp_size=2",
        "maxtext:hosts=2",
        "nanotron_main",
        "olmo_core:chunk_size=2,batch_size=4",
        "py1e:canonical_nodes=2,block_size=6",
    ),
    "weights": (None, (3, 1, 2), (2, 0, 1), (1, 2)),
    "ledger": (None, (10, (5, 3, 2)), (0, (3, 1, 2))),
    "skip": (None, ((12, 14), (18, 20))),
    "length": ("epoch", 17, 80),
    "seed": (1234, 7),
    "pad_id": (0, 9),
    "shuffle_buffer": (0, 5),
    # how it is delivered
    "collator": ("clm", "labels", "positions", "megatron", "function"),
    "masks": (None, "boundaries", "eos"),
    "tail": ("drop", "pad", "loop"),
    "layout": ("strided", "contiguous"),
    "micro_batch_size": (2, 1, 3, 500),
    "dp_size": (1, 2, 3),
    "pp_size": (1, 2, 3),
    "cp_size": (1, 2),
    "workers": (0, 1, 2),
    "start_method": ("fork", "spawn"),
    "prefetch_factor": (None, 3),
    "persistent_workers": (False, True),
    "read_ahead": (0, 1, 2),
    # where it comes from
    "direct": (None, "0", "1") if sys.platform == "linux" else (None, "0"),
    "cache": (None, "roomy", "tight"),
    "foreign": (None, "file", "folder", "symlink"),
    # how it goes on
    "stop": (1, 0, 3),
    "resume": (
        "same",
        "moved",
        "renamed",
        "other spelling",
        "other content",
        "other seed",
        "other weights",
        "other order",
        "as published",
        "other ledger",
        "other skip",
        "other length",
        "other pad_id",
        "other sequence_length",
    ),
    "dp_size_after": (1, 2, 3),
    "micro_batch_size_after": (2, 1, 3),
    "workers_after": (0, 1),
}
DEFAULTS: Draw = {name: values[0] for name, values in AXES.items()}

# what each kind of dataset has no use for
WITHOUT = {
    "windows": "pad_id shuffle_buffer",
    "disjoint": "pad_id shuffle_buffer",
    "packed": "shuffle_buffer",
    "megatron": "files order weights ledger skip pad_id shuffle_buffer direct cache",
    "megatron padded": "files order weights ledger skip shuffle_buffer direct cache",
    "stream": "files dtype order weights ledger skip length pad_id tail layout pp_size cp_size start_method "
    "persistent_workers read_ahead direct cache foreign",
}
MEGATRON = ("megatron", "megatron padded")  # the second keeps its short last sample
# rows that end in padding
PADDED = ("packed", "megatron padded")


def padding_of(draw: Draw) -> int:
    """The id in which rows end; -1 is that of Megatron where none is given."""
    is_default = draw["dataset"] not in PADDED or (
        draw["dataset"] == "megatron padded" and draw["pad_id"] == 0
    )
    return -1 if is_default else draw["pad_id"]


PROCESSES = ("workers", "workers_after")


def applicable(draw: Draw) -> Draw:
    """The draw with the defaults of all options that do not concern its dataset or its other options."""
    draw = draw | {name: DEFAULTS[name] for name in WITHOUT[draw["dataset"]].split()}
    if draw["dataset"] in MEGATRON:
        draw["files"] = "bin"
        if (
            draw["sequence_length"] == 7
        ):  # its epoch of 7 samples does not fill 3 ranks times 3
            for name in ("micro_batch_size", "micro_batch_size_after"):
                draw[name] = 2 if draw[name] == 3 else draw[name]
    if draw["dataset"] == "stream":
        draw["files"] = "text"
        if draw["collator"] not in ("clm", "function"):
            draw["collator"] = "clm"
        if draw["masks"] == "boundaries" or draw["collator"] == "function":
            draw["masks"] = None
    if draw["files"] != "bucket":
        draw["cache"] = None
    if draw["cache"] is None and draw["dataset"] not in ("packed", *MEGATRON):
        draw["foreign"] = None  # there is no folder that the run writes to
    if draw["collator"] != "positions":
        draw["cp_size"] = 1
    if draw["workers"] == draw["workers_after"] == 0:
        draw["start_method"] = "fork"
    return draw


# ---- what is refused


class Refusal(NamedTuple):
    """A rule that some combinations break: its name, whether a draw does, and how the library says so."""

    rule: str
    broken_by: Callable[[Draw], bool]
    errors: tuple[type[Exception], ...]
    message: str


def needs_boundaries(draw: Draw) -> bool:
    """Whether somebody asks the files where documents begin."""
    if draw["dataset"] == "packed" or draw["collator"] == "positions":
        return True
    return draw["collator"] == "clm" and draw["masks"] == "boundaries"


def forks(draw: Draw) -> bool:
    return (
        draw["start_method"] == "fork"
        and max(draw["workers"], draw["workers_after"]) > 0
    )


def folder_runs_out(draw: Draw) -> bool:
    """Whether a run of Nanotron's main branch, with a folder for each file, needs more than a folder has."""
    from combined.expected import nanotron_main, reads_of, sample_lengths

    if draw["order"] != "nanotron_main" or len(draw["weights"] or "any") != 3:
        return False
    reads = reads_of(draw)
    lengths = sample_lengths(reads)
    return any(sample >= lengths[source] for source, sample in nanotron_main(reads))


TAKE_WEIGHTS = ("nanotron", "stateless", "maxtext")

REFUSALS = [
    Refusal(
        "an order that fixes what it reads takes no weights",
        lambda draw: (
            draw["weights"] is not None and not draw["order"].startswith(TAKE_WEIGHTS)
        ),
        (ValueError,),
        "leave the weights out",
    ),
    Refusal(
        "every file has a weight",
        lambda draw: draw["weights"] is not None and len(draw["weights"]) != 3,
        (ValueError,),
        "one weight per source: a list of 3",
    ),
    Refusal(
        "MaxText reads every source",
        lambda draw: (
            draw["weights"] is not None
            and min(draw["weights"]) == 0
            and draw["order"].startswith("maxtext")
        ),
        (ValueError,),
        "weights above 0",
    ),
    Refusal(
        "Nanotron's main branch reads a folder once",
        folder_runs_out,
        (ValueError,),
        "this stage would read",
    ),
    Refusal(
        "only the stateless order goes on from a ledger",
        lambda draw: draw["ledger"] is not None and draw["order"] != "stateless",
        (ValueError, TypeError),
        "start",
    ),
    Refusal(
        "a run that goes on from a ledger has no beginning to fill its last batch from",
        lambda draw: (
            draw["ledger"] is not None
            and draw["ledger"][0] > 0
            and draw["tail"] != "drop"
        ),
        (IndexError, ValueError),
        "belongs to the previous plan",
    ),
    Refusal(
        "a published order is as long as the run",
        lambda draw: draw["order"] == "published short",
        (ValueError,),
        "lists 9 samples, but .* are requested",
    ),
    Refusal(
        "files without boundaries have no documents",
        lambda draw: draw["files"] == "raw" and needs_boundaries(draw),
        (ValueError,),
        "records no document boundaries",
    ),
    Refusal(
        "a bucket is not read by forked workers",
        lambda draw: draw["files"] == "bucket" and forks(draw),
        (OSError,),
        "forked workers cannot read from a bucket",
    ),
    Refusal(
        "a collator that does not mask padding takes none",
        lambda draw: draw["collator"] == "labels" and draw["dataset"] in PADDED,
        (ValueError,),
        "DataCollatorWithLabels does not mask the padding",
    ),
    Refusal(
        "Megatron's collator takes no padding with the id that ends documents",
        lambda draw: (
            draw["collator"] == "megatron"
            and draw["dataset"] == "packed"
            and draw["pad_id"] == 0
        ),
        (ValueError,),
        "takes every token 0 for padding, but documents",
    ),
    Refusal(
        "masks are told to the collator that makes them",
        lambda draw: (
            draw["masks"] is not None
            and draw["collator"] in ("labels", "positions", "function")
        ),
        (ValueError,),
        "documents is an option of DataCollatorForCLM",
    ),
    Refusal(
        "Megatron's collator finds documents by their last id",
        lambda draw: draw["masks"] == "boundaries" and draw["collator"] == "megatron",
        (ValueError,),
        "give eos_token_id",
    ),
    Refusal(
        "who has no workers prefetches with none",
        lambda draw: (
            draw["prefetch_factor"] is not None
            and 0 in (draw["workers"], draw["workers_after"])
        ),
        (ValueError,),
        "prefetch_factor",
    ),
    Refusal(
        "a batch of all ranks holds no more than there is",
        lambda draw: (
            draw["micro_batch_size"] == 500
            and draw["tail"] == "drop"
            and draw["dataset"] != "stream"
        ),
        (ValueError,),
        "do not fill one batch of",
    ),
    Refusal(
        "who has no workers keeps none",
        lambda draw: (
            draw["persistent_workers"] and 0 in (draw["workers"], draw["workers_after"])
        ),
        (ValueError,),
        "persistent_workers",
    ),
]


def refusals(draw: Draw) -> list[Refusal]:
    """The rules that a draw breaks; none: it is a run."""
    return [refusal for refusal in REFUSALS if refusal.broken_by(draw)]


# ---- how runs are drawn


def drawn(
    number: int, seed: int, share_with_workers: float = 0.04, refused: float = 0.02
) -> Draw:
    """Draw `number` of a seed, whatever was drawn before. A draw that will be refused is kept with the chance
    `refused`, or else made again.
    """
    source = random.Random(f"{seed} {number}")
    for _ in range(100):
        draw = {name: source.choice(values) for name, values in AXES.items()}
        if source.random() > share_with_workers:
            draw |= dict.fromkeys(PROCESSES, 0)
        if draw["start_method"] == "spawn" and source.random() < 0.8:
            draw["start_method"] = "fork"
        for name in (
            "weights",
            "ledger",
            "skip",
            "prefetch_factor",
            "persistent_workers",
            "masks",
        ):
            if source.random() < 0.5:
                draw[name] = DEFAULTS[name]
        draw = applicable(draw)
        if not refusals(draw) or source.random() < refused:
            return draw
    return draw


def cost(draw: Draw) -> float:
    """Roughly, in units of a run without workers."""
    processes = (
        (draw["workers"] + draw["workers_after"])
        * draw["dp_size"]
        * min(draw["pp_size"], 2)
    )
    return 1 + processes * (60 if draw["start_method"] == "spawn" else 4)


def values_and_pairs(draw: Draw) -> Iterator[tuple[Any, ...]]:
    """Every value of a draw, and every pair of them."""
    yield from draw.items()
    yield from itertools.combinations(draw.items(), 2)


def covering(candidates: list[Draw], budget: float) -> tuple[list[Draw], float]:
    """Few of the candidates with every value that any of them has, and as many pairs of values as the budget allows.

    Returns them, and the share of all pairs that they have.
    """
    number_of: dict[tuple[Any, ...], int] = {}
    held = [
        [number_of.setdefault(part, len(number_of)) for part in values_and_pairs(draw)]
        for draw in candidates
    ]
    has = np.zeros((len(candidates), len(number_of)), dtype=np.float32)
    for row, numbers in enumerate(held):
        has[row, numbers] = 1
    is_value = np.array([isinstance(part[0], str) for part in number_of])
    costs = np.array([cost(draw) for draw in candidates])
    worth = np.where(is_value, 1000, 1).astype(np.float32)
    gains = has @ worth
    chosen: list[int] = []
    while worth[is_value].any() or costs[chosen].sum() < budget:
        chosen.append(int(np.argmax(gains / costs)))
        new = (has[chosen[-1]] > 0) & (worth > 0)
        gains -= has[:, new] @ worth[new]
        worth[new] = 0
    return [candidates[number] for number in chosen], float(
        (worth[~is_value] == 0).mean()
    )
