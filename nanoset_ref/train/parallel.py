"""The rank of this process; only this module uses torch.distributed, all others take numbers.

A run has dp x pp x tp processes, laid out by a `DeviceMesh` with named dimensions. Data loading
needs only six numbers, a `ParallelLayout`:

    dp   splits the data: rank r of D reads positions c + r, c + r + D, ... (see `schedule`)
    pp   splits the model by layers: the first rank gets input_ids, the last one label_ids
    tp   splits each layer: all ranks compute the same samples, so they read the same positions

Every process opens the token files and builds the order itself. Both are functions of the plan, so
processes neither wait for each other nor need a shared filesystem; that they read the same is
checked when a stage of token files begins, and at each checkpoint. The cost is an order per
process: 4 bytes per sample of an epoch for "nanotron", nothing for "stateless".
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from nanoset_ref.io.checks import refuses_unknown, whole_number
from nanoset_ref.io.torchrun import integer_setting, world_size

DIMENSIONS = ("dp", "pp", "tp")


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelLayout:
    """One process among dp_size x pp_size x tp_size.

    Args:
        dp_rank, pp_rank, tp_rank: the rank of this process in each dimension, from 0.
        dp_size, pp_size, tp_size: the number of ranks in each dimension, at least 1.

    Raises:
        ValueError: a size is below 1, a rank is not below its size, or a number is not an integer.
    """

    dp_rank: int = 0
    dp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    tp_rank: int = 0
    tp_size: int = 1

    def __post_init__(self) -> None:
        for name in DIMENSIONS:
            size = whole_number(getattr(self, f"{name}_size"), f"{name}_size", 1)
            rank = whole_number(getattr(self, f"{name}_rank"), f"{name}_rank", 0)
            if rank >= size:
                raise ValueError(
                    f"{name}_rank must be below {name}_size, got rank {rank} of {size}"
                )

    @property
    def output_pp_rank(self) -> int:
        """The pipeline rank that receives label_ids and computes the loss: the last."""
        return self.pp_size - 1


def layout_of_rank(rank: int, sizes: Mapping[str, int]) -> ParallelLayout:
    """The ranks of a global rank in each dimension, by arithmetic.

    As in a DeviceMesh, the first dimension varies slowest.

    Args:
        rank: global rank, 0 <= rank < product of the sizes.
        sizes: {dimension: size} for dp, pp and tp in any order; a missing one has size 1.
            {"pp": 2, "dp": 4} puts ranks 0-3 on the first pipeline stage.

    Raises:
        ValueError: a dimension has another name, or the rank does not exist.
    """
    if not set(sizes) <= set(DIMENSIONS):
        raise ValueError(
            f"mesh dimensions must be named {DIMENSIONS}, each at most once, got {tuple(sizes)}"
        )
    ranks = np.unravel_index(rank, list(sizes.values()))
    layout = {}
    for (name, size), coordinate in zip(sizes.items(), ranks, strict=True):
        layout[f"{name}_rank"] = int(coordinate)
        layout[f"{name}_size"] = size
    return ParallelLayout(**layout)


def layout_from_mesh(mesh: DeviceMesh) -> ParallelLayout:
    """The layout of this process in a mesh.

    Args:
        mesh: its dimensions are named dp, pp or tp, in any order; a missing one has size 1.

    Raises:
        ValueError: a dimension has no name, or another name.
    """
    coordinate: Any = mesh.get_coordinate()
    sizes = dict(zip(mesh.mesh_dim_names or ("",), mesh.shape, strict=False))
    return layout_of_rank(int(np.ravel_multi_index(coordinate, mesh.shape)), sizes)


@dataclasses.dataclass(frozen=True)
class World:
    """The processes of a run, and the few values that they exchange.

    Args:
        mesh: a mesh with the dimensions pp, dp and tp.
        device: this process's device.
        layout: this process's ranks in the mesh.
    """

    mesh: DeviceMesh
    device: torch.device
    layout: ParallelLayout

    @property
    def is_main_rank(self) -> bool:
        """Whether this is rank 0, which writes the files of the run."""
        return dist.get_rank() == 0

    def broadcast(self, value: int = 0) -> int:
        """Return the value of the first process in all processes, which wait for it (a barrier)."""
        received = torch.tensor(value)
        dist.broadcast(received, src=0)
        return int(received)

    def sum_over_stages(self, value: torch.Tensor) -> float:
        """Sum a loss, a count or a squared norm over the pipeline stages.

        Each stage contributes the mean over its data- and tensor-parallel ranks.
        """
        total = value.detach().clone()
        dist.all_reduce(total)
        return total.item() / self.layout.dp_size / self.layout.tp_size

    def gather_dp(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Gather CPU tensors of equal shape from the ranks that differ only in their dp rank."""
        parts = [torch.empty_like(tensor) for _ in range(self.layout.dp_size)]
        dist.all_gather(parts, tensor, group=self.mesh["dp"].get_group())
        return parts

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


def start_world(*, dp: int = 1, pp: int = 1, tp: int = 1) -> World:
    """Join the processes that torchrun started, laid out as pp x dp x tp.

    Without torchrun, this process is the only one.

    1. Take the GPU of the local rank; without GPUs all processes compute on the CPU.
    2. Connect the process group: NCCL between GPUs, gloo between CPUs.
    3. Lay out the mesh. tp varies fastest: the ranks that communicate most share a node.

    Raises:
        ValueError: the number of started processes is not dp x pp x tp, or this process is in a
            process group already.
    """
    if dist.is_initialized():
        raise ValueError(
            "a run connects its own processes, but this one is in a process group already: start "
            "the run in a process of its own"
        )
    needed = dp * pp * tp
    started = world_size()
    if started != needed:
        raise ValueError(
            f"dp={dp} x pp={pp} x tp={tp} needs {needed} processes, not {started}: start "
            f"{needed} with torchrun (--nproc-per-node times --nnodes), or change the parallelism"
        )
    # 1. the device
    device = torch.device("cpu")
    backend = "gloo"
    if torch.cuda.is_available():
        device = torch.device("cuda", integer_setting("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    # 2. the process group
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    # 3. the mesh
    mesh = init_device_mesh(
        device.type, (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp")
    )
    return World(mesh, device, layout_from_mesh(mesh))
