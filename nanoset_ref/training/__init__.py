"""A training run: its YAML, its stages of data, its processes and checkpoints. `nanoset_ref.train` is the command."""
