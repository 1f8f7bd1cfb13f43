"""A training run: its YAML, its stages of data, its processes and checkpoints. `python -m nanoset_ref.train` starts it.

config, strict_yaml     the YAML file, checked
stages                  which data a run reads from which step on, and the steps of one rank
parallel, model         the processes, and a model spread over them
checkpoint, metrics     what is kept of a run: its state, and a line for each step
progress                what a run says while it trains
run                     all of it together
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
