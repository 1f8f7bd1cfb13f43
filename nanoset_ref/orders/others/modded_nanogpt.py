"""The tokens that each step of modded-nanogpt reads, in a walk from document to document.

This is no order of fixed rows.

Source: KellerJordan/modded-nanogpt f411b3d3 (August 2026), class Shard of `train_gpt.py`.
"""

from collections.abc import Sequence

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Int64Array
from nanoset_ref.tokens.llm_c_shard import LlmCFile


def document_walk(
    shards: Sequence[LlmCFile],
    tokens_per_rank: int,
    max_length: int,
    ranks: int,
) -> Int64Array:
    """Every piece that is read once through the shards: int64 [pieces, 5], in order.

    A row of the result is (step, rank, shard, start, stop): tokens start:stop of the shard.

    1. rank after rank takes the next document that begins in the shard, to its end at most
    2. a piece has at most `max_length` tokens, and a row tokens_per_rank + 1: it is filled exactly
    3. a step that the shard cannot fill for all ranks is dropped, and the next shard begins

    Example, documents of 3, 9 and 4 tokens, 5 tokens per rank, pieces of at most 4, one rank::

        step 0    0:3 3:6       6 tokens; the rest of the second document is never read
        step 1    12:16, and no further document: dropped

    Args:
        shards: in the order of their names.
        tokens_per_rank: inputs of a rank in a micro-step.
        max_length: the stage's train_max_seq_len.
        ranks: the world size. A run's stages change these numbers: call once for each stage.
    """
    whole_number(tokens_per_rank, "tokens_per_rank", 1)
    whole_number(max_length, "max_length", 1)
    whole_number(ranks, "ranks", 1)
    walks = []
    steps = 0
    for shard, file in enumerate(shards):
        stops = np.append(file.document_starts[1:], file.num_tokens)
        pieces = walk_shard(
            file.document_starts, stops, tokens_per_rank, max_length, ranks
        )
        numbered = np.insert(pieces, 2, shard, axis=1)
        numbered[:, 0] += steps
        if len(pieces):
            steps = int(numbered[-1, 0]) + 1
        walks.append(numbered)
    return np.concatenate(walks)


@njit
def walk_shard(starts, stops, tokens_per_rank, max_length, ranks):
    """The pieces (step, rank, start, stop) of one shard, int64 [pieces, 4].

    Its documents are starts[d]:stops[d], int64 each, in tokens. No bounds need to be checked.
    """
    pieces: list[tuple[int, int, int, int]] = []
    document = 0
    step = 0
    whole = 0  # pieces of complete steps
    while True:
        for rank in range(ranks):
            room = tokens_per_rank + 1
            while room > 0:
                if document == len(starts):
                    table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
                    return table[:whole]
                start = starts[document]
                length = min(stops[document] - start, max_length, room)
                pieces.append((step, rank, start, start + length))
                room -= length
                document += 1
        step += 1
        whole = len(pieces)
