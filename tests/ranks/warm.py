"""Imported once by the server that the ranks are forked from: everything that is slow the first time."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import nanoset_ref.train.run  # noqa: F401
from nanoset_ref.load.nanoset import Nanoset

torch.set_num_threads(1)  # no thread may run in a process that is forked
for name in ("llama", "gpt2"):
    config = AutoConfig.for_model(
        name, hidden_size=8, num_attention_heads=1, num_hidden_layers=1
    )
    with torch.device("meta"):
        AutoModelForCausalLM.from_config(config)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "a_input_ids.npy"
    np.arange(100, dtype="<u2").tofile(path)
    for order in ("nanotron", "stateless"):
        Nanoset([path], [1.0], 4, 10, order=order)[0]
