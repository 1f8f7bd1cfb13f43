"""A training run: its YAML, data stages, processes and checkpoints.

Start it with `python -m nanoset_ref.train`.

strict_yaml, config_file       read the YAML file and report all its problems
config, data_config            the sections of the YAML file
stages, stage_rows             which data a run reads at each step; their rows, and a state's record
staged_loader                  the steps of one rank
parallel, model                the processes and sums over them; the sharded model and its loss
checkpoint, metrics, progress  saving, a log line per step, and progress on the terminal
run, train_command             the training loop with its learning rate, and the command
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
