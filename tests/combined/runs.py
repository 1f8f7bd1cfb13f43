"""One run: its dataset is asked everything, every rank reads, what is delivered is written into, and it is resumed."""

import contextlib
import functools
import itertools
import json
import random
import re
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from combined import identity, streams
from combined.axes import DEFAULTS, MEGATRON, Draw, applicable, padding_of, refusals
from combined.batches import expected_batch, positions_read
from combined.corpora import Corpora, surroundings
from combined.expected import (
    DOCUMENTS,
    EOS,
    Expected,
    expected,
    num_samples,
    offsets,
    reads_of,
    same_reads,
    sample_lengths,
)
from nanoset_ref import (
    DataCollatorWithLabels,
    DocumentOptions,
    Nanoset,
    NanosetDataLoader,
    PackedNanoset,
    PlanMismatch,
    SkippingOrder,
    TensorPointer,
    build_nanoset_dataloader,
)
from nanoset_ref.load import DataCollatorForCLMWithPositionIds
from nanoset_ref.load.rows import Rows
from nanoset_ref.megatron import (
    MegatronCollator,
    MegatronNanoset,
    MMapIndexedDataset,
    NanosetConfig,
)
from nanoset_ref.orders import Order, build_order

EVERY_FIELD = (
    "reset_position_ids",
    "reset_attention_mask",
    "eod_mask_loss",
    "create_cu_seqlens",
)


def hold(draw: Draw, corpora: Corpora) -> str:
    """Hold one draw to the laws; returns "held", or the rule by which it was refused.

    Raises:
        AssertionError: it breaks a law, was refused without a reason, or was not refused.
    """
    rules = refusals(draw)
    run = streams.hold_stream if draw["dataset"] == "stream" else hold_run
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "kept"
        try:
            with surroundings(draw, folder):
                run(draw, corpora, folder)
        except AssertionError:
            raise
        except Exception as error:
            for rule in rules:
                if isinstance(error, rule.errors) and re.search(
                    rule.message, str(error)
                ):
                    return rule.rule
            told = "".join(traceback.format_exception(error)[-6:])
            raise AssertionError(f"{type(error).__name__}: {error}\n{told}") from error
    assert not rules, f"this is not refused: {rules[0].rule}"
    return "held"


def hold_run(draw: Draw, corpora: Corpora, folder: Path) -> None:
    build = functools.partial(build_dataset, corpora=corpora, folder=folder)
    rows, known = build(draw), expected(reads_of(draw))
    loaders = loaders_of(draw, rows, known.first)
    check_dataset(draw, rows, known)
    # 1. some batches of every rank
    state, consumed, held = read_some(draw, loaders, known, known.first, draw["stop"])
    # 2. another run, or the same in another layout, goes on
    after = identity.resumed(draw)
    resumed_rows, resumed_known = (
        build(after, resume=draw["resume"]),
        expected(reads_of(after)),
    )
    again = loaders_of(after, resumed_rows, resumed_known.first)
    agree = same_reads(reads_of(draw), reads_of(after))
    # beyond the first epoch the place of a count depends on the length of an epoch
    lengths = {len(known.rows), len(resumed_known.rows)}
    agree &= len(lengths) == 1 or consumed <= min(lengths)
    if consumed == len(known.rows) < max(lengths) and draw["tail"] == "drop":
        samples = draw["micro_batch_size"] * draw["dp_size"]
        agree &= (consumed - known.first) % samples == 0
    for loader in again.values():
        load(loader, state, agree)
    if not agree:
        return
    # 3. the rest of the epoch, and a batch of the next one
    rest = len(positions_read(after, len(resumed_known.rows), consumed)[0])
    if consumed % len(resumed_known.rows) >= resumed_known.first:
        _, consumed, more = read_some(
            after, again, resumed_known, consumed, rest, whole=True
        )
        held += more
    if resumed_known.first == 0 and not after["persistent_workers"]:
        read_some(after, again, resumed_known, consumed, 1)
    for batch, kept in held:
        assert_fields(batch, kept, "a batch that somebody holds has changed")


