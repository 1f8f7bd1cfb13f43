"""The Megatron-style pipeline: samples cut from the shuffled documents of .bin/.idx corpora.

They are bit for bit equal to Megatron-Core's samples. The public names are listed in `__init__.pyi`
and imported on first use, so that preprocessing never loads torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
