"""A stage that streams text: its TokenStream and loader, and the cursors that its state keeps.

The state of a stream is a count, as that of rows; its cursors, one per shard of the text, only spare a resume the
encoding of all that came before. Each rank knows those of the shards that it has read, so before a checkpoint the ranks
tell each other how far they are. Pipeline ranks that need no data encode text all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from nanoset_ref.collator import DataCollatorForCLM
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader
from nanoset_ref.training.config import Config
from nanoset_ref.training.data_section import TextSection
from nanoset_ref.training.parallel import ParallelLayout, World
from nanoset_ref.training.strict_yaml import ConfigError

CURSOR = "row", "epoch", "block", "document", "offset"  # the fields of a cursor
Cursors = dict[str, dict[str, int]]  # {shard: cursor}


def open_stream(config: Config, dataset: TextSection, seed: int, layout: ParallelLayout) -> TokenStream:
    """The endless stream of one rank.

    Raises:
        ConfigError: the config names no tokenizer.
    """
    if config.tokenizer is None:
        raise ConfigError("tokenizer.tokenizer_name_or_path: is missing, and text needs it")
    return TokenStream(
        dataset.source(),
        config.tokenizer.tokenizer_name_or_path,
        config.tokens.sequence_length,
        rank=layout.dp_rank,
        world_size=layout.dp_size,
        micro_batch_size=config.tokens.micro_batch_size,
        repeat=True,
        seed=seed,
        **dataset.model_dump(include={"append_eod", "add_special_tokens", "shards", "shuffle_buffer"}),
    )


def stream_loader(stream: TokenStream, config: Config, layout: ParallelLayout, workers: int) -> TokenStreamDataLoader:
    """Its batches, as DataCollatorForCLM makes them."""
    return TokenStreamDataLoader(
        stream,
        DataCollatorForCLM(config.tokens.sequence_length, 0, layout.output_pp_rank, layout.pp_rank),
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(config.general.seed),
    )


def furthest_cursors(cursors: Mapping[str, Mapping[str, int]], shards: int, world: World) -> Cursors:
    """Of each shard the cursor of the rank that is furthest in it; all processes call this together."""
    table = torch.full((shards, len(CURSOR)), -1)
    for shard, cursor in cursors.items():
        table[int(shard)] = torch.tensor([cursor[name] for name in CURSOR])
    tables = torch.stack(world.gather_dp(table))
    ranks = tables[:, :, 0].argmax(dim=0)
    rows = enumerate(tables[ranks, torch.arange(shards)].tolist())
    return {str(shard): dict(zip(CURSOR, row, strict=True)) for shard, row in rows if row[0] >= 0}
