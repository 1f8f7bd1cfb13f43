"""Record what grain returns: python record.py, with grain 0.2.18. Writes shuffles.json beside itself."""

import json
import pathlib

import grain
import numpy as np

HERE = pathlib.Path(__file__).parent
SHUFFLES = [(1, 3), (2, 0), (5, 7), (100, 42), (257, 2**32 - 1), (1000, 1)]  # n, seed
LONG = [65536, 65537, 65538, 100_003, 262_145, 2**20, 5_000_000, 2**31 + 11, 2**40 + 1]


def main():
    shuffles = []
    for size, seed in SHUFFLES:
        dataset = grain.MapDataset.range(size).shuffle(seed=seed).repeat()
        read = [int(dataset[i]) for i in range(min(3 * size, 400))]
        shuffles.append(
            {
                "samples": size,
                "seed": seed,
                "places": list(range(len(read))),
                "read": read,
            }
        )
    for size in LONG:
        seed = size % 1001
        dataset = grain.MapDataset.range(size).shuffle(seed=seed).repeat()
        places = sorted({*range(6), size - 1, size, 3 * size - 1})
        places += np.random.default_rng(0).integers(0, 4 * size, 50).tolist()
        read = [int(dataset[i]) for i in places]
        shuffles.append({"samples": size, "seed": seed, "places": places, "read": read})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in shuffles)
    (HERE / "shuffles.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
