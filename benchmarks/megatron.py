"""Megatron's pipeline, ours and megatron-core's: `python -m benchmarks.megatron [--documents 1e6 1e7] [--rounds 7]`.

One process, one thread of torch, the page cache warm. Both sides take turns within every round, so that whatever else
the machine does meets both; a ratio is the median over the rounds of the ratios within a round. What both give is
compared before anything is timed.

    build   document, sample and shuffle index of a corpus of so many documents, in memory, for 1 epoch and for 2.5:
            upstream's own functions (NumPy, and its C++ helpers) in the order in which GPTDataset calls them
    open    an .idx of so many sequences, every check of it included (the page cache is warm): seconds, no rival
    read    batches through torch's DataLoader, no workers: upstream's GPTDataset, whose items torch stacks, against
            rows: build_nanoset_dataloader over a MegatronNanoset (input_ids, label_ids and their masks)
            fields: NanosetDataLoader with a MegatronCollator, the very batch that upstream gives (tokens, labels,
            loss_mask, position_ids)
"""

from __future__ import annotations

import argparse
import itertools
import logging
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.record import command, interleaved, save
from nanoset_ref.load.dataloader import NanosetDataLoader, build_nanoset_dataloader
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.megatron import (
    EpochPlan,
    MegatronCollator,
    MegatronNanoset,
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
    build_mappings,
    plan_epochs,
)
from nanoset_ref.tokens.bin_idx import HEADER, MAGIC

BATCH, SEED = 8, 1234
logging.getLogger("megatron.core").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument(
        "--sequence-lengths", type=int, nargs="+", default=[512, 2048, 8192]
    )
    parser.add_argument(
        "--megabytes", type=int, default=256, help="size of the corpus that is read"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "command": command("megatron"),
        "build": [],
        "open": [],
        "read": [],
    }
    for documents in map(int, options.documents):
        for epochs in (1.0, 2.5):
            result["build"].append(bench_build(documents, epochs, options.rounds))
    with tempfile.TemporaryDirectory() as folder:
        for documents in map(int, options.documents):
            result["open"].append(bench_open(Path(folder), documents, options.rounds))
        prefix = write_corpus(Path(folder), options.megabytes)
        for sequence_length in options.sequence_lengths:
            result["read"].append(bench_read(prefix, sequence_length, options.rounds))
    save(result, options.output)


def lengths_of(documents: int) -> np.ndarray:
    """Heavy-tailed document lengths, int32, about 550 tokens in the mean."""
    return np.clip(
        np.random.RandomState(0).lognormal(5.8, 1.0, documents), 1, 50_000
    ).astype(np.int32)


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> dict[str, float]:
    """How many times faster, median and spread over the rounds."""
    values = sorted(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))
    return {
        "median": round(statistics.median(values), 2),
        "least": round(values[0], 2),
        "most": round(values[-1], 2),
    }


# ---- building the indexes


def bench_build(documents: int, epochs: float, rounds: int) -> dict[str, Any]:
    lengths, sequence_length = lengths_of(documents), 2048
    tokens = int(lengths.sum(dtype=np.int64))
    plan = plan_epochs(
        tokens,
        None if epochs == 1 else int(epochs * tokens) // sequence_length,
        sequence_length,
    )

    def ours() -> tuple[np.ndarray, ...]:
        return tuple(
            build_mappings(lengths, 0, documents, plan, sequence_length, SEED).values()
        )

    def theirs() -> tuple[np.ndarray, ...]:
        return upstream_indexes(lengths, plan, sequence_length)

    for found, expected in zip(ours(), theirs(), strict=True):
        np.testing.assert_array_equal(found, expected)
    seconds = interleaved({"megatron-core": theirs, "nanoset_ref": ours}, rounds)
    record = {
        "documents": documents,
        "epochs": epochs,
        "samples": plan.num_samples,
        "seconds": {
            name: round(statistics.median(times), 4) for name, times in seconds.items()
        },
        "ratio": ratio(seconds, "megatron-core", "nanoset_ref"),
    }
    print(
        f"build {documents:,} documents, {epochs} epochs: {record['seconds']}, ratio {record['ratio']}",
        flush=True,
    )
    return record


def upstream_indexes(
    lengths: np.ndarray, plan: EpochPlan, sequence_length: int
) -> tuple[np.ndarray, ...]:
    """What GPTDataset does to build its indexes, by its own functions."""
    from megatron.core.datasets import gpt_dataset, helpers

    indices = np.arange(len(lengths), dtype=np.int32)
    tokens = int(np.sum(lengths[indices]))
    state = np.random.RandomState(SEED)
    document_index = gpt_dataset._build_document_index(
        indices, plan.num_epochs, state, plan.separate_final_epoch
    )
    sample_index = helpers.build_sample_idx(
        lengths, document_index, sequence_length, plan.num_epochs, tokens, True, True
    )
    shuffle_index = gpt_dataset._build_shuffle_index(
        plan.num_samples_before_final_epoch, sample_index.shape[0] - 1, state
    )
    return document_index, sample_index, shuffle_index


