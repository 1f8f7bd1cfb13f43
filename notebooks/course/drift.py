"""Ranks that should hold the same batch compare it. As a script, it is one process of notebook 04's job."""

import subprocess
import sys
from pathlib import Path
from zlib import crc32

import torch
import torch.distributed as dist

from nanoset_ref import Nanoset, build_nanoset_dataloader


def compare(input_ids, step, group=None):
    """Raise if the ranks of a group, such as the tensor-parallel one, hold different batches.

    Args:
        input_ids: the batch of this rank [rows, S].
        step: to say when it happened.
        group: ranks that should hold the same; None: all.
    """
    mine = torch.tensor(crc32(input_ids.numpy().tobytes()))
    hashes = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(hashes, mine, group)  # 8 bytes from each rank
    for rank, found in enumerate(hashes):
        if found != hashes[0]:
            own = f"tp rank {rank} has batch {found:08x}"
            raise RuntimeError(f"step {step}: {own}, tp rank 0 has {hashes[0]:08x}")


def start_ranks(path, seeds):
    """Start one process per seed, all of one job; what each of them says at its end.

    Args:
        path: of the token file that all read.
        seeds: of the order that each rank reads.
    """
    meeting = Path("data", "04_meeting").resolve()
    meeting.unlink(missing_ok=True)
    command = [sys.executable, __file__, str(meeting), str(path), *map(str, seeds)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    jobs = [subprocess.Popen([*command, str(rank)], **quiet) for rank in range(len(seeds))]
    return [job.communicate()[0].strip() for job in jobs]


def main(meeting, path, *numbers):
    """One rank: two batches of its order, each compared with the other ranks'."""
    *seeds, rank = map(int, numbers)
    # a store, because torch does not decode a URL of a folder with a space
    store = dist.FileStore(meeting, len(seeds))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=len(seeds))
    rows = Nanoset(
        path, None, sequence_length=8, train_split_num_samples=200, random_seed=seeds[rank]
    )
    try:
        for step, batch in zip((1, 2), build_nanoset_dataloader(rows, micro_batch_size=2)):
            compare(batch["input_ids"], step)
        print("two equal batches")
    except RuntimeError as error:
        print(error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
