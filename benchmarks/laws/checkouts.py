"""Adapters of loaders that are read from a checkout of their repository, without its other requirements.

    git clone https://github.com/NVIDIA/Megatron-LM ../Megatron-LM
    git clone https://github.com/huggingface/nanotron ../nanotron-2024 && git -C ../nanotron-2024 checkout 395a4dbb
    git clone https://github.com/AI-Hypercomputer/maxtext ../maxtext
    git clone https://github.com/huggingface/nanotron ../nanotron && git -C ../nanotron checkout 2411b022
    export MEGATRON_LM=../Megatron-LM NANOTRON_2024=../nanotron-2024 MAXTEXT=../maxtext NANOTRON_MAIN=../nanotron

An adapter is registered if the variable of its checkout is set. Nanotron's main branch compiles its blend, with g++ and
pybind11.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.laws.peers import PEERS, Counted, state_dict
from nanoset_ref.laws import Adapter

CHECKOUTS = {
    "Megatron-LM": "MEGATRON_LM",
    "Nanotron 2024": "NANOTRON_2024",
    "MaxText": "MAXTEXT",
    "Nanotron main": "NANOTRON_MAIN",
}


def checkout(system: str) -> Path | None:
    folder = os.environ.get(CHECKOUTS[system])
    return Path(folder).resolve() if folder else None


def commit(system: str) -> str:
    """The commit of a checkout, ten digits; "unknown" without one."""
    folder = checkout(system)
    if folder is None:
        return "unknown"
    call = ["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(
        call, capture_output=True, text=True, check=True
    ).stdout.strip()


def load(name: str, path: Path) -> Any:
    """The module of one file, known to others by `name`."""
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def stand_in(name: str, **members: Any) -> ModuleType:
    """A module with these members in place of one that the judged file imports."""
    module = ModuleType(name)
    vars(module).update(members, __path__=[])
    sys.modules[name] = module
    return module


def together(place: dict[str, Any]) -> int:
    """Rows that all ranks read in a step."""
    size: int = place["world_size"] * place["batch_size"]
    return size


# ---- Megatron-LM: its samplers


def megatron(folder: Path) -> None:
    stand_in("megatron.training", get_args=None)
    stand_in("megatron.training.dist_signal_handler", DistributedSignalHandler=None)
    samplers = load(
        "data_samplers", folder / "megatron/training/datasets/data_samplers.py"
    )

    def size(place: dict[str, Any]) -> dict[str, int]:
        return {
            "micro_batch_size": place["batch_size"],
            "data_parallel_rank": place["rank"],
            "data_parallel_size": place["world_size"],
        }

    def pretraining(data: int, *, state: Any = None, **place: Any) -> Any:
        consumed = (state or 0) * together(place)
        if consumed >= data:
            return Counted([], state)
        sampler = samplers.MegatronPretrainingSampler(data, consumed, **size(place))
        return Counted(sampler, state or 0)

    def cyclic(sharding: bool) -> Any:
        def make(data: int, *, state: Any = None, **place: Any) -> Any:
            step = together(place)
            if data < step:
                raise ValueError("too few samples for a step")
            sampler = samplers.MegatronPretrainingRandomSampler(
                range(data),
                data,
                data // step * step * place["epoch"] + (state or 0) * step,
                data_sharding=sharding,
                **size(place),
            )
            return Counted(sampler, state or 0)

        return make

    common: dict[str, Any] = {"state_of": state_dict, "tail": "drop", "max_rows": 60}
    claims = "once ranks order repeat resume elastic data"
    PEERS["Megatron-LM pretraining sampler"] = Adapter(
        make=pretraining, claims=claims, **common
    )
    claims = "once ranks repeat epochs resume"
    PEERS["Megatron-LM cyclic sampler"] = Adapter(
        make=cyclic(True), claims=claims, **common
    )
    PEERS["Megatron-LM cyclic sampler, --no-data-sharding"] = Adapter(
        make=cyclic(False), claims="once ranks repeat epochs", **common
    )


# ---- Nanotron, June 2024: the index of its Nanosets, and its sampler


def nanotron(folder: Path) -> None:
    from torch.utils.data import DataLoader  # as the sampler imports it

    class Rows:
        """In place of a folder of datatrove: the rows first, first + 1, ..."""

        def __init__(self, folder_path: str, **_: Any) -> None:
            first, count = map(int, folder_path.split())
            self.rows = range(first, first + count)

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, sample: int) -> int:
            return self.rows[int(sample)]

    stand_in("datatrove.utils.dataset", DatatroveFolderDataset=Rows)
    stand_in("nanotron.data")
    logging = stand_in(
        "nanotron.logging", get_logger=print, INFO=0, log_rank=lambda *_, **__: None
    )
    stand_in("nanotron", logging=logging)
    load("nanotron.data.utils", folder / "src/nanotron/data/utils.py")
    nanoset = load("nanoset_2024", folder / "src/nanotron/data/nanoset.py")
    distributed = stand_in("nanotron.distributed", ProcessGroup=object)
    vars(sys.modules["nanotron"]).update(distributed=distributed)
    for name, member in {
        "config": "Config",
        "parallel": "ParallelContext",
        "parallel.pipeline_parallel.tensor_pointer": "TensorPointer",
        "random": "set_random_seed",
        "sanity_checks": "assert_fail_except_rank_with assert_tensor_synced_across_pg",
    }.items():
        stand_in(f"nanotron.{name}", **dict.fromkeys(member.split(), object))
    stand_in("nanotron.parallel.pipeline_parallel")
    dataloader = load("dataloader_2024", folder / "src/nanotron/dataloader.py")

    def epochs_of(
        sizes: list[int], weights: Any, place: dict[str, Any], epochs: int
    ) -> Any:
        """A Nanoset over sources of so many rows."""
        starts = itertools.accumulate(sizes, initial=0)
        sources = [f"{first} {size}" for first, size in zip(starts, sizes)]  # noqa: B905
        samples = epochs * sum(sizes)
        return nanoset.Nanoset(
            sources, 1, 2, samples, weights, random_seed=place["seed"] + 1
        )

    def make(data: int, *, state: Any = None, **place: Any) -> Any:
        """Three sources without weights: "consume all samples from all datasets"."""
        sizes = [data - data // 3 - data // 4, data // 3, data // 4]
        if 0 in sizes:
            raise ValueError("too few rows for three sources")
        epochs = place["epoch"] + 1
        rows = epochs_of(sizes, None, place, epochs)
        epoch = [
            rows[position] for position in range(data * place["epoch"], data * epochs)
        ]
        step = together(place)
        mine = slice(
            place["rank"] * place["batch_size"],
            (place["rank"] + 1) * place["batch_size"],
        )
        whole = range(0, data - step + 1, step)
        return [epoch[first : first + step][mine] for first in whole]

    PEERS["Nanotron 2024 Nanoset, three sources without weights"] = Adapter(
        make=make, claims="once ranks order repeat data", tail="drop", max_rows=120
    )

    def weighted(data: Any, *, state: Any = None, **place: Any) -> Any:
        """A run of two epochs over three sources with weights."""
        rows = epochs_of(data.rows, data.weights, place, 2)
        size = place["batch_size"]
        starts = range(0, len(rows) - size + 1, size)
        return [[rows[k] for k in range(first, first + size)] for first in starts]

    PEERS["Nanotron 2024 Nanoset, three sources with weights"] = Adapter(
        make=weighted, claims="weights complete", max_rows=120
    )

    def resumed(data: int, *, state: Any = None, **place: Any) -> Any:
        """The sampler of `build_nanoset_dataloader`, in torch's DataLoader."""
        done = state or 0
        step = together(place)
        loader = DataLoader(
            epochs_of([data], None, place, 1),
            batch_size=place["batch_size"],
            sampler=dataloader.get_sampler(
                dl_ranks_size=place["world_size"],
                dl_rank=place["rank"],
                train_dataset=range(data),
                consumed_train_samples=done * step,
                drop_last=True,
                shuffle=False,
            ),
            drop_last=True,
        )
        return Counted(loader, done)

    common: dict[str, Any] = {"state_of": state_dict, "tail": "drop"}
    PEERS["Nanotron 2024 Nanoset, resumed"] = Adapter(
        make=resumed, claims="once ranks order resume elastic", max_rows=60, **common
    )