def load(loader: Any, state: dict[str, Any], agree: bool) -> None:
    """Load a state, as it comes out of a file; a run that reads something else must refuse it."""
    refused = None
    try:
        loader.load_state_dict(json.loads(json.dumps(state)))
    except PlanMismatch as error:
        refused = str(error)
    assert agree or refused, "a state of a run that reads something else is accepted"
    assert not (agree and refused), f"a state of the same reads is refused: {refused}"


# ---- building


def build_order_of(
    draw: Draw, corpora: Corpora, where: str, lengths: Sequence[int], count: int
) -> str | Order:
    """The order's name where that is enough."""
    name = draw["order"]
    if name.startswith("published"):
        name = str(corpora.published(draw, reads_of(draw), where))
    skip, ledger = draw["skip"] or (), draw["ledger"]
    if not skip and ledger is None:
        return name
    count += sum(stop - first for first, stop in skip)
    options = (
        {}
        if ledger is None
        else {"start": {"position": ledger[0], "reads": list(ledger[1])}}
    )
    order = build_order(name, lengths, draw["weights"], count, draw["seed"], **options)
    return SkippingOrder(order, skip) if skip else order


def build_dataset(
    draw: Draw, *, corpora: Corpora, folder: Path, resume: str = "same"
) -> Rows:
    where, other_spelling = identity.places(draw | {"resume": resume})
    sources = corpora.sources(draw, where)
    if other_spelling:
        sources = [respelled(source) for source in sources]
    if draw["dataset"] in MEGATRON:
        corpus = MMapIndexedDataset(Path(sources[0]).with_suffix(""))
        size = None if draw["length"] == "epoch" else draw["length"]
        config = NanosetConfig(
            random_seed=draw["seed"],
            sequence_length=draw["sequence_length"],
            data_path=str(corpus.path_prefix),
            split="1,0,0",
            path_to_cache=folder,
            drop_last_partial_validation_sequence=draw["dataset"] == "megatron",
            pad_id=padding_of(draw),
        )
        split = "train" if draw["dataset"] == "megatron" else "valid"
        return MegatronNanoset(corpus, 0, len(corpus), size, split, config)
    reads = reads_of(draw)
    count = num_samples(reads)
    order = build_order_of(draw, corpora, where, sample_lengths(reads), count)
    arguments = sources, draw["weights"], draw["sequence_length"], count, draw["seed"]
    if draw["dataset"] == "packed":
        return PackedNanoset(
            *arguments, pad_id=draw["pad_id"], order=order, path_to_cache=folder
        )
    token_dtype = draw["dtype"] if draw["files"] == "raw" else None
    return Nanoset(
        *arguments,
        order=order,
        disjoint=draw["dataset"] == "disjoint",
        token_dtype=token_dtype,
    )


def respelled(source: Any) -> Any:
    """Another spelling of a path."""
    if not isinstance(source, Path):
        return source
    return f"{source.parent}/../{source.parent.name}//{source.name}"


def collate_of(draw: Draw, pp_rank: int) -> Any:
    """What `collate_fn` gets."""
    length, last = draw["sequence_length"], draw["pp_size"] - 1
    if draw["collator"] == "labels":
        return DataCollatorWithLabels(length)
    if draw["collator"] == "positions":
        places = {
            "input_pp_rank": 0,
            "output_pp_rank": last,
            "current_pp_rank": pp_rank,
        }
        cp_size = draw["cp_size"]
        return DataCollatorForCLMWithPositionIds(
            length, **places, cp_size=cp_size, cp_rank=cp_size - 1
        )
    if draw["collator"] == "megatron":
        flags: dict[str, Any] = {}
        if draw["masks"] is not None:
            flags = dict.fromkeys([*EVERY_FIELD, "create_attention_mask"], True)
            flags["eos_token_id"] = EOS if draw["masks"] == "eos" else None
        flags["pad_id"] = padding_of(draw)
        return MegatronCollator(
            NanosetConfig(
                random_seed=1, sequence_length=length, data_path="a", split="1", **flags
            )
        )
    return stacked if draw["collator"] == "function" else None


def stacked(samples: Any) -> dict[str, NDArray[Any]]:
    """A collate function of a user's own."""
    return {"rows": np.stack([sample["input_ids"] for sample in samples])}


