"""Record what GPT-NeoX returns: python record.py SOURCE, a checkout of ea7aefd8, with torch, NumPy and pybind11.

Its own classes write the corpus and build the datasets; what they ask of a cluster is stubbed.
"""

import json
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import types

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
CASES = [  # S, samples asked for, seed, first and stop of the documents
    (7, 40, 1234, 0, 60),  # within an epoch
    (7, 190, 1234, 0, 60),  # the last epoch is needed by less than 80 %
    (7, 310, 7, 0, 60),
    (5, 500, 2**32 - 1, 0, 57),
    (16, 200, 3, 10, 60),  # nearly all of the last epoch is needed
    (3, 1000, 0, 0, 60),
]


def load(source):
    """The modules of GPT-NeoX, its helpers compiled, without what starts a cluster."""
    megatron = types.ModuleType("megatron")
    megatron.__path__ = [f"{source}/megatron"]
    megatron.print_rank_0 = lambda *_: None
    megatron.mpu = types.SimpleNamespace(get_io_parallel_group=lambda: None)
    sys.modules["megatron"] = megatron
    data = types.ModuleType("megatron.data")
    data.__path__ = [f"{source}/megatron/data", tempfile.mkdtemp()]
    sys.modules["megatron.data"] = data
    includes = subprocess.check_output(
        [sys.executable, "-m", "pybind11", "--includes"], text=True
    )
    name = f"{data.__path__[1]}/helpers{sysconfig.get_config_var('EXT_SUFFIX')}"
    call = ["g++", "-O2", "-shared", "-std=c++14", "-fPIC", *includes.split()]
    subprocess.check_call([*call, f"{source}/megatron/data/helpers.cpp", "-o", name])
    torch.cuda.LongTensor = torch.LongTensor
    torch.distributed.get_rank = lambda **_: 0
    torch.distributed.get_world_size = lambda **_: 1
    torch.distributed.all_reduce = lambda *_, **__: None
    from megatron.data import gpt2_dataset, indexed_dataset

    return gpt2_dataset, indexed_dataset


def main():
    gpt2_dataset, indexed_dataset = load(sys.argv[1])
    rng = np.random.default_rng(11)
    lengths = rng.integers(1, 30, 60)
    lengths[[13, 59]] = [0, 90]
    corpus = HERE / "corpus"
    builder = indexed_dataset.make_builder(f"{corpus}.bin", "mmap", vocab_size=50257)
    for length in lengths.tolist():
        builder.add_item(rng.integers(0, 50257, length).astype(np.uint16))
        builder.end_document()
    builder.finalize(f"{corpus}.idx")
    tokens = indexed_dataset.make_dataset(str(corpus), "mmap", True)
    arrays = {}
    for number, (length, samples, seed, first, stop) in enumerate(CASES):
        with tempfile.TemporaryDirectory() as folder:
            dataset = gpt2_dataset.GPT2Dataset(
                "train",
                f"{folder}/cache",
                np.arange(first, stop, dtype=np.int32),
                tokens,
                samples,
                None,
                length,
                seed,
            )
            arrays[f"{number}/document_index"] = np.array(dataset.doc_idx)
            arrays[f"{number}/sample_index"] = np.array(dataset.sample_idx)
            arrays[f"{number}/shuffle_index"] = np.array(dataset.shuffle_idx)
            rows = [dataset[i]["text"] for i in range(len(dataset))]
            arrays[f"{number}/rows"] = np.array(rows).astype(np.uint16)
    np.savez_compressed(HERE / "mappings.npz", **arrays)
    names = "sequence_length", "num_samples", "seed", "first", "stop"
    lines = ",\n".join(
        json.dumps(dict(zip(names, case, strict=True))) for case in CASES
    )
    (HERE / "mappings.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
