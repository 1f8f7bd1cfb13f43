"""The other systems' datasets over the same tokens, each behind the loader that its own documentation uses.

A peer is a function (tokens, sequence_length, batch_size, num_workers) -> an iterable of batches in random order. It
raises ImportError where the system is not installed (`pip install --constraint benchmarks/constraints.txt .[bench]`).
What each one reads:

    nanotron   the raw file, memory-mapped anew for every sample. The package is not on PyPI; with `src` of a checkout
               of huggingface/nanotron at ea686df1 (the last commit of this design) and `pip install dacite` on
               PYTHONPATH its own classes run, else `Restated`: the same steps in our words.
    megatron   GPTDataset over .bin/.idx, documents of 1,024 tokens, no attention mask built
    olmo       NumpyFSLDataset over the raw file, NumpyFSLDataLoader without threads
    litdata    TokensLoader over its own chunks (shuffled chunk-wise), StreamingDataLoader
    mosaicml   StreamingDataset over MDS shards of samples (shuffled block-wise), StreamingDataLoader
    datatrove  DatatroveFolderDataset over a .ds file, torch's DataLoader with a random sampler
    grain      MapDataset over a source that slices one memory map
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

DOCUMENT = 1024  # tokens
VOCABULARY = 50_000
CHUNK = 1 << 23  # tokens

Batches = Iterable[Any]


class Tokens:
    """Random ids in a raw uint16 file, and a folder for the copies that other formats need (made once, when asked for).

    Args:
        folder: where; kept by the caller.
        num_tokens: ids in the file.
    """

    def __init__(self, folder: Path, num_tokens: int) -> None:
        self.folder, self.num_tokens = folder, num_tokens
        self.path = folder / "tokens_input_ids.npy"
        if not self.path.exists() or self.path.stat().st_size != 2 * num_tokens:
            random = np.random.default_rng(0)
            with open(self.path, "wb") as file:
                for start in range(0, num_tokens, CHUNK):
                    random.integers(
                        0, VOCABULARY, min(CHUNK, num_tokens - start), dtype=np.uint16
                    ).tofile(file)

    def ids(self) -> np.ndarray[Any, np.dtype[np.uint16]]:
        return np.memmap(self.path, dtype=np.uint16, mode="r")

    def once(self, name: str, make: Callable[[Path], None]) -> Path:
        """The folder `name`, filled by `make` when it is not there yet."""
        folder = self.folder / name
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(dir=self.folder))
            make(unfinished)
            unfinished.rename(folder)
        return folder


# ---- nanotron


class Restated(Dataset[dict[str, Any]]):
    """Nanotron's sample: map the whole file, take the view of one sample, widen it to int32."""

    def __init__(
        self, path: Path, sequence_length: int, order: np.ndarray[Any, Any]
    ) -> None:
        self.path, self.sequence_length, self.order = path, sequence_length, order
        self.which = np.zeros(
            len(order), dtype=np.uint64
        )  # the file's number, which upstream looks up as well

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, k: int) -> dict[str, Any]:
        path = [self.path][self.which[k]]
        self.mapping = np.memmap(path, mode="r", order="C", dtype=np.uint16)
        begin = int(
            self.order[k] * self.sequence_length * (np.iinfo(np.uint16).bits / 8)
        )
        ids = np.frombuffer(
            memoryview(self.mapping),
            dtype=np.uint16,
            count=self.sequence_length + 1,
            offset=begin,
        )
        return {"input_ids": ids.astype(np.int32)}


class RestatedCollator:
    """Nanotron's batch: rows stacked into a new array, and new masks."""

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        rows = np.vstack([example["input_ids"] for example in examples])
        mask = (rows.shape[0], rows.shape[1] - 1)
        batch = {
            "input_ids": rows[:, :-1],
            "input_mask": np.ones(mask, dtype=np.bool_),
            "label_ids": rows[:, 1:],
            "label_mask": np.ones(mask, dtype=np.bool_),
        }
        return {name: torch.from_numpy(array) for name, array in batch.items()}


def nanotron_is_its_own() -> bool:
    """Whether Nanotron's classes run, not the restatement."""
    try:
        return (
            "dataset_paths"
            in importlib.import_module(
                "nanotron.data.nanoset"
            ).Nanoset.__init__.__annotations__
        )
    except ImportError:
        return False


def nanotron(
    tokens: Tokens,
    sequence_length: int,
    batch_size: int,
    num_workers: int,
    pin_memory: bool = False,
) -> Batches:
    num_samples = (tokens.num_tokens - 1) // sequence_length
    dataset: Dataset[Any]
    collator: Callable[..., Any]
    if nanotron_is_its_own():
        nanoset, loading = map(
            importlib.import_module, ("nanotron.data.nanoset", "nanotron.dataloader")
        )
        nanoset.Nanoset.print_nanoset_info = lambda self: (
            None
        )  # asks for a process group
        loading.dist = SimpleNamespace(get_rank=lambda group: 0)
        dataset = nanoset.Nanoset(
            [str(tokens.path)], None, sequence_length, np.uint16, num_samples
        )
        collator = loading.DataCollatorForCLM(
            sequence_length, 0, 0, SimpleNamespace(pp_pg=None)
        )
    else:
        order = np.random.RandomState(1234).permutation(num_samples)
        dataset, collator = (
            Restated(tokens.path, sequence_length, order),
            RestatedCollator(),
        )
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=SequentialSampler(dataset),  # type: ignore[arg-type]
        collate_fn=collator,
        drop_last=True,
        num_workers=num_workers,
        pin_memory=pin_memory,
    )


# ---- the others


