"""Record what OLMo-core packs: python record.py, with ai2-olmo-core 3.0.0. Writes beside itself."""

import json
import pathlib
import tempfile

import numpy as np
from olmo_core.data import (
    NumpyDataLoaderConfig,
    NumpyPackedFSLDatasetConfig,
    TokenizerConfig,
)
from olmo_core.data.collator import DataCollator
from olmo_core.data.types import LongDocStrategy

HERE = pathlib.Path(__file__).parent
CASES = [  # documents of each file, longest, S, files in a group, strategy, seeds of files and rows, rows in a batch
    ([40, 25, 33], 30, 16, 1, "truncate", None, 3, 4),
    ([40, 25, 33, 7, 12], 50, 32, 2, "fragment", 123, 34521, 4),
    ([60, 1, 44, 30, 9, 21, 50], 90, 64, 3, "truncate", 7, 0, 8),
    (
        [12, 14, 9],
        None,
        1024,
        2,
        "truncate",
        123,
        34521,
        2,
    ),  # no two lengths of a group agree
    ([11, 13], None, 512, 1, "fragment", None, 9, 2),
]


def write_files(folder, documents, longest, rng):
    """Files of ids 1, 2, 3, ... on; id 0 ends each document, and two ids of the last one have no end."""
    paths = []
    first = 1
    for number, count in enumerate(documents):
        if longest is None:
            lengths = rng.permutation(np.arange(3, 3 + 60 * count, 60)) + number + 1
        else:
            lengths = rng.integers(1, longest, count)
        ids = np.arange(first, first + lengths.sum() + 2)
        ids[np.cumsum(lengths) - 1] = 0
        first += len(ids)
        paths.append(f"{folder}/{number}.npy")
        ids.astype(np.uint16).tofile(paths[-1])
    return paths


def record(case, rng, arrays, number):
    documents, longest, length, group, strategy, permutation, seed, batch = case
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(folder, documents, longest, rng)
        dataset = NumpyPackedFSLDatasetConfig(
            paths=paths,
            tokenizer=TokenizerConfig(vocab_size=65000, eos_token_id=0, pad_token_id=0),
            sequence_length=length,
            dtype="uint16",
            work_dir=folder,
            long_doc_strategy=LongDocStrategy(strategy),
            source_group_size=group,
            source_permutation_seed=permutation,
        ).build()
        config = NumpyDataLoaderConfig(
            global_batch_size=batch * length, seed=seed, work_dir=folder
        )
        loader = config.build(dataset, collator=DataCollator(pad_token_id=0))
        read = []
        for epoch in (1, 2):
            loader.reshuffle(epoch)
            read.append([index for step in loader for index in step["index"].tolist()])
            loader.reset()
        rows = [dataset[i]["input_ids"].numpy() for i in range(len(dataset))]
        arrays[f"{number}/rows"] = np.array(rows, dtype=np.uint16)
        for file, path in enumerate(paths):
            arrays[f"{number}/file{file}"] = np.fromfile(path, dtype=np.uint16)
        groups = [dataset.paths[i : i + group] for i in range(0, len(paths), group)]
        for place, members in enumerate(groups):
            cached = dataset._get_document_indices_path(*members)
            indices = np.fromfile(cached, dtype=np.uint64).reshape(-1, 2)
            arrays[f"{number}/document_indices{place}"] = indices
    names = (
        "sequence_length",
        "group_size",
        "strategy",
        "permutation_seed",
        "seed",
        "batch",
    )
    facts = dict(zip(names, case[2:], strict=True))
    files = [paths.index(path) for path in dataset.paths]
    return facts | {"files": files, "read": read}


if __name__ == "__main__":
    rng = np.random.default_rng(17)
    arrays = {}
    recorded = [record(case, rng, arrays, number) for number, case in enumerate(CASES)]
    np.savez_compressed(HERE / "packed.npz", **arrays)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in recorded)
    (HERE / "packed.json").write_text(f"[\n{lines}\n]\n")
