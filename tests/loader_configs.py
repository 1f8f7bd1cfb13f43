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

NANOTRON = """
data_stages:
- name: stable
  start_training_step: 1
  data:
    dataset:
      dataset_folder: [{folder}/a, {folder}/b/]
      dataset_weights: [0.3, 0.7]
      token_size_in_bytes: 2
    seed: 6
- name: decay
  start_training_step: 5
  data:
    dataset:
      dataset_folder: [{folder}/b/, {folder}/a]
      dataset_weights: [0.5, 0.5]
      token_size_in_bytes: 2
    seed: 6
parallelism: {{dp: 2, pp: 1, tp: 4}}
tokens:
  sequence_length: 8
  train_steps: 9
  micro_batch_size: 1
  batch_accumulation_per_replica: 2
"""


def card(tmp_path, loader, text, name="config", **given):
    path = tmp_path / name
    path.write_text(text)
    values = {key: str(value) for key, value in given.items()}
    return card_of_config(path, loader, "run", "2026-11", values)
