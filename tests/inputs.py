"""Small files of every kind that the package reads, in two versions; for tests that kill, and tests that damage."""

import contextlib
import gzip
import json
import warnings
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import torch
import zstandard

from nanoset_ref.chunks import mix
from nanoset_ref.io.index_cache import load_or_build
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.streaming import CompressedDictionary
from nanoset_ref.tokens import TokenFileWriter, convert, open_tokens
from nanoset_ref.train import Checkpoints, load_config
from nanoset_ref.train.parallel import ParallelLayout
from nanoset_ref.train.staged_loader import StagedLoader

ALONE = SimpleNamespace(is_main_rank=True, broadcast=lambda value=0: value)
MODEL = {
    "model_type": "gpt2",
    "n_embd": 8,
    "n_layer": 1,
    "n_head": 1,
    "vocab_size": 300,
    "n_positions": 8,
}


def loader_of(folder):
    return build_nanoset_dataloader(
        Nanoset([open_tokens(folder / "t.npy")], None, 8, 12, 1), micro_batch_size=2
    )


def staged_loader_of(folder):
    return StagedLoader(load_config(folder / "run.yaml"), ParallelLayout())


def indexes_of(folder):
    arrays = np.arange(99, dtype=np.int64), np.arange(9, dtype=np.uint32)
    return load_or_build(
        folder / "cache", {"seed": 1}, ("sample", "shuffle"), lambda: arrays
    )


def write_inputs(folder, version, checkpoints="unused"):
    """Files of every kind, small; another version differs in all of them.

    t.npy .bin .ds, raw.npy    token files      text/p text/q   JSON lines, packed ones, Parquet
    rows, mixed                rows of chunks   run, cache      a checkpoint and metrics, cached indexes
    *.cd                       compressed       *.yaml *.json   a run, states of its loaders
    """
    generator = np.random.RandomState(version)
    for name in ("text/p", "text/q", "rows/p", "rows/q", "run"):
        (folder / name).mkdir(parents=True)
    with TokenFileWriter(
        folder / "t.npy", dtype=["uint16", "int32"][version], vocab_size=300
    ) as writer:
        for length in generator.randint(0, 30, 40):
            writer.write_document(generator.randint(0, 300, length))
    for suffix in ("bin", "ds"):
        convert([open_tokens(folder / "t.npy")], folder / f"t.{suffix}")
    (folder / "raw.npy").write_bytes((folder / "t.npy").read_bytes())
    texts = [
        f"document {version} {k} " + "has words " * generator.randint(9)
        for k in range(20)
    ]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "text/p/x.jsonl").write_text(lines)
    (folder / "text/q/x.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    (folder / "text/q/y.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    pyarrow.parquet.write_table(
        pyarrow.table({"text": texts}), folder / "text/q/z.parquet"
    )
    for subset in "pq":
        rows = [{"token_ids": [k, version, 7], "source": subset} for k in range(20)]
        (folder / "rows" / subset / "train.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    mix(folder / "rows", folder / "mixed", "p,q", 2, 3, random_seed=version)
    for compression in ("bz2", "gzip", "xz"):
        values = CompressedDictionary(compression)
        values.update(
            {k + version: ["has words " * k, k] for k in range(20)}
        )  # nothing protects the keys
        values.dump(folder / f"{compression}.cd")
    indexes_of(folder)
    with (
        warnings.catch_warnings(action="ignore"),
        contextlib.closing(Checkpoints(folder / "run", ALONE)) as saved,
    ):
        saved.save(
            2,
            {"a": torch.arange(9.0) + version, "b": torch.ones(3, 2)},
            {"data": {"version": version}},
        )
    metrics = [
        {
            "step": k + 1,
            "loss": k / 7 + version,
            "samples": [[[k, "0f"]]],
            "data_wait": 0.5,
        }
        for k in range(9)
    ]
    (folder / "run/metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in metrics)
    )
    dataset = {
        "dataset_path": str(folder / "t.npy"),
        "order": ["nanotron", "stateless"][version],
    }
    tree = {
        "data_stages": [
            {
                "name": "s",
                "start_training_step": 1,
                "data": {"dataset": dataset, "seed": version},
            }
        ],
        "tokens": {"sequence_length": 8, "train_steps": 4, "micro_batch_size": 2},
        "model": {"model_config": MODEL},
        "checkpoints": {"checkpoints_path": str(checkpoints), "checkpoint_interval": 2},
    }
    (folder / "run.yaml").write_text(json.dumps(tree))
    for name, loader in {
        "staged": staged_loader_of(folder),
        "loader": loader_of(folder),
    }.items():
        next(iter(loader))
        (folder / f"{name}.json").write_text(json.dumps(loader.state_dict()))
