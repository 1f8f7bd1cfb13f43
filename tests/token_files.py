"""Token files that follow a formula, those of the golden batches among them."""

import json

import numpy as np

from nanoset_ref.load.nanoset import Nanoset

GOLDEN = ["u16_single", "u16_three_none", "i32_two_weighted"]


def write_range(path, num_tokens, dtype="<u2", first=0):
    np.arange(first, first + num_tokens).astype(dtype).tofile(path)
    return path


def golden_nanoset(golden, folder, name):
    """The Nanoset of a recorded configuration: its token files follow a formula."""
    config = next(
        c
        for c in json.loads((golden / "nanoset_batches.json").read_text())["configs"]
        if c["name"] == name
    )
    paths = []
    for number, file in enumerate(config["files"]):
        ids = (
            np.arange(file["num_tokens"], dtype=np.int64) * 2654435761 + file["salt"]
        ) % config["vocab"]
        paths.append(folder / f"{number}_input_ids.npy")
        ids.astype(config["token_dtype"]).tofile(paths[-1])
    plan = [
        config[key]
        for key in ("weights", "sequence_length", "train_split_num_samples", "seed")
    ]
    return config, Nanoset(paths, *plan, token_dtype=config["token_dtype"])
