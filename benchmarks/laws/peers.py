"""Adapters of loaders that others wrote, each as its documentation uses it.

An adapter claims what the loader's documentation claims, or what its users rely on. Where a system is not installed,
its adapter is left out. `python -m benchmarks.laws.record` puts them all to the laws.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import tempfile
from typing import Any

from nanoset_ref.laws import Adapter

TOGETHER = "once ranks workers repeat owned data"
PEERS: dict[str, Adapter] = {}


def peer(name: str, needs: str, **options: Any) -> Any:
    """Register `make` where the modules that it needs are installed: imported here once, not in each process."""

    def register(make: Any) -> Any:
        with contextlib.suppress(ImportError):
            for module in needs.split():
                importlib.import_module(module)
            PEERS[name] = Adapter(make=make, **options)
        return make

    return register


def state_dict(loader: Any) -> Any:
    return loader.state_dict()


class Counted:
    """A loader whose state is the number of batches that it has delivered."""

    def __init__(self, loader: Any, delivered: int = 0) -> None:
        self.loader = loader
        self.delivered = delivered

    def __iter__(self) -> Any:
        for batch in self.loader:
            self.delivered += 1
            yield batch

    def state_dict(self) -> int:
        return self.delivered


# ---- torch


@peer(
    "torch DistributedSampler",
    "torch",
    claims=f"{TOGETHER} order seed epochs length spread",
    tail="pad",
    max_workers=2,
)
def distributed_sampler(data: int, *, state: Any = None, **place: Any) -> Any:
    from torch.utils.data import DataLoader, DistributedSampler

    sampler = DistributedSampler(
        range(data), place["world_size"], place["rank"], seed=place["seed"]
    )
    sampler.set_epoch(place["epoch"])
    return DataLoader(
        range(data), place["batch_size"], sampler=sampler, num_workers=place["workers"]
    )


@peer(
    "torch DistributedSampler without set_epoch",
    "torch",
    claims="once ranks epochs",
    tail="pad",
)
def without_set_epoch(data: int, **place: Any) -> Any:
    return distributed_sampler(data, **place | {"epoch": 0})


@peer(
    "torchdata StatefulDataLoader, DistributedSampler",
    "torchdata.stateful_dataloader.sampler",
    claims=f"{TOGETHER} epochs resume killed length",
    tail="pad",
    max_workers=2,
    state_of=state_dict,
)
def stateful_dataloader(data: int, *, state: Any = None, **place: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    sampler = StatefulDistributedSampler(
        range(data), place["world_size"], place["rank"], seed=place["seed"]
    )
    sampler.set_epoch(place["epoch"])
    loader = StatefulDataLoader(
        range(data), place["batch_size"], sampler=sampler, num_workers=place["workers"]
    )
    if state is not None:
        loader.load_state_dict(state)
    return loader


@peer(
    "torchdata StatefulDataLoader, shuffle=True",
    "torchdata.stateful_dataloader",
    claims="once resume",
    max_ranks=1,
    max_workers=2,
    state_of=state_dict,
)
def stateful_shuffle(data: int, *, state: Any = None, **place: Any) -> Any:
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    generator = torch.Generator().manual_seed(1000 * place["epoch"] + place["seed"])
    loader = StatefulDataLoader(
        range(data),
        place["batch_size"],
        shuffle=True,
        generator=generator,
        num_workers=place["workers"],
    )
    if state is not None:
        loader.load_state_dict(state)
    return loader


# ---- Hugging Face


def hf_rows(data: int, shards: int) -> Any:
    from datasets import Dataset

    rows = Dataset.from_dict({"row": list(range(data))})
    return rows.to_iterable_dataset(num_shards=min(shards, data))


class HuggingFace:
    """Batches of a streaming dataset, as a training loop makes them."""

    def __init__(self, dataset: Any, batch_size: int, state: Any) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        if state is not None:
            dataset.load_state_dict(state)

    def __iter__(self) -> Any:
        rows = iter(self.dataset)
        while batch := [row["row"] for row in itertools.islice(rows, self.batch_size)]:
            yield batch

    def state_dict(self) -> Any:
        return self.dataset.state_dict()


ONE_PROCESS: dict[str, Any] = {
    "max_ranks": 1,
    "max_workers": 0,
    "state_of": state_dict,
    "claims": "once repeat epochs resume",
    "max_rows": 60,
}


@peer(
    "HF datasets, streaming",
    "datasets",
    **ONE_PROCESS | {"claims": "once repeat resume"},
)
def hf_streaming(data: int, *, state: Any = None, **place: Any) -> Any:
    return HuggingFace(hf_rows(data, 3), place["batch_size"], state)


@peer("HF datasets, streaming, shuffle", "datasets", **ONE_PROCESS)
def hf_shuffle(data: int, *, state: Any = None, **place: Any) -> Any:
    dataset = hf_rows(data, 3).shuffle(seed=place["seed"], buffer_size=8)
    dataset.set_epoch(place["epoch"])
    return HuggingFace(dataset, place["batch_size"], state)


@peer(
    "HF datasets, split_dataset_by_node",
    "datasets.distributed",
    claims=TOGETHER,
    max_workers=0,
)
def hf_by_node(data: int, *, state: Any = None, **place: Any) -> Any:
    from datasets.distributed import split_dataset_by_node

    dataset = split_dataset_by_node(
        hf_rows(data, 4), place["rank"], place["world_size"]
    )
    return HuggingFace(dataset, place["batch_size"], state)


@peer(
    "accelerate skip_first_batches",
    "accelerate.data_loader torch.utils.data",
    claims="once repeat epochs resume",
    max_ranks=1,
    max_workers=0,
    state_of=state_dict,
    max_rows=60,
)
def accelerate_skip(data: int, *, state: Any = None, **place: Any) -> Any:
    """A seedable sampler, as `accelerator.prepare` makes it; the epochs before are iterated in the first run only."""
    import torch
    from accelerate import skip_first_batches
    from accelerate.data_loader import prepare_data_loader
    from torch.utils.data import DataLoader

    torch.manual_seed(place["seed"])
    loader = prepare_data_loader(
        DataLoader(range(data), place["batch_size"], shuffle=True),
        num_processes=1,
        process_index=0,
        put_on_device=False,
        use_seedable_sampler=True,
    )
    if state is not None:
        return Counted(skip_first_batches(loader, state), state)
    for _ in range(place["epoch"]):
        list(loader)
    return Counted(loader)


# ---- grain


@peer(
    "grain MapDataset.shuffle",
    "grain",
    claims="once ranks order repeat seed epochs resume data owned",
    tail="drop",
    max_workers=0,
    state_of=lambda loader: loader.state,
)
def grain_map(data: int, *, state: Any = None, **place: Any) -> Any:
    return Grain(data, state, **place)


class Grain:
    """A shuffled dataset, sliced by ranks, in batches, with the state of its iterator."""

    def __init__(self, data: int, state: Any, **place: Any) -> None:
        import grain

        together = place["world_size"] * place["batch_size"]
        shuffled = (
            grain.MapDataset.range(data)
            .seed(place["seed"] * 100 + place["epoch"])
            .shuffle()
        )
        whole = shuffled[: data // together * together]
        mine = whole[place["rank"] :: place["world_size"]]
        dataset = mine.batch(place["batch_size"], drop_remainder=True)
        self.batches = iter(dataset.to_iter_dataset())
        if state is not None:
            self.batches.set_state(state)

    def __iter__(self) -> Any:
        return self.batches

    @property
    def state(self) -> Any:
        return self.batches.get_state()


# ---- litData, OLMo-core, mosaicml-streaming: over their own files


@peer(
    "litData StreamingDataLoader",
    "litdata",
    format="litdata",
    claims="once ranks repeat owned data seed epochs resume",
    tail="drop",
    max_workers=2,
    max_rows=60,
    state_of=state_dict,
)
def litdata_streaming(data: Any, *, state: Any = None, **place: Any) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    os.environ["WORLD_SIZE"] = str(place["world_size"])
    os.environ["GLOBAL_RANK"] = str(place["rank"])
    os.environ["NNODES"] = "1"
    dataset = StreamingDataset(
        data.path, shuffle=True, seed=place["seed"], drop_last=True
    )
    loader = StreamingDataLoader(
        dataset,
        batch_size=place["batch_size"],
        num_workers=place["workers"],
        drop_last=True,
    )
    if state is None:
        loader.current_epoch = place["epoch"]  # __iter__ tells the dataset
    else:
        loader.load_state_dict(state)
    return loader


@peer(
    "OLMo-core NumpyFSLDataLoader",
    "olmo_core.data",
    format="npy",
    claims=f"{TOGETHER} order seed epochs resume elastic spread",
    tail="drop",
    max_workers=1,
    max_rows=100,
    state_of=state_dict,
)
def olmo(data: Any, *, state: Any = None, **place: Any) -> Any:
    import numpy as np
    from olmo_core.data import DataCollator, NumpyFSLDataLoader, NumpyFSLDataset

    length = data.sequence_length
    dataset = NumpyFSLDataset(
        data.path,
        sequence_length=length,
        pad_token_id=1,
        eos_token_id=0,
        vocab_size=65535,
        dtype=np.uint16,
    )
    loader = NumpyFSLDataLoader(
        dataset,
        collator=DataCollator(pad_token_id=1),
        global_batch_size=place["world_size"] * place["batch_size"] * length,
        work_dir=tempfile.mkdtemp(dir=os.path.dirname(data.path)),
        seed=place["seed"],
        dp_world_size=place["world_size"],
        dp_rank=place["rank"],
        fs_local_rank=0,
        num_threads=0,
        num_workers=place["workers"],
    )
    dataset.prepare()
    if state is not None:
        loader.load_state_dict(state)
    loader.reshuffle(epoch=place["epoch"] + 1)
    return loader


@peer(
    "mosaicml-streaming py1e",
    "streaming",
    format="mds",
    claims="once ranks repeat seed epochs resume data owned",
    tail="pad",
    max_ranks=1,
    max_workers=1,
    max_rows=60,
    state_of=lambda loader: loader.state_dict(),
)
def mosaicml(data: Any, *, state: Any = None, **place: Any) -> Any:
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = StreamingDataset(
        local=data.path,
        shuffle=True,
        shuffle_seed=place["seed"],
        batch_size=place["batch_size"],
        num_canonical_nodes=1,
    )
    dataset.next_epoch = place["epoch"]
    loader = StreamingDataLoader(
        dataset, batch_size=place["batch_size"], num_workers=place["workers"]
    )
    if state is not None:
        loader.load_state_dict(state)
    return loader
