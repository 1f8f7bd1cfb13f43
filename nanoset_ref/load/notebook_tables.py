"""Tables of a dataset and of a loader, for notebooks."""

from nanoset_ref.io.html_table import html_table
from nanoset_ref.load.dataloader import NanosetDataLoader
from nanoset_ref.load.nanoset import Nanoset


def nanoset_table(nanoset: Nanoset) -> str:
    """`html_table` of a Nanoset."""
    order = nanoset.order
    facts = {
        "samples": len(nanoset),
        "sequence length": nanoset.sequence_length,
        "tokens": len(nanoset) * nanoset.sequence_length,
        "epochs": len(nanoset) / order.samples_per_epoch,
        "order": order.name,
        "seed": order.random_seed,
    }
    shares = order.dataset_weights.tolist()
    tokens = [file.num_tokens for file in nanoset.files]
    paths = nanoset.dataset_paths
    rows = list(zip(paths, tokens, nanoset.dataset_lengths, shares, strict=True))
    head = "file", "tokens", "samples", "share"
    return html_table(type(nanoset).__name__, facts, head, rows)


def loader_table(loader: NanosetDataLoader) -> str:
    """`html_table` of a NanosetDataLoader."""
    sampler = loader.batch_sampler
    facts = {
        "dataset": repr(loader.dataset),
        "rank": f"{sampler.dp_rank} of {sampler.schedule.dp_size}, {sampler.schedule.layout}",
        "micro-batch size": sampler.micro_batch_size,
        "samples consumed by all ranks": loader.consumed_train_samples,
        "batches left": len(loader),
        "workers": loader.num_workers,
        "blocks read ahead": loader.read_ahead,
    }
    return html_table(type(loader).__name__, facts)
