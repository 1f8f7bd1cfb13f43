"""The caches of compiled kernels: no change of a source leaves a stale one."""

import ast
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_budget import MODULES, PACKAGE

from nanoset_ref import IdentityOrder, NanotronOrder, StatelessOrder, derive, permute
from nanoset_ref.io import njit as kernels
from nanoset_ref.megatron.indexes import build_mappings, plan_epochs

INLINED = (
    "from nanoset_ref.io.njit import njit\n\n\n@njit(cache=True)\ndef inner(x):\n    return x + 1\n"
)
KERNEL = """
from nanoset_ref.io.njit import njit
from nanoset_ref.inlined import inner


@njit(cache=True, nogil=True)
def outer(x):
    return 10 * inner(x)


if __name__ == "__main__":
    from nanoset_ref.kernel import outer

    print(outer(1), sum(outer.compiled.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_again_when_a_function_of_another_file_changes(tmp_path):
    """Also where size and time of the file stay as they were; and only then."""
    package = tmp_path / "nanoset_ref"
    package.mkdir()
    (package / "io").mkdir()
    (package / "__init__.py").touch()
    for name in ("njit.py", "compilation.py"):
        shutil.copy(Path(kernels.__file__).with_name(name), package / "io")
    inlined = package / "inlined.py"
    inlined.write_text(INLINED)
    (package / "kernel.py").write_text(KERNEL)

    def run():
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        environment.pop("NUMBA_CACHE_DIR", None)
        command = [sys.executable, "-B", "-m", "nanoset_ref.kernel"]
        return subprocess.check_output(command, env=environment, text=True, cwd=tmp_path).split()

    assert [run(), run()] == [["20", "0"], ["20", "1"]]
    before = inlined.stat()
    inlined.write_text(INLINED.replace("x + 1", "x + 5"))
    os.utime(inlined, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [run(), run()] == [["60", "0"], ["60", "1"]]


def test_every_kernel_takes_its_cache_and_its_functions_from_files_that_count():
    """Otherwise a change would not be seen: what a kernel uses of this package comes from files with kernels too."""
    marked = {module for module in MODULES if kernels.MARK in module.path.read_bytes()}
    homes = {
        ".".join(["nanoset_ref", *module.path.relative_to(PACKAGE).with_suffix("").parts])
        for module in marked
    }
    assert len(marked) > 12
    for module in MODULES:
        names = {node.attr for node in module.nodes if isinstance(node, ast.Attribute)} | {
            *module.imports
        }
        assert module.room == "io" or not names & {
            "njit",
            "jit",
            "numba.njit",
            "numba.jit",
        }, module.name
    for module in marked:
        imported = {
            alias.asname or alias.name: node.module
            for node in module.nodes
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nanoset_ref.")
            for alias in node.names
        }
        for function in [node for node in module.nodes if isinstance(node, ast.FunctionDef)]:
            if any("njit" in ast.unparse(decorator) for decorator in function.decorator_list):
                used = {
                    node.id
                    for stmt in function.body
                    for node in ast.walk(stmt)
                    if isinstance(node, ast.Name)
                }
                assert {imported[name] for name in used & imported.keys()} <= homes, function.name


def test_numbas_own_caches_stay_as_they_are():
    assert numba.core.caching.FunctionCache._impl_class is numba.core.caching.CompileResultCacheImpl
    assert "_StampedCache" not in repr(type(numba.njit(cache=True)(lambda x: x)._cache))
    assert kernels.njit(lambda x: x + 1)(1) == 2


LENGTHS = st.lists(st.integers(1, 2000), min_size=1, max_size=5)


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 3000), st.data())
def test_kernels_give_the_same_in_python_as_compiled(lengths, seed, weighted, size, data):
    """What orders read, and where it is read: a question is answered by either, depending on how much was asked."""
    shares = st.lists(st.floats(0.01, 9), min_size=len(lengths), max_size=len(lengths))
    weights = data.draw(shares) if weighted else None
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=30)), dtype=np.int64)
    source = data.draw(st.integers(0, len(lengths) - 1))
    answers = []
    for most in (0, 2**40):
        answers.append([])
        with plain_up_to(most):
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
        with plain_up_to(most):
            answers.append(build_mappings(lengths, 0, 20, plan, 2**24, 1)["sample_index"].tolist())
    assert answers[0] == answers[1]


@contextlib.contextmanager
def plain_up_to(most):
    """Every kernel forgets what it compiled, and has this much to do before it is compiled again."""
    modules = [module for name, module in sys.modules.items() if name.startswith("nanoset_ref")]
    every = {
        it for module in modules for it in vars(module).values() if isinstance(it, kernels.Kernel)
    }
    compiled = {kernel: kernel._compiled for kernel in every}
    before = kernels.PLAIN_WORK
    kernels.PLAIN_WORK = most
    for kernel in every if most else ():
        kernel._compiled = None
    try:
        yield
    finally:
        kernels.PLAIN_WORK = before
        for kernel in every if most else ():
            kernel._compiled = compiled[kernel]


def test_a_kernel_is_compiled_once_it_was_given_enough_to_do(monkeypatch):
    monkeypatch.setattr(kernels, "PLAIN_WORK", 10)
    double = kernels.njit(work=lambda x: 4)(lambda x: x * 2)
    assert [double(3), double(3)] == [6, 6]
    assert double._compiled is None
    assert double(3) == 6
    assert double._compiled is not None


def test_words_wrap_around_in_python_too_and_numbers_are_pythons():
    with plain_up_to(2**40):
        assert derive(2**64 - 1, 2**64 - 1) == derive.compiled(2**64 - 1, np.uint64(2**64 - 1))
        assert type(permute(3, 10, 7)) is int
