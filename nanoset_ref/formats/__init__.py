"""Token ids in every format: open, describe, verify, convert; datatrove's .ds folders, read as they are."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
