"""The Megatron-style pipeline: .bin/.idx corpora, and samples cut from shuffled documents, bit for bit those of
Megatron-Core.

The public names stand in `__init__.pyi` and are imported when they are asked for: preprocessing never loads torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
