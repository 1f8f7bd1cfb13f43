"""The YAML of a training run as a tree, for tests that change a part of it."""

import functools
import operator

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": 300,
    "n_positions": 32,
}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
}


def run_tree(
    folder,
    stages,
    *,
    steps,
    length,
    rows=2,
    accumulation=1,
    model=GPT2,
    interval=1,
    **parallelism,
):
    """Stages are (name, first step, the fields of `dataset`, the other fields of `data`)."""
    return {
        "data_stages": [
            {
                "name": name,
                "start_training_step": start,
                "data": {"dataset": dataset, **data},
            }
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
        "checkpoints": {
            "checkpoints_path": str(folder),
            "checkpoint_interval": interval,
        },
        "optimizer": {
            "learning_rate_scheduler": {"learning_rate": 0.01, "lr_warmup_steps": 5}
        },
    }


def put(tree, changes):
    """Change values in a tree by their paths, such as `data_stages.0.name`."""
    for path, value in changes.items():
        *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        functools.reduce(operator.getitem, way, tree)[last] = value
