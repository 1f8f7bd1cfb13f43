"""What the tests of buckets share: a Nanoset over the files of a bucket or of a local folder, and its batches."""

from itertools import islice

import torch

from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset

N, S = 600, 32


def dataset(place, names="ab", **options):
    return Nanoset([f"{place}/{name}.npy" for name in names], None, S, N, **options)


def loader_of(rows, **options):
    return build_nanoset_dataloader(
        rows, micro_batch_size=8, dp_rank=1, dp_size=2, **options
    )


def batches_of(loader, count=None):
    return [
        torch.as_tensor(batch["input_ids"]).clone() for batch in islice(loader, count)
    ]
