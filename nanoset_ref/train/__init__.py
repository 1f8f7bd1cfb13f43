"""A training run: its YAML, data stages, processes and checkpoints. Start it with `python -m
nanoset_ref.train`.

strict_yaml, config_file       read the YAML file and report everything that is wrong with it
config, data_section           its sections
stages, staged_loader          which data a run reads from which step on; the steps of one rank
parallel, model                the processes, and the model sharded over them
checkpoint, metrics, progress  what a run saves, logs for each step, and prints while it trains
run, launch                    the training loop, and the command
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
