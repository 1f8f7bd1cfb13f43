"""The YAML of a training run as a tree, for tests that change a part of it."""

from __future__ import annotations

from typing import Any

GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 300, "n_positions": 32}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}


def run_tree(
    folder: Any,
    stages: list[Any],
    *,
    steps: int,
    length: int,
    rows: int = 2,
    accumulation: int = 1,
    model: dict[str, Any] = GPT2,
    interval: int = 1,
    **parallelism: int,
) -> dict[str, Any]:
    """Stages are (name, first step, the fields of `dataset`, the other fields of `data`)."""
    return {
        "data_stages": [
            {"name": name, "start_training_step": start, "data": {"dataset": dataset, **data}}
            for name, start, dataset, data in stages
        ],
        "tokens": {
            "sequence_length": length,
            "train_steps": steps,
            "micro_batch_size": rows,
            "batch_accumulation_per_replica": accumulation,
        },
        "parallelism": parallelism,
        "model": {"model_config": model},
        "checkpoints": {"checkpoints_path": str(folder), "checkpoint_interval": interval},
        "optimizer": {"learning_rate_scheduler": {"learning_rate": 0.01, "lr_warmup_steps": 5}},
    }
