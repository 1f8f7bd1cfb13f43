"""A stage that streams text, from the place that its state names on.

The state of a stream is a count, as that of rows. Its cursor only spares a resume the encoding of all that came before;
as every rank reads through the whole text, that of one rank serves all.
"""

from __future__ import annotations

import torch

from nanoset_ref.collator import DataCollatorForCLM
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader
from nanoset_ref.training.config import Config
from nanoset_ref.training.data_section import DataConfig, TextSection
from nanoset_ref.training.parallel import ParallelLayout
from nanoset_ref.training.strict_yaml import ConfigError


def stream_loader(config: Config, data: DataConfig, layout: ParallelLayout) -> TokenStreamDataLoader:
    """The batches of one rank, without end, as DataCollatorForCLM makes them.

    Pipeline ranks between the first and the last, which need no data, are given those of the first.

    Raises:
        ConfigError: the config names no tokenizer.
    """
    section, tokens, last = data.dataset, config.tokens, layout.output_pp_rank
    if config.tokenizer is None or not isinstance(section, TextSection):
        raise ConfigError("tokenizer.tokenizer_name_or_path: is missing, and text needs it")
    stream = TokenStream(
        section.source(),
        config.tokenizer.tokenizer_name_or_path,
        tokens.sequence_length,
        dp_rank=layout.dp_rank,
        dp_size=layout.dp_size,
        micro_batch_size=tokens.micro_batch_size,
        repeat=True,
        seed=data.seed,
        **section.model_dump(include={"append_eod", "add_special_tokens", "shuffle_buffer"}),
    )
    return TokenStreamDataLoader(
        stream,
        DataCollatorForCLM(tokens.sequence_length, 0, last, last if layout.pp_rank == last else 0),
        num_workers=data.num_loading_workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(config.general.seed),
    )