def loaders_of(
    draw: Draw, rows: Rows, consumed: int
) -> dict[tuple[int, int], NanosetDataLoader]:
    """The loader of every (data-parallel rank, pipeline rank)."""
    options = {
        name: draw[name]
        for name in ("prefetch_factor", "persistent_workers")
        if draw[name]
    }
    if draw["workers"]:
        options["multiprocessing_context"] = draw["start_method"]
    if draw["masks"] and draw["collator"] != "megatron":
        eos_token_id = EOS if draw["masks"] == "eos" else None
        options["documents"] = DocumentOptions(
            eos_token_id=eos_token_id, **dict.fromkeys(EVERY_FIELD, True)
        )
    options |= {
        name: draw[name]
        for name in ("micro_batch_size", "layout", "tail", "read_ahead")
    }
    ranks = itertools.product(range(draw["dp_size"]), range(draw["pp_size"]))
    return {
        (dp_rank, pp_rank): build_nanoset_dataloader(
            rows,
            dp_rank=dp_rank,
            dp_size=draw["dp_size"],
            current_pp_rank=pp_rank,
            output_pp_rank=draw["pp_size"] - 1,
            consumed_train_samples=consumed,
            num_loading_workers=draw["workers"],
            collate_fn=collate_of(draw, pp_rank),
            **options,
        )
        for dp_rank, pp_rank in ranks
    }


# ---- the dataset


def check_dataset(draw: Draw, rows: Rows, known: Expected) -> None:
    """Rows at any positions, where documents begin in them, the way back, counts."""
    count = len(known.rows)
    assert len(rows) == count
    source = random.Random(repr(draw))
    positions = np.array([source.randrange(known.first, count) for _ in range(9)])
    signs = np.array(
        [0 if known.first else source.choice([0, count]) for _ in range(9)]
    )
    assert np.array_equal(rows.read(positions - signs), known.rows[positions])
    with (
        contextlib.suppress(ValueError)
        if draw["files"] == "raw"
        else contextlib.nullcontext()
    ):
        assert np.array_equal(rows.starts(positions), known.starts[positions])
        for number in (0, source.randrange(len(DOCUMENTS[0]))):
            check_inverse(draw, rows, known, source.randrange(len(rows.files)), number)
    if isinstance(rows, Nanoset):
        check_order(rows, known, source)


def check_inverse(
    draw: Draw, rows: Rows, known: Expected, source: int, number: int
) -> None:
    """Which positions read a document, numbered among those that have tokens if the files find them by their EOS."""
    lengths = DOCUMENTS[source]
    documents = [
        document
        for document, length in enumerate(lengths)
        if length or draw["files"] != "raw with eos"
    ]
    number %= len(documents)
    begin, end = offsets(source)[documents[number] :][:2].tolist()
    read = [
        position
        for position, spans in enumerate(known.spans)
        if position >= known.first
        if any(
            file == source and first < end and begin < last
            for file, first, last in spans
        )
    ]
    wanted = read if begin < end else []
    assert rows.positions_of(source, number).tolist() == wanted
    until = len(known.rows) // 2
    if until > known.first:
        assert rows.positions_of(source, number, until=until).tolist() == [
            k for k in wanted if k < until
        ]


def check_order(rows: Nanoset, known: Expected, source: random.Random) -> None:
    pairs = known.pairs
    positions = range(known.first, len(pairs))
    assert [rows.order[k] for k in positions] == [pairs[k] for k in positions]
    for position in source.sample(positions, 3):
        pair = pairs[position]
        assert rows.order.positions(*pair).tolist() == [
            k for k in positions if pairs[k] == pair
        ]
        counts = rows.order.counts(position) - rows.order.counts(known.first)
        wanted = [
            sum(file == other for other, _ in pairs[known.first : position])
            for file in range(3)
        ]
        assert counts.tolist() == wanted
        assert [use.read for use in rows.usage(known.first, position)] == wanted


# ---- batches