def bench_open(folder: Path, documents: int, rounds: int) -> dict[str, Any]:
    """An .idx beside a .bin that is one hole."""
    lengths = lengths_of(documents)
    ends = np.cumsum(lengths, dtype=np.int64) * 2
    with open(folder / "open.idx", "wb") as file:
        file.write(HEADER.pack(MAGIC, 1, 8, documents, documents + 1))
        for array in (lengths, np.append(0, ends[:-1]), np.arange(documents + 1)):
            file.write(array.data)
    with open(folder / "open.bin", "wb") as file:
        file.truncate(int(ends[-1]))
    seconds = interleaved({"open": lambda: MMapIndexedDataset(folder / "open")}, rounds)
    record = {
        "sequences": documents,
        "seconds": round(statistics.median(seconds["open"]), 4),
    }
    print(f"open {documents:,} sequences: {record['seconds']} s", flush=True)
    return record


# ---- reading samples


def write_corpus(folder: Path, megabytes: int) -> str:
    tokens = megabytes * 2**19
    lengths = lengths_of(tokens // 400)
    lengths = lengths[np.cumsum(lengths) <= tokens]
    with MMapIndexedDatasetBuilder(folder / "corpus.bin", np.uint16) as builder:
        builder.write(
            np.random.RandomState(1).randint(4, 50_256, lengths.sum(), dtype=np.uint16),
            lengths,
        )
    return str(folder / "corpus")


class Tokenizer:
    """All that upstream asks of one."""

    vocab_size, eod, eos, pad, unique_identifiers = (
        50_257,
        50_256,
        50_256,
        3,
        "benchmark",
    )


def bench_read(prefix: str, sequence_length: int, rounds: int) -> dict[str, Any]:
    config = NanosetConfig(
        random_seed=SEED,
        sequence_length=sequence_length,
        data_path=prefix,
        split="1,0,0",
        eos_token_id=Tokenizer.eod,
        pad_id=3,
    )
    ours, theirs = (
        NanosetBuilder(config).build()[0],
        upstream_dataset(prefix, sequence_length),
    )
    assert isinstance(ours, MegatronNanoset)
    batches = min(4_000_000 // (sequence_length * BATCH), len(ours) // BATCH)
    positions = range(batches * BATCH)
    loaders = {
        "megatron-core": DataLoader(theirs, BATCH, sampler=positions),
        "rows": build_nanoset_dataloader(ours, micro_batch_size=BATCH),
        "fields": NanosetDataLoader(
            ours,
            ResumableBatchSampler(len(ours), BATCH),
            collate_fn=MegatronCollator(config),
        ),
    }
    for other, rows, fields in zip(*loaders.values(), strict=False):
        assert fields.keys() == other.keys() and all(
            torch.equal(fields[name], other[name]) for name in other
        )
        assert torch.equal(rows["input_ids"].long(), other["tokens"])

    def run(loader: Any) -> Callable[[], None]:
        def deliver() -> None:
            if isinstance(loader, NanosetDataLoader):
                loader.load_state_dict({"consumed_train_samples": 0})
            delivered = sum(1 for _ in itertools.islice(loader, batches))
            assert delivered == batches

        return deliver

    seconds = interleaved(
        {name: run(loader) for name, loader in loaders.items()}, rounds
    )
    tokens = batches * BATCH * sequence_length
    record = {
        "sequence_length": sequence_length,
        "million_tokens_per_second": {
            n: round(tokens / statistics.median(s) / 1e6, 1) for n, s in seconds.items()
        },
        "ratio": {
            name: ratio(seconds, "megatron-core", name) for name in ("rows", "fields")
        },
    }
    print(
        f"read {sequence_length}: {record['million_tokens_per_second']} Mtoken/s, ratio {record['ratio']}",
        flush=True,
    )
    return record


def upstream_dataset(prefix: str, sequence_length: int) -> Any:
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    config = GPTDatasetConfig(
        random_seed=SEED,
        sequence_length=sequence_length,
        blend=([prefix], None),
        split="1,0,0",
        tokenizer=Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    return BlendedMegatronDatasetBuilder(
        GPTDataset, [None] * 3, lambda: True, config
    ).build()[0]


if __name__ == "__main__":
    main()
