"""Where the tokens of a step come from, when a document is read, whether a run keeps the laws."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