# ---- MaxText: its loader of OLMo's files, over grain's DataLoader


def maxtext(folder: Path) -> None:
    pipeline = folder / "src/maxtext/input_pipeline"
    stand_in("maxtext")
    stand_in("maxtext.input_pipeline")
    index = load("maxtext.input_pipeline.olmo_data", pipeline / "olmo_data.py")
    loaders = load(
        "maxtext.input_pipeline.olmo_data_grain", pipeline / "olmo_data_grain.py"
    )

    def make(data: Any, *, state: Any = None, **place: Any) -> Any:
        step = together(place)
        rows = data.rows[0]
        if rows < step:
            raise ValueError("too few rows for a step")
        of_a_host = rows // place["world_size"]
        steps = of_a_host // place["batch_size"]
        done = state or 0
        loader = loaders.make_olmo_grain_data_loader(
            index.build_index(
                [(data.path, "rows")],
                data.sequence_length,
                tokenizer="",
                header_reader=lambda path: index.read_raw_metadata_from_path(
                    path, "uint16"
                ),
            ),
            seed=place["seed"],
            batch_size=place["batch_size"],
            shard_index=place["rank"],
            shard_count=place["world_size"],
            apply_ngram_filter=False,
            shift_to_inputs_targets=False,
            # as its docstring says: the step times the batch of a host
            initial_step=of_a_host * place["epoch"] + done * place["batch_size"],
        )
        tokens = ({"tokens": np.asarray(batch["tokens"])} for batch in loader)
        return Counted(itertools.islice(tokens, steps - done), done)

    common: dict[str, Any] = {"state_of": state_dict, "tail": "drop", "format": "npy"}
    common |= {"max_rows": 60, "max_workers": 0}
    claims = "once ranks repeat seed epochs resume data owned"
    PEERS["MaxText OLMo loader, one host"] = Adapter(
        make=make, claims=claims, max_ranks=1, **common
    )
    PEERS["MaxText OLMo loader, several hosts"] = Adapter(
        make=make, claims=claims, **common
    )


