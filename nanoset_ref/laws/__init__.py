"""The laws of loading: test any data loader as a black box.

    adapter         a user's description of a loader: `make`, `state_of` and its claims
    corpora         data whose rows identify themselves, in the formats that loaders read
    batch_rows      the rows in a batch
    runner          processes that run a loader, with a time limit
    findings        differences between the rows read and the rows expected
    trial           runs a loader in one case, with changes
    rules           the laws, one function each
    case_search     hypothesis looks for a case that breaks a law, and shrinks it
    law_report      the result as text, HTML, JSON, a script and a badge
    laws_command    nanoset-ref laws
    pytest_plugin   a test of pytest for each law

`docs/laws_of_loading.md` explains each law. The laws import NumPy and the extra `laws`
(hypothesis), but neither torch nor numba.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
