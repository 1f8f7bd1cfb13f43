"""Cards from the arguments of llm.c."""

import glob

from nanoset_ref.io.paths import as_list
from nanoset_ref.io.types import Json
from nanoset_ref.provenance.loader_config import (
    LoaderConfig,
    order_facts,
    source_facts,
)
from nanoset_ref.tokens import open_tokens
from nanoset_ref.tokens.llm_c_shard import HEADER_BYTES


def from_llm_c(config: LoaderConfig) -> Json:
    """The facts of a card, from the arguments of llm.c's train_gpt2cu.

    They may come after mpirun -np RANKS.
    """
    values = config.values
    paths = sorted(glob.glob(str(values.get("i", ""))))
    if not paths:
        raise ValueError(
            f"no shard matches -i {values.get('i')}: run this command where the shards are"
        )
    length = config.fact("sequence_length", values.get("t"))
    rows = config.fact("micro_batch_size", values.get("b"))
    ranks = config.fact("dp_size", next(iter(as_list(values.get("np", []))), None))
    batch_size = int(values.get("d", length * rows * ranks)) // length
    steps = int(values.get("x", -1))  # -1: one epoch
    steps = config.fact("steps", steps if steps > 0 else None)
    options = {"micro_batch_size": rows, "dp_size": ranks}
    return {
        "dtype": open_tokens(paths[0]).dtype.name,
        "window": {"row_length": length + 1, "stride": length},
        "sources": [source_facts(path, HEADER_BYTES) for path in paths],
        "orders": [order_facts("llm_c", 0, options=options)],
        "stages": config.stages_of_batches(
            {batch_size: steps},
            layout="contiguous",
            dp_size=ranks,
            micro_batch_size=rows,
        ),
    }