# ---- Nanotron, main branch: the ledger with which a stage continues the folders of the stages before


def nanotron_main(folder: Path) -> None:
    golden = Path(__file__).parents[2] / "tests" / "golden" / "nanotron_main"
    recorder = load("nanotron_main_recorder", golden / "record.py")
    classes = recorder.load(folder)
    folders = [["s3://a", 10**6], ["s3://b", 10**6]]
    weights = [[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]

    def make_of(changes: int) -> Any:
        def make(data: int, *, rank: int, state: Any = None, **place: Any) -> Any:
            """A run over two folders: the first rows of each, as many as its stages draw from it.

            They are numbered from 0 on, folder after folder, and rows behind them from `data` on. So a run reads each
            of the first rows once if every stage continues a folder where the stages before ended.
            """
            steps = data // together(place)
            if steps <= changes:
                raise ValueError("too few rows for the stages")
            firsts = [
                1 + steps * stage // (changes + 1) for stage in range(changes + 1)
            ]
            stages = [
                (first, folders, weights[stage]) for stage, first in enumerate(firsts)
            ]
            size = place["batch_size"]
            run = recorder.run(classes, 8, size, place["world_size"], 1, steps, stages)
            parts = zip(*(stage["read"] for stage in run["stages"]), strict=True)
            reads = [list(itertools.chain(*part)) for part in parts]
            due = Counter(folder for read in reads for folder, _ in read)
            rows = []
            for number, row in reads[rank]:
                row_of_run = row + number * due[0]
                rows.append(
                    row_of_run if row < due[number] else data + 2 * row + number
                )
            return [rows[first : first + size] for first in range(0, len(rows), size)]

        return make

    common: dict[str, Any] = {
        "claims": "once ranks repeat",
        "tail": "drop",
        "max_rows": 80,
    }
    PEERS["Nanotron main, one change of stage"] = Adapter(make=make_of(1), **common)
    PEERS["Nanotron main, two changes of stage"] = Adapter(make=make_of(2), **common)


for system, register in zip(
    CHECKOUTS, (megatron, nanotron, maxtext, nanotron_main), strict=True
):
    found = checkout(system)
    if found is not None:
        register(found)
