"""Record the samples that mosaicml-streaming gives its ranks: python record.py, with mosaicml-streaming 0.13.0.

Its own `get_shuffle_py1e` and `get_partitions_orig` are called as StreamingDataset calls them. Writes ranks.json beside
itself.
"""

import json
import pathlib
import sys
from unittest import mock

import numpy as np

sys.modules["streaming.vision"] = mock.MagicMock(__all__=[])  # which needs torchvision
from streaming.base.partition.orig import get_partitions_orig  # noqa: E402
from streaming.base.shuffle.py1e import get_shuffle_py1e  # noqa: E402

HERE = pathlib.Path(__file__).parent
CASES = [  # samples of each shard, canonical nodes, seed, block size; nodes, ranks of a node, workers, batch
    ([7], 1, 3, 1 << 18, 1, 1, 1, 1),
    ([10, 10, 10, 4], 2, 9176, 8, 2, 2, 1, 2),
    ([10, 10, 10, 4], 4, 9176, 16, 2, 2, 2, 1),
    ([5, 0, 31, 12, 2], 3, 1, 20, 1, 2, 2, 3),
    ([100] * 9 + [37], 8, 17, 300, 4, 2, 1, 2),
    ([64] * 30, 2, 5, 1 << 18, 1, 8, 1, 4),
    ([3, 1, 4, 1, 5, 9, 2, 6], 8, 2**31, 5, 1, 1, 1, 1),
]


def main():
    recorded = []
    for sizes, canonical, seed, block, nodes, ranks, workers, batch in CASES:
        epochs = []
        for epoch in range(3):
            ids = get_shuffle_py1e(np.array(sizes), canonical, seed, epoch, block)
            places = get_partitions_orig(
                sum(sizes), canonical, nodes, ranks, workers, batch
            )
            # workers of a rank give batches in turn
            dealt = places.transpose(0, 1, 3, 2, 4).reshape(nodes, ranks, -1)
            epochs.append(
                [
                    [[int(ids[p]) for p in rank if p >= 0] for rank in node]
                    for node in dealt
                ]
            )
        case = {
            "sizes": sizes,
            "canonical_nodes": canonical,
            "seed": seed,
            "block_size": block,
        }
        recorded.append(case | {"read": epochs})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in recorded)
    (HERE / "ranks.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
