"""What tests of kernels share: Python or compiled code, as the test says."""

import contextlib
import sys

from nanoset_ref.io import njit as kernels


@contextlib.contextmanager
def python_up_to(most):
    """Every kernel forgets what it compiled, and has this much to do before it is compiled again."""
    modules = [
        module for name, module in sys.modules.items() if name.startswith("nanoset_ref")
    ]
    every = {
        it
        for module in modules
        for it in vars(module).values()
        if isinstance(it, kernels.Kernel)
    }
    compiled = {kernel: kernel._compiled for kernel in every}
    before = kernels.PYTHON_WORK
    kernels.PYTHON_WORK = most
    for kernel in every if most else ():
        kernel._compiled = None
    try:
        yield
    finally:
        kernels.PYTHON_WORK = before
        for kernel in every if most else ():
            kernel._compiled = compiled[kernel]
