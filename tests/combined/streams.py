"""One run over text that is tokenized while it trains: every rank reads, is written into, and resumed."""

import itertools
from pathlib import Path
from typing import Any

from streaming.stream_helpers import number_tokenizer

from combined import identity, runs
from combined.axes import Draw
from combined.batches import expected_batch, positions_read
from combined.corpora import Corpora
from combined.expected import (
    EOS,
    Expected,
    reads_of,
    same_reads,
    streamed,
)
from nanoset_ref import DataCollatorForCLM, DocumentOptions
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader

TOKENIZER = number_tokenizer(1700)
BATCH = {"tail": "drop", "layout": "strided", "pp_size": 1}


def hold_stream(draw: Draw, corpora: Corpora, folder: Path) -> None:
    draw = draw | BATCH
    loaders = loaders_of(draw, corpora)
    state, consumed = read_some(
        draw, loaders, streamed(reads_of(draw)), 0, draw["stop"]
    )
    after = identity.resumed(draw)
    again = loaders_of(after, corpora, draw["resume"])
    agree = same_reads(reads_of(draw), reads_of(after))
    for loader in again:
        runs.load(loader, state, agree)
    if agree:
        read_some(after, again, streamed(reads_of(after)), consumed, None)
        read_some(after, again, streamed(reads_of(after), epoch=1), 0, 1)


def loaders_of(
    draw: Draw, corpora: Corpora, resume: str = "same"
) -> list[TokenStreamDataLoader]:
    where, _ = identity.places(draw | {"resume": resume})
    text = corpora.text(draw, where)
    options = {
        name: draw[name]
        for name in ("micro_batch_size", "shuffle_buffer", "seed", "dp_size")
    }
    documents = None
    if draw["masks"] is not None:
        documents = DocumentOptions(
            eos_token_id=EOS, **dict.fromkeys(runs.EVERY_FIELD, True)
        )
    collate = DataCollatorForCLM(draw["sequence_length"], 0, 0, 0, documents=documents)
    loading: dict[str, Any] = {"num_workers": draw["workers"]}
    if draw["prefetch_factor"] is not None:
        loading["prefetch_factor"] = draw["prefetch_factor"]
    streams = [
        TokenStream(
            text,
            TOKENIZER,
            draw["sequence_length"],
            dp_rank=rank,
            append_eod=True,
            backend="hf",
            **options,
        )
        for rank in range(draw["dp_size"])
    ]
    collate_fn = runs.stacked if draw["collator"] == "function" else collate
    return [TokenStreamDataLoader(stream, collate_fn, **loading) for stream in streams]


def read_some(
    draw: Draw,
    loaders: list[TokenStreamDataLoader],
    known: Expected,
    consumed: int,
    batches: int | None,
) -> tuple[dict[str, Any], int]:
    """Read so many batches on every rank (None: the rest of the epoch). `consumed` counts in this epoch."""
    plan = positions_read(draw, len(known.rows), consumed)
    number = len(plan[0]) if batches is None else min(batches, len(plan[0]))
    for rank, loader in enumerate(loaders):
        steps = itertools.islice(loader, number) if batches is not None else loader
        found = 0
        for step, batch in enumerate(steps if number or batches is None else ()):
            positions = plan[rank][step]
            wanted = expected_batch(
                draw, known.rows[positions], known.starts[positions], 0
            )
            runs.check_batch(batch, wanted)
            runs.write_into(batch, step, repr(draw))
            found += 1
        assert found == number
    states = [loader.state_dict() for loader in loaders]
    consumed += number * draw["dp_size"] * draw["micro_batch_size"]
    return states[-1], consumed
