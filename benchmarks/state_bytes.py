"""How many bytes the state of a loader takes: `python -m benchmarks.state_bytes [--output FILE]`.

Each loader reads 10,000 rows, or the course's text, in batches of 8, and stops after 50 of them. Its state is pickled,
as torch.save would do: without workers, with four workers, and with ten times as large a shuffle buffer, where it has
them. The peers are built by the adapters of `benchmarks.laws.peers`. A Nanoset's or a TokenStream's plan, which is the
same throughout a run, is counted apart.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.laws import peers
from benchmarks.record import command, machine, save
from nanoset_ref import (
    Nanoset,
    TokenFileWriter,
    build_nanoset_dataloader,
    load_tokenizer,
    prepare_corpus,
)
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader

ROWS, LENGTH, BATCH, BATCHES = 10_000, 32, 8, 50
WORKERS, BUFFER = 4, 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="write the result as JSON")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # four workers on two cores
    with tempfile.TemporaryDirectory() as folder:
        measured = {name: sizes(states) for name, states in ways(Path(folder)).items()}
    for name, by_setting in measured.items():
        print(f"{name:<48}", by_setting)
    packages = ("torchdata", "datasets", "grain")
    result = {
        "command": command("state_bytes"),
        "machine": machine() | {name: version(name) for name in packages},
        "bytes": measured,
    }
    save(result, given.output)


def sizes(states: dict[str, Callable[[], Any]]) -> dict[str, int]:
    """Bytes of each state, and of the plan in the first of them if it has one."""
    found = {setting: make() for setting, make in states.items()}
    first = next(iter(found.values()))
    plan = first.get("plan") if isinstance(first, dict) else None
    sizes = {
        setting: len(pickle.dumps(without_plan(it))) for setting, it in found.items()
    }
    return sizes | ({"plan": len(pickle.dumps(plan))} if plan else {})


def without_plan(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    return {name: value for name, value in state.items() if name != "plan"}


def ways(folder: Path) -> dict[str, dict[str, Callable[[], Any]]]:
    """By loader and setting, a function that reads some batches and returns the state."""
    place = {"rank": 0, "world_size": 1, "seed": 0, "epoch": 0, "batch_size": BATCH}
    nanoset, stream = nanoset_of(folder), stream_of(folder)

    def peer(name: str, workers: int = 0) -> Callable[[], Any]:
        adapter = peers.PEERS[name]
        return lambda: after_some(adapter.make(ROWS, workers=workers, **place))

    def shuffled(buffer: int) -> Callable[[], Any]:
        dataset = peers.hf_rows(ROWS, 3).shuffle(seed=0, buffer_size=buffer)
        return lambda: after_some(peers.HuggingFace(dataset, BATCH, None))

    by_workers = {"no worker": 0, "four workers": WORKERS}
    by_buffer = {f"a buffer of {size:,}": size for size in (BUFFER, 10 * BUFFER)}
    torchdata = "torchdata StatefulDataLoader, "
    return {
        "NanosetDataLoader": {
            it: (lambda n=n: nanoset(n)) for it, n in by_workers.items()
        },
        "TokenStreamDataLoader": {
            it: (lambda n=n: stream(n)) for it, n in by_buffer.items()
        },
        **{
            torchdata + kind: {
                it: peer(torchdata + kind, n) for it, n in by_workers.items()
            }
            for kind in ("DistributedSampler", "shuffle=True")
        },
        "HF datasets, streaming, shuffle": {
            it: shuffled(n) for it, n in by_buffer.items()
        },
        "grain MapDataset.shuffle": {"no worker": peer("grain MapDataset.shuffle")},
    }


def after_some(loader: Any) -> Any:
    """The state after some batches."""
    batches = iter(loader)
    for _ in itertools.islice(batches, BATCHES):
        pass
    return loader.state_dict() if hasattr(loader, "state_dict") else loader.state


def nanoset_of(folder: Path) -> Callable[[int], Any]:
    """For a number of workers, the state of a Nanoset's loader."""
    path = folder / "rows_input_ids.npy"
    ids = np.random.default_rng(0).integers(0, 300, ROWS * LENGTH + 1)
    with TokenFileWriter(path, dtype="uint16", vocab_size=300) as writer:
        writer.write_document(ids.tolist())
    nanoset = Nanoset([path], None, LENGTH, ROWS)
    return lambda workers: after_some(
        build_nanoset_dataloader(
            nanoset, micro_batch_size=BATCH, num_loading_workers=workers
        )
    )


def stream_of(folder: Path) -> Callable[[int], Any]:
    """For a size of the shuffle buffer, the state of a token stream's loader."""
    corpus = prepare_corpus(folder / "corpus")
    tokenizer = load_tokenizer(corpus.tokenizer)
    text = next(iter(corpus.domains.values()))

    def state(buffer: int) -> Any:
        options = {"shuffle_buffer": buffer, "append_eod": True}
        stream = TokenStream(text, tokenizer, LENGTH, micro_batch_size=BATCH, **options)
        return after_some(TokenStreamDataLoader(stream))

    return state


if __name__ == "__main__":
    main()
