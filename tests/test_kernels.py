"""Kernels run by Python at first, and compiled once they have enough to do: the answer is the same."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import python_up_to
from package_modules import PACKAGE

from nanoset_ref import (
    IdentityOrder,
    NanotronOrder,
    StatelessOrder,
    derive,
    permute,
)
from nanoset_ref.io import njit as kernels
from nanoset_ref.megatron.index.three_indexes import build_mappings, plan_epochs
from nanoset_ref.orders import mt19937


def test_a_kernel_is_compiled_once_it_was_given_enough_to_do(monkeypatch):
    monkeypatch.setattr(kernels, "PYTHON_WORK", 10)
    double = kernels.njit(work=lambda x: 4)(lambda x: x * 2)
    assert [double(3), double(3)] == [6, 6]
    assert double._compiled is None
    assert double(3) == 6
    assert double._compiled is not None


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_kernel_takes_arguments_by_name(is_compiled):
    divide = kernels.njit(work=lambda x, n: 1)(lambda x, n: x // n)
    if is_compiled:
        assert divide.compiled(7, 2) == 3
    assert divide(n=2, x=7) == divide(7, n=2) == divide(7, 2) == 3
    assert (divide._compiled is not None) == is_compiled
    with pytest.raises(TypeError, match="m"):
        divide(7, m=2)


def test_words_wrap_around_in_python_too_and_numbers_are_pythons():
    with python_up_to(2**40):
        assert derive(2**64 - 1, 2**64 - 1) == derive.compiled(
            2**64 - 1, np.uint64(2**64 - 1)
        )
        assert type(permute(3, 10, 7)) is int


LENGTHS = st.lists(st.integers(1, 2000), min_size=1, max_size=5)


@settings(max_examples=30, deadline=None)
@given(
    LENGTHS, st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 3000), st.data()
)
def test_kernels_give_the_same_in_python_as_compiled(
    lengths, seed, weighted, size, data
):
    """What orders read, and where it is read: a question is answered by either, depending on how much was asked."""
    shares = st.lists(st.floats(0.01, 9), min_size=len(lengths), max_size=len(lengths))
    weights = data.draw(shares) if weighted else None
    positions = np.array(
        data.draw(st.lists(st.integers(0, size - 1), max_size=30)), dtype=np.int64
    )
    source = data.draw(st.integers(0, len(lengths) - 1))
    answers = []
    for most in (0, 2**40):
        answers.append([])
        with python_up_to(most):
            for kind in (StatelessOrder, NanotronOrder, IdentityOrder):
                if weighted and kind is IdentityOrder:
                    continue
                order = kind(lengths, weights, min(size, sum(lengths)), seed)
                at = positions % len(order)
                sample = int(seed % lengths[source])
                found = [
                    *order.lookup(at),
                    order.positions(source, sample),
                    order.counts(len(order)),
                ]
                answers[-1].append([it.tolist() for it in found])
    assert answers[0] == answers[1]


def test_a_stream_of_more_than_2_31_tokens_is_cut_the_same_in_python_as_compiled():
    """Few long documents: little work, so Python does it, with NumPy's numbers of 32 bits."""
    lengths = np.full(20, 2**28 + 1, dtype=np.int32)
    plan = plan_epochs(int(lengths.sum(dtype=np.int64)), 300, 2**24)
    answers = []
    for most in (0, 2**40):
        with python_up_to(most):
            answers.append(
                build_mappings(lengths, 0, 20, plan, 2**24, 1)["sample_index"].tolist()
            )
    assert answers[0] == answers[1]


INTERRUPTED_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from nanoset_ref.orders.mt19937 import temper


class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numba.core.typing":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupt())
try:
    temper(1)
except KeyboardInterrupt:
    print("interrupted")
print(temper(1))
"""


def test_ctrl_c_while_numba_is_imported_leaves_kernels_that_can_be_called():
    """A module that was imported by half cannot be imported again: Jupyter would need a new kernel."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (
        f"interrupted\n{mt19937.temper.py_func(1)}\n",
        "",
    )


def test_without_compiled_code_rows_are_refused_with_the_way_out(tmp_path):
    """NUMBA_DISABLE_JIT, for a debugger: numba said that an intrinsic is not usable."""
    np.arange(50_001, dtype="<u2").tofile(tmp_path / "a.npy")
    code = (
        "from nanoset_ref import Nanoset; Nanoset('a.npy', None, 5).read(range(5000))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    assert "RuntimeError: rows are read by a kernel" in done.stderr
    assert "NUMBA_DISABLE_JIT: unset it" in done.stderr
