"""The laws of loading: put any data loader to the test as a black box.

    adapter      how a user describes a loader: `make`, `state_of` and what it claims
    corpora      data whose rows name themselves, in the formats that loaders read
    identity     which rows a batch holds
    players      processes that run a loader, with a time limit
    findings     what differs between what was read and what should have been
    rules        the laws, one function each
    searching    hypothesis looks for a case that breaks a law, and shrinks it
    law_report   the answer as text, HTML, JSON, a script and a badge

`docs/laws_of_loading.md` explains each law. Needs NumPy and the extra `laws` (hypothesis), and not torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