def read_some(
    draw: Draw,
    loaders: dict[tuple[int, int], NanosetDataLoader],
    known: Expected,
    consumed: int,
    batches: int,
    *,
    whole: bool = False,
) -> tuple[dict[str, Any], int, list[Any]]:
    """Read so many batches on every rank, all ranks in turn; with `whole`, until the epoch ends.

    Returns the state of one of the ranks, the count, and some batches that were written into, each with its content.
    """
    count = len(known.rows)
    plan = positions_read(draw, count, consumed)
    number = min(batches, len(plan[0]))
    streams_of = {rank: iter(loader) for rank, loader in loaders.items()}
    held: list[Any] = []
    for step in range(number):
        for (dp_rank, pp_rank), stream in streams_of.items():
            positions = plan[dp_rank][step]
            batch = next(stream)
            wanted = expected_batch(
                draw, known.rows[positions], known.starts[positions], pp_rank
            )
            check_batch(batch, wanted)
            held.append((batch, write_into(batch, step, repr(draw))))
        held = held[-8:]
    if whole:
        assert [next(stream, None) for stream in streams_of.values()] == [None] * len(
            loaders
        )
    for stream in streams_of.values():
        stream.close()
    end = consumed + count - consumed % count
    size = draw["dp_size"] * draw["micro_batch_size"]
    # the last batch of an epoch counts the tail that is dropped
    is_at_end = whole or 0 < number == len(plan[0])
    consumed = end if is_at_end else consumed + number * size
    states = [loader.state_dict() for loader in loaders.values()]
    assert [state["consumed_train_samples"] for state in states] == [consumed] * len(
        states
    )
    assert all(state == states[0] for state in states), (
        "the state is another one on another rank"
    )
    return states[-1], consumed, held


def plain_of(value: Any) -> Any:
    """A field of a batch as an array, a number, or ("pointer", r)."""
    if isinstance(value, TensorPointer):
        return "pointer", value.group_rank
    return value.numpy() if isinstance(value, torch.Tensor) else value


def check_batch(batch: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert batch.keys() == wanted.keys()
    for name, value in wanted.items():
        found = plain_of(batch[name])
        if isinstance(value, np.ndarray):
            assert found.dtype == value.dtype, f"{name} is {found.dtype}"
            assert np.array_equal(found, value), (
                f"{name} is\n{found}\nand should be\n{value}"
            )
        else:
            assert found == value, f"{name} is {found} and should be {value}"


def write_into(batch: dict[str, Any], step: int, seed: str) -> dict[str, Any]:
    """Write into about half of the arrays of a batch; the others must stay. Returns what the batch holds now."""
    source = random.Random(f"{seed} {step}")
    arrays = {
        name: value
        for name, value in sorted(batch.items())
        if isinstance(value, (torch.Tensor, np.ndarray))
    }
    now = {name: np.array(plain_of(value)) for name, value in arrays.items()}
    for name, value in arrays.items():
        if source.random() < 0.5:
            continue
        garbage = (
            np.zeros_like(now[name])
            if now[name].dtype == bool
            else np.full_like(now[name], -7 - step)
        )
        target = value if source.random() < 0.5 else plain_of(value)
        with contextlib.suppress(
            RuntimeError, ValueError
        ):  # it may refuse to be written into
            target[:] = (
                torch.from_numpy(garbage)
                if isinstance(target, torch.Tensor)
                else garbage
            )
            now[name] = garbage
    assert_fields(batch, now, "writing into one field of a batch has changed another")
    return now


def assert_fields(
    batch: dict[str, Any], wanted: dict[str, Any], complaint: str
) -> None:
    for name, value in wanted.items():
        assert np.array_equal(plain_of(batch[name]), value), f"{complaint}: {name}"


# ---- to find out why


def simplified(draw: Draw, corpora: Corpora) -> Draw:
    """The draw with as many defaults as leave it failing."""
    for name in [name for name, value in draw.items() if value != DEFAULTS.get(name)]:
        if name not in DEFAULTS:
            continue
        simpler = applicable(draw | {name: DEFAULTS[name]})
        try:
            hold(simpler, corpora)
        except AssertionError:
            draw = simpler
    return draw


def told(draw: Draw) -> str:
    """A draw as a call, without defaults."""
    options = {
        name: value for name, value in draw.items() if value != DEFAULTS.get(name)
    }
    return f"hold_only({options})"
