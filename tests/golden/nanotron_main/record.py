"""Record what Nanotron's main branch reads: python record.py SOURCE, a checkout of 2411b022, with torch and pybind11.

Its own BlendableDataset and MegatronPretrainingSampler are run as `DistributedTrainer.train` and `run_train.py` run
them; folders are lists, and what they import of a cluster is stubbed. Writes stages.json beside itself.
"""

import contextlib
import itertools
import json
import logging
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import types

import torch

HERE = pathlib.Path(__file__).parent
A, B, C = ([f"s3://{name}", size] for name, size in (("a", 90), ("b", 60), ("c", 400)))
CASES = [  # S, rows of a micro-batch, ranks, accumulation, steps; stages: first step, folders, weights
    (8, 2, 1, 1, 12, [(1, [A, B], [0.3, 0.7])]),
    (8, 2, 2, 2, 20, [(1, [A, B, C], [0.2, 0.1, 0.7]), (9, [C, A], [0.5, 0.5])]),
    (
        16,
        1,
        4,
        1,
        40,
        [(1, [B, C], None), (6, [A, C], [3, 1]), (18, [B, A, C], [0.05, 0.2, 0.75])],
    ),
    (
        4,
        3,
        2,
        1,
        30,
        [(1, [C, C], [0.5, 0.5]), (11, [C, A], [0.9, 0.1]), (21, [C], None)],
    ),
]


class Folder:
    """A TokenizedBytesFolderDataset of some rows, each its folder and number."""

    subset_log = None

    def __init__(self, path, size):
        self.folder_path = path
        self.size = size

    def __getitem__(self, row):
        if row >= self.size:
            raise IndexError(row)
        return int(row)


def load(source):
    """BlendableDataset and MegatronPretrainingSampler."""
    for name in ("nanotron", "nanotron.data", "nanotron.data.nemo_dataset"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f"{source}/src/{name.replace('.', '/')}"]
    sys.modules["nanotron"].logging = logging
    logging.get_logger = logging.getLogger
    logging.log_rank = lambda *_, **__: None
    sys.modules["nanotron.logging"] = logging
    stubs = {
        "nanotron.parallel": {"ParallelContext": None},
        "nanotron.utils": {"main_rank_first": lambda *_: contextlib.nullcontext()},
        "datasets": {"Dataset": None},
        "transformers": {},
        "transformers.trainer_pt_utils": {"DistributedSamplerWithLoop": object},
    }
    for name, values in stubs.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    built = tempfile.mkdtemp()
    includes = subprocess.check_output(
        [sys.executable, "-m", "pybind11", "--includes"], text=True
    )
    helpers = f"{source}/src/nanotron/data/nemo_dataset/helpers.cpp"
    name = f"{built}/helpers{sysconfig.get_config_var('EXT_SUFFIX')}"
    call = ["g++", "-O2", "-shared", "-std=c++14", "-fPIC", *includes.split(), helpers]
    subprocess.check_call([*call, "-o", name])
    sys.modules["nanotron.data.nemo_dataset"].__path__.append(built)
    torch.distributed.get_rank = lambda *_: 1
    from nanotron.data.nemo_dataset.blendable_dataset import BlendableDataset
    from nanotron.data.samplers import MegatronPretrainingSampler

    return BlendableDataset, MegatronPretrainingSampler


def run(classes, length, rows, ranks, accumulation, steps, stages):
    """The stages of a run: what each rank reads, and what is counted of each folder."""
    blendable, sampler = classes
    size = rows * ranks * accumulation
    saved = []  # of each stage: tokens of each folder
    recorded = []
    ends = [first - 1 for first, *_ in stages[1:]] + [steps]
    for (first, folders, weights), last in zip(stages, ends, strict=True):
        before = {}
        for stage in saved:
            for path, tokens in stage.items():
                before[path] = before.get(path, 0) + tokens
        dataset = blendable(
            [Folder(*folder) for folder in folders],
            weights or [1] * len(folders),
            steps * size,
            types.SimpleNamespace(world_pg=None),
            6,
            {},
            {path: tokens // length for path, tokens in before.items()},
        )
        read = []
        for rank in range(ranks):
            batches = iter(sampler(steps * size, 0, rows, rank, ranks, size))
            taken = itertools.islice(batches, (last - first + 1) * accumulation)
            read.append(
                [
                    [int(dataset.dataset_index[i]), dataset[i]]
                    for batch in taken
                    for i in batch
                ]
            )
        stats = {}
        for step in range(first, last + 1):
            dataset.update_consumption_metrics((step - 1) * size, step * size, length)
            for path, found in dataset.get_consumption_stats().items():
                stats[path] = found["tokens"]
        saved.append(stats)
        recorded.append(
            {"first": first, "folders": folders, "weights": weights, "read": read}
        )
        recorded[-1]["counted_tokens"] = stats
    names = "sequence_length", "micro_batch_size", "ranks", "accumulation", "steps"
    given = (length, rows, ranks, accumulation, steps)
    return dict(zip(names, given, strict=True)) | {"stages": recorded}


if __name__ == "__main__":
    classes = load(sys.argv[1])
    lines = [json.dumps(run(classes, *case), separators=(",", ":")) for case in CASES]
    (HERE / "stages.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
