"""The walk of modded-nanogpt over documents: the pieces that the real program reads."""

import json

import numpy as np
import pytest
from file_kinds import write_shard

from nanoset_ref import open_tokens
from nanoset_ref.orders.others import document_walk


@pytest.mark.parametrize("number", range(4))
def test_pieces_are_those_of_modded_nanogpt(golden, tmp_path, number):
    case = json.loads((golden / "modded_nanogpt/pieces.json").read_text())[number]
    shards = []
    for file, (begins, size) in enumerate(
        zip(case["begins"], case["tokens"], strict=True)
    ):
        tokens = np.zeros(size, dtype=np.int64)
        tokens[begins] = 50256
        shards.append(open_tokens(write_shard(tmp_path / f"{file}.bin", tokens)))
    numbers = case["tokens_per_rank"], case["max_length"], case["ranks"]
    expected = [
        [step, rank, *piece]
        for step, ranks in enumerate(case["read"])
        for rank, pieces in enumerate(ranks)
        for piece in pieces
    ]
    assert document_walk(shards, *numbers).tolist() == expected


def test_the_walk_of_the_docstring(tmp_path):
    tokens = np.zeros(16, dtype=np.int64)
    tokens[[0, 3, 12]] = 50256
    file = open_tokens(write_shard(tmp_path / "a.bin", tokens))
    walk = document_walk([file], 5, 4, 1)
    assert walk.tolist() == [[0, 0, 0, 0, 3], [0, 0, 0, 3, 6]]
    assert document_walk([file], 16, 4, 1).shape == (0, 5)
    with pytest.raises(ValueError, match="ranks"):
        document_walk([file], 5, 4, 0)