def megatron(
    tokens: Tokens, sequence_length: int, batch_size: int, num_workers: int
) -> Batches:
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset, _IndexWriter
    from megatron.core.datasets.utils import Split

    def make(folder: Path) -> None:
        os.link(tokens.path, folder / "tokens.bin")
        lengths = [
            min(DOCUMENT, tokens.num_tokens - start)
            for start in range(0, tokens.num_tokens, DOCUMENT)
        ]
        with _IndexWriter(str(folder / "tokens.idx"), np.uint16) as index:
            index.write(lengths, None, range(len(lengths) + 1))

    prefix = str(tokens.once("megatron", make) / "tokens")
    corpus = IndexedDataset(prefix)
    config = GPTDatasetConfig(
        random_seed=1234,
        sequence_length=sequence_length,
        blend=([prefix], None),
        split="1,0,0",
        tokenizer=SimpleNamespace(
            eod=0, pad=VOCABULARY, vocab_size=VOCABULARY + 1, unique_identifiers={}
        ),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    documents = np.arange(len(corpus.document_indices) - 1, dtype=np.int32)
    dataset = GPTDataset(corpus, prefix, documents, None, Split.train, config)
    return DataLoader(
        dataset, batch_size=batch_size, drop_last=True, num_workers=num_workers
    )  # shuffled by itself


def olmo(
    tokens: Tokens, sequence_length: int, batch_size: int, num_workers: int
) -> Batches:
    from olmo_core.data import DataCollator, NumpyFSLDataset
    from olmo_core.data.data_loader import NumpyDataLoaderBase

    dataset = NumpyFSLDataset(
        tokens.path,
        sequence_length=sequence_length,
        pad_token_id=VOCABULARY,
        eos_token_id=0,
        vocab_size=VOCABULARY + 1,
        dtype=np.uint16,
    )
    loader = NumpyDataLoaderBase.wrap_numpy_dataset(
        dataset,
        global_batch_size=batch_size * sequence_length,
        collator=DataCollator(pad_token_id=VOCABULARY),
        work_dir=tempfile.mkdtemp(dir=tokens.folder),
        num_threads=0,
        num_workers=num_workers,
    )
    loader.reshuffle(epoch=1)
    return loader


def litdata(
    tokens: Tokens, sequence_length: int, batch_size: int, num_workers: int
) -> Batches:
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
    from litdata.streaming.writer import BinaryWriter

    block = sequence_length + 1

    def make(folder: Path) -> None:
        writer = BinaryWriter(
            str(folder),
            chunk_size=block * (CHUNK // block),
            item_loader=TokensLoader(block),
        )
        ids = tokens.ids()
        for number, start in enumerate(range(0, tokens.num_tokens - block, block * 64)):
            piece = ids[
                start : start + block * min(64, (tokens.num_tokens - start) // block)
            ]
            writer.add_item(number, torch.from_numpy(piece.copy()))
        writer.done()
        writer.merge()

    folder = tokens.once(f"litdata-{sequence_length}", make)
    dataset = StreamingDataset(
        str(folder), item_loader=TokensLoader(block), shuffle=True, drop_last=True
    )
    return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=num_workers)


def mosaicml(
    tokens: Tokens, sequence_length: int, batch_size: int, num_workers: int
) -> Batches:
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    row = sequence_length + 1

    def make(folder: Path) -> None:
        shutil.rmtree(folder)
        ids = tokens.ids()
        with MDSWriter(
            out=str(folder), columns={"tokens": f"ndarray:uint16:{row}"}
        ) as writer:
            for start in range(0, tokens.num_tokens - row, row):
                writer.write({"tokens": np.array(ids[start : start + row])})

    folder = tokens.once(f"mosaicml-{sequence_length}", make)
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=batch_size)
    return StreamingDataLoader(
        dataset, batch_size=batch_size, num_workers=num_workers, drop_last=True
    )


def datatrove(
    tokens: Tokens, sequence_length: int, batch_size: int, num_workers: int
) -> Batches:
    from datatrove.utils.dataset import DatatroveFolderDataset

    folder = tokens.once(
        "datatrove", lambda folder: os.link(tokens.path, folder / "tokens.ds")
    )
    dataset = DatatroveFolderDataset(
        str(folder), sequence_length, filename_pattern="*.ds", token_size=2
    )
    sampler = RandomSampler(dataset)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        drop_last=True,
        num_workers=num_workers,
    )


class _Source:
    def __init__(self, path: Path, sequence_length: int) -> None:
        self.ids, self.sequence_length = (
            np.memmap(path, dtype=np.uint16, mode="r"),
            sequence_length,
        )

    def __len__(self) -> int:
        return (len(self.ids) - 1) // self.sequence_length

    def __getitem__(self, k: int) -> np.ndarray[Any, Any]:
        start = k * self.sequence_length
        return self.ids[start : start + self.sequence_length + 1].astype(np.int32)


def grain(
    tokens: Tokens, sequence_length: int, batch_size: int, num_workers: int
) -> Batches:
    from grain import MapDataset, MultiprocessingOptions

    samples = MapDataset.source(_Source(tokens.path, sequence_length)).shuffle(seed=0)
    batches = samples.batch(batch_size, drop_remainder=True)
    if num_workers == 0:
        return batches
    return batches.to_iter_dataset().mp_prefetch(
        MultiprocessingOptions(num_workers=num_workers)
    )


PEERS: dict[str, Callable[[Tokens, int, int, int], Batches]] = {
    "nanotron": nanotron,
    "megatron": megatron,
    "olmo": olmo,
    "litdata": litdata,
    "mosaicml": mosaicml,
    "datatrove": datatrove,
    "grain": grain,
}


def endless(batches: Batches) -> Iterator[Any]:
    """Epoch after epoch."""
    return itertools.chain.from_iterable(itertools.repeat(batches))
