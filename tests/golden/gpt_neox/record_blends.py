"""Record what GPT-NeoX's blends return: python record_blends.py SOURCE, as record.py, which has written corpus.bin."""

import json
import sys
import tempfile
import types

import numpy as np
from record import HERE, load

CORPORA = ("corpus", "second", "third")
CASES = [  # weights, samples asked for, S, seed
    ([0.5, 0.3, 0.2], 100, 7, 1234),
    ([1.0, 1.0, 1.0], 300, 5, 3),
    ([0.9, 0.05, 0.05], 200, 4, 2**32 - 1),
    (
        [3, 0.013, 1.7],
        400,
        3,
        77,
    ),  # the second corpus is asked for more rows than it has
    ([0.2, 0.8], 64, 16, 0),
    ([1.0], 90, 7, 5),
]


def main():
    load(sys.argv[1])
    online = types.ModuleType("megatron.data.online_dataset")
    online.OnlineDataset = None
    sys.modules["megatron.data.online_dataset"] = online
    from megatron.data import data_utils, indexed_dataset

    rng = np.random.default_rng(12)
    for name, documents in (("second", 9), ("third", 25)):
        builder = indexed_dataset.make_builder(
            f"{HERE}/{name}.bin", "mmap", vocab_size=50257
        )
        for length in rng.integers(1, 40, documents).tolist():
            builder.add_item(rng.integers(0, 50257, length).astype(np.uint16))
            builder.end_document()
        builder.finalize(f"{HERE}/{name}.idx")
    arrays = {}
    for number, (weights, samples, length, seed) in enumerate(CASES):
        shares, counts = data_utils.get_normalized_weights_and_num_samples(
            weights, samples
        )
        data_utils.make_indexed_dataset = lambda prefix, *_: (
            indexed_dataset.make_dataset(
                f"{HERE}/{prefix.rpartition('/')[2]}", "mmap", True
            )
        )
        with tempfile.TemporaryDirectory() as folder:  # where it keeps its mappings
            datasets = [
                data_utils.build_the_dataset(
                    *(
                        f"{folder}/{name}",
                        None,
                        None,
                        "train",
                        "mmap",
                        "packed",
                        "gpt2",
                        True,
                    ),
                    *(count, None, length, seed, True),
                )
                for name, count in zip(CORPORA, counts, strict=False)
            ]
            blend = data_utils.BlendableDataset(datasets, shares)
            arrays[f"{number}/dataset_index"] = blend.dataset_index
            rows = [blend[i]["text"] for i in range(len(blend))]
            arrays[f"{number}/rows"] = np.array(rows).astype(np.uint16)
    np.savez_compressed(HERE / "blends.npz", **arrays)
    names = "weights", "num_samples", "sequence_length", "seed"
    lines = ",\n".join(
        json.dumps(dict(zip(names, case, strict=True))) for case in CASES
    )
    (HERE / "blends.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
