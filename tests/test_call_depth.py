"""How deep a batch goes: how many functions, in how many files, a reader follows from the loader to the tokens."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import nanoset_ref
from nanoset_ref.io.njit import Kernel
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset

PACKAGE = Path(nanoset_ref.__file__).parent
BATCH, LENGTH = 8, 16


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Per batch, the functions of the package (not its compiled kernels) that run for it, as (file, name)."""
    from nanoset_ref.load import blocks, gather_kernel

    assert isinstance(gather_kernel.gather_rows, Kernel)

    monkeypatch.setattr(
        blocks, "BLOCK_BYTES", 4 * BATCH * (LENGTH + 1) * 4
    )  # four batches
    np.arange(10_001, dtype=np.uint16).tofile(tmp_path / "a.npy")
    monkeypatch.setattr("nanoset_ref.load.gather.MAX_PYTHON_ROWS", 0)
    monkeypatch.setattr("nanoset_ref.io.njit.PYTHON_WORK", 0)
    nanoset = Nanoset(tmp_path / "a.npy", None, LENGTH, 80 * BATCH)
    modules = [
        module for name, module in sys.modules.items() if name.startswith("nanoset_ref")
    ]
    kernels = {
        (called.__code__.co_filename, called.__name__)
        for module in modules
        for kernel in vars(module).values()
        if isinstance(kernel, Kernel)
        for called in (kernel.py_func, Kernel.__call__)
    }
    found: list[set[tuple[str, str]]] = []

    def record(frame, event, argument):
        place = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and PACKAGE in Path(place[0]).parents:
            found[-1].update({place} - kernels)

    batches = iter(build_nanoset_dataloader(nanoset, micro_batch_size=BATCH))
    for _ in range(
        20
    ):  # kernels are compiled, which takes minutes where every call is recorded
        next(batches)
    for _ in range(50):  # whole blocks, of a size that has occurred
        found.append(set())
        sys.setprofile(record)
        try:
            next(batches)
        finally:
            sys.setprofile(None)
    return found


def test_a_batch_that_needs_a_block_takes_ten_functions_in_seven_files(calls):
    longest = max(calls, key=len)
    assert len(longest) <= 10, sorted(longest)
    assert len({path for path, _ in longest}) <= 7, sorted(longest)


def test_a_batch_out_of_a_block_takes_four_functions(calls):
    lengths = sorted(map(len, calls))
    assert lengths[len(lengths) * 3 // 4 - 1] <= 4, "three batches of four"


def test_the_path_in_the_readme_is_the_one_that_is_taken(calls):
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    path = text.partition("A batch takes this path")[2].partition("A few rows")[0]
    named = {name for _, name in re.findall(r"\b([A-Z]\w+)\.(\w+)", path)}
    assert {"batches", "fill", "lookup", "split"} <= named
    assert named <= {name for _, name in max(calls, key=len)}
