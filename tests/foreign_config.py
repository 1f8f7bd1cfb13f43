"""Configs of other systems, and the card of one that is written to a file, for tests that change a part of it."""

from nanoset_ref.provenance import card_of_config

OLMO = {
    "dataset": {
        "_CLASS_": "olmo_core.data.numpy_dataset.NumpyFSLDatasetConfig",
        "sequence_length": 4,
        "max_target_sequence_length": 8,
        "tokenizer": {"vocab_size": 900, "identifier": "allenai/dolma2-tokenizer"},
    },
    "data_loader": {"global_batch_size": 16, "seed": 5},
    "trainer": {"max_duration": {"value": 90, "unit": "tokens"}},
}

MEGATRON = "--micro-batch-size 1 --global-batch-size 4 --train-iters 10 --seq-length 8"


def card(tmp_path, loader, text, name="config", **given):
    path = tmp_path / name
    path.write_text(text)
    values = {key: str(value) for key, value in given.items()}
    return card_of_config(path, loader, "run", "2026-11", values)
