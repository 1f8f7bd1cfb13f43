"""Record what modded-nanogpt reads: python record.py FILE, its train_gpt.py of f411b3d3, with torch and NumPy.

Its own class Shard is taken out of that file and walks shards of given sizes. Writes pieces.json beside itself.
"""

import json
import pathlib
import sys
import threading

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
BOS = 50256
CASES = [  # tokens of the shards, tokens of a rank in a step, longest piece, ranks, mean length of a document
    ([4000, 3000], 300, 100, 2, 40),
    ([4000, 3000, 5000], 256, 1000, 4, 60),
    ([6000], 512, 64, 1, 200),
    ([9000, 400, 9000], 333, 128, 8, 20),
]


def main():
    source = pathlib.Path(sys.argv[1]).read_text()
    begin, end = source.index("class Shard:"), source.index("def get_bigram_hash")
    names = {
        "torch": torch,
        "Tensor": torch.Tensor,
        "threading": threading,
        "Path": pathlib.Path,
    }
    names |= {"np": np, "BOS_ID": BOS}
    exec(source[begin:end], names)
    cases = []
    rng = np.random.default_rng(5)
    for sizes, room, longest, ranks, mean in CASES:
        files, read = [], []
        for file, size in enumerate(sizes):
            begins = np.flatnonzero(rng.random(size) < 1 / mean)
            tokens = np.zeros(size, dtype=np.int64)
            tokens[begins] = BOS
            files.append(begins.tolist())
            shard = names["Shard"](torch.from_numpy(tokens), ranks)
            shard._ready.wait()
            while True:
                try:
                    starts, ends = shard.next_batch(room, longest)
                except StopIteration:
                    break
                pieces = [
                    [[file, int(a), int(b)] for a, b in zip(*pair, strict=True)]
                    for pair in zip(starts, ends, strict=True)
                ]
                read.append(pieces)
        given = {
            "tokens": sizes,
            "tokens_per_rank": room,
            "max_length": longest,
            "ranks": ranks,
        }
        cases.append(
            json.dumps(given | {"begins": files, "read": read}, separators=(",", ":"))
        )
    (HERE / "pieces.json").write_text("[\n" + ",\n".join(cases) + "\n]\n")


if __name__ == "__main__":
    main()
