"""Record what OLMo-core returns: python record.py, with ai2-olmo-core 3.0.0. Writes chunks.json beside itself."""

import json
import pathlib
import tempfile

import numpy as np
from olmo_core.data import NumpyDataLoaderConfig, NumpyFSLDatasetConfig, TokenizerConfig
from olmo_core.data.collator import DataCollator

HERE = pathlib.Path(__file__).parent
CASES = [  # tokens of the files, S, max_target, seed, rows in a batch, epochs
    ([530, 9, 203, 16, 401], 8, 16, 34521, 4, 1),
    ([530, 9, 203, 16, 401], 8, 16, 34521, 5, 3),
    ([45960, 24676, 36864, 16384], 256, 1024, 0, 6, 2),
    ([1000, 31, 33, 900], 4, 32, 7, 16, 3),
    ([640, 650], 8, 8, 1, 7, 2),
    ([640, 650], 8, None, 1, 7, 2),
]


def record(sizes, length, target, seed, batch, epochs):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, size in enumerate(sizes):
            paths.append(f"{folder}/{number}.npy")
            (np.arange(size) % 60000).astype(np.uint16).tofile(paths[-1])
        dataset = NumpyFSLDatasetConfig(
            paths=paths,
            tokenizer=TokenizerConfig(vocab_size=65000, eos_token_id=0, pad_token_id=0),
            sequence_length=length,
            max_target_sequence_length=target,
            dtype="uint16",
            work_dir=folder,
        ).build()
        loader = NumpyDataLoaderConfig(
            global_batch_size=batch * length, seed=seed, work_dir=folder
        ).build(dataset, collator=DataCollator(pad_token_id=0))
        read = []
        for epoch in range(1, epochs + 1):
            loader.reshuffle(epoch)
            read.append([index for step in loader for index in step["index"].tolist()])
            loader.reset()
        first_tokens = [int(dataset[i]["input_ids"][0]) for i in range(len(dataset))]
        files = [
            [path, begin, end] for path, (begin, end) in enumerate(dataset.offsets)
        ]
    return {
        "tokens": sizes,
        "sequence_length": length,
        "max_target_sequence_length": target,
        "seed": seed,
        "batch": batch,
        "first_instance_of_files": files,
        "first_token_of_instances": first_tokens,
        "read": read,
    }


if __name__ == "__main__":
    lines = ",\n".join(
        json.dumps(record(*case), separators=(",", ":")) for case in CASES
    )
    (HERE / "chunks.json").write_text(f"[\n{lines}\n]\n")
