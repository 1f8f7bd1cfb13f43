"""The caches of compiled kernels: no change of a source leaves a stale one."""

import ast
import contextlib
import copy
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.caching import IndexDataCacheFile
from test_budget import MODULES, PACKAGE

from nanoset_ref import (
    IdentityOrder,
    NanotronOrder,
    StatelessOrder,
    derive,
    permute,
    unpermute,
)
from nanoset_ref.io import compilation
from nanoset_ref.io import njit as kernels
from nanoset_ref.load import document_masks, joined_rows
from nanoset_ref.megatron import megatron_rows
from nanoset_ref.megatron.index import three_indexes
from nanoset_ref.megatron.index.three_indexes import build_mappings, plan_epochs
from nanoset_ref.orders import (
    base,
    greedy_blend,
    interleaving,
    mt19937,
    share_tree,
    stateless,
)

INLINED = (
    "from nanoset_ref.io.njit import njit\n\n\n@njit\ndef inner(x):\n    return x + 1\n"
)
KERNEL = """
from nanoset_ref.io.njit import njit
from nanoset_ref.inlined import inner


@njit
def outer(x):
    return 10 * inner(x)


if __name__ == "__main__":
    from nanoset_ref.kernel import outer

    print(outer(1), sum(outer.compiled.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path):
    """A package with a kernel that inlines a function of another file."""
    package = tmp_path / "nanoset_ref"
    package.mkdir()
    (package / "io").mkdir()
    (package / "__init__.py").touch()
    for name in ("njit.py", "compilation.py", "item_loops.py", "signals.py"):
        shutil.copy(Path(kernels.__file__).with_name(name), package / "io")
    (package / "inlined.py").write_text(INLINED)
    (package / "kernel.py").write_text(KERNEL)
    return package


FORKS = """
import os, runpy, sys
import numba
numba.njit(lambda x: x + 1)(1)
for _ in sys.stdin:
    child = os.fork()
    if not child:
        runpy.run_module("nanoset_ref.kernel", run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("it failed", flush=True)
"""


@pytest.fixture
def run(package):
    """A function: what the kernel returns, and how many compiled functions came from the cache.

    Each time in a process of its own, forked from one that has imported numba and compiled with it.
    """
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    environment.pop("NUMBA_CACHE_DIR", None)
    with subprocess.Popen(
        [sys.executable, "-B", "-c", FORKS],
        env=environment,
        cwd=package.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def run_once():
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().split()

        yield run_once


def change_inlined(package):
    inlined = package / "inlined.py"
    before = inlined.stat()
    inlined.write_text(INLINED.replace("x + 1", "x + 5"))
    os.utime(inlined, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_kernel_is_compiled_again_when_a_function_of_another_file_changes(
    package, run
):
    """Also where size and time of the file stay as they were; and only then."""
    assert [run(), run()] == [["20", "0"], ["20", "1"]]
    (code,) = package.glob("__pycache__/*outer*.nbc")
    old = code.read_bytes()
    change_inlined(package)
    assert [run(), run()] == [["60", "0"], ["60", "1"]]
    # numba writes the index first: a kill, or a full disk, may leave the old file of code
    code.write_bytes(old)
    assert [run(), run()] == [["60", "0"], ["60", "1"]]


def test_a_damaged_file_of_the_cache_is_written_again(package, run):
    run()
    for suffix, part in (("nbi", 0), ("nbi", 0.5), ("nbc", 0.5)):
        (path,) = package.glob(f"__pycache__/*outer*.{suffix}")
        size = path.stat().st_size
        os.truncate(path, int(part * size))
        assert run() == ["20", "0"], (suffix, part)
        assert path.stat().st_size == size
    assert run() == ["20", "1"]


def test_code_for_other_types_in_the_cache_is_compiled_again(monkeypatch, tmp_path):
    """Two processes that compile at once may both take a number of a file: one's index, the other's code."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for number in (7, 7.5):
        assert compilation.make_dispatcher(triple, {})(number) == 3 * number
    of_int, of_float = sorted(tmp_path.glob("**/*.nbc"))
    shutil.copy(of_int, of_float)
    for hits in (0, 1):
        dispatcher = compilation.make_dispatcher(triple, {})
        assert dispatcher(7.5) == 22.5
        assert dispatcher.stats.cache_hits.total() == hits


def test_a_cache_on_a_full_disk_costs_a_warning(monkeypatch, caplog, tmp_path):
    def fill(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(IndexDataCacheFile, "_save_data", fill)
    compilation._warn_of_no_cache.cache_clear()
    with caplog.at_level("WARNING", "nanoset_ref.io.compilation"):
        dispatcher = compilation.make_dispatcher(triple, {})
        assert [dispatcher(7), dispatcher(7.0)] == [21, 21.0]
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()


def triple(x):
    return 3 * x


def test_where_no_folder_can_be_written_a_kernel_is_compiled_without_a_cache(
    monkeypatch, caplog
):
    """A container's user without a home, and a package of root's."""

    def double(x):
        return 2 * x

    monkeypatch.setattr(compilation._ChecksummedImpl, "_locator_classes", [])
    compilation._warn_of_no_cache.cache_clear()
    with caplog.at_level("WARNING", "nanoset_ref.io.compilation"):
        kernels_without_cache = [
            compilation.make_dispatcher(double, {}) for _ in range(2)
        ]
    assert [kernel(21) for kernel in kernels_without_cache] == [42, 42]
    (record,) = caplog.records
    assert "set NUMBA_CACHE_DIR to a folder" in record.getMessage()


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


def test_every_kernel_takes_its_cache_and_its_functions_from_files_that_count():
    """Otherwise a change would not be seen: what a kernel uses of this package comes from files with kernels too."""
    marked = {
        module
        for module in MODULES
        if compilation.KERNEL_IMPORT in module.path.read_bytes()
    }
    homes = {
        ".".join(
            ["nanoset_ref", *module.path.relative_to(PACKAGE).with_suffix("").parts]
        )
        for module in marked
    }
    assert "nanoset_ref.io.compilation" in homes  # it has what `item_loops` compiles to
    homes.add("nanoset_ref.io.item_loops")
    assert len(marked) > 12
    for module in MODULES:
        names = {
            node.attr for node in module.nodes if isinstance(node, ast.Attribute)
        } | {*module.imports}
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
            if isinstance(node, ast.ImportFrom)
            and str(node.module).startswith("nanoset_ref.")
            for alias in node.names
        }
        for function in [
            node for node in module.nodes if isinstance(node, ast.FunctionDef)
        ]:
            if any(
                "njit" in ast.unparse(decorator)
                for decorator in function.decorator_list
            ):
                used = {
                    node.id
                    for stmt in function.body
                    for node in ast.walk(stmt)
                    if isinstance(node, ast.Name)
                }
                assert {imported[name] for name in used & imported.keys()} <= homes, (
                    function.name
                )


def test_numbas_own_caches_stay_as_they_are():
    assert (
        numba.core.caching.FunctionCache._impl_class
        is numba.core.caching.CompileResultCacheImpl
    )
    assert "_ChecksummedCache" not in repr(
        type(numba.njit(cache=True)(lambda x: x)._cache)
    )
    assert kernels.njit(lambda x: x + 1)(1) == 2


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


WORDS = st.sampled_from(
    [0, 1, 63, 64, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
) | st.integers(0, 2**64 - 1)
BIG = 2**31 - 1


def up_to(most):
    """Numbers of 0 .. most, often one at an edge."""
    edges = [
        edge for edge in (0, 1, 63, 64, 2**16, 2**31 - 1, 2**31, 2**32) if edge <= most
    ]
    return st.sampled_from([*edges, max(0, most - 1), most]) | st.integers(0, most)


def arrays_of(draw, dtype, size, most=None, least=0):
    """An array of `size` numbers, often at the edges of the dtype or of least .. most."""
    most = np.iinfo(dtype).max if most is None else most
    values = draw(st.lists(up_to(most - least), min_size=size, max_size=size))
    return np.array([least + value for value in values], dtype=dtype)


def permutation(draw):
    n = draw(up_to(2**48 - 1)) + 1
    return draw(up_to(n - 1)), n, draw(WORDS)


def tree_of(draw):
    """A tree of at most six sources, whose parts have the sum 2**48 or less."""
    parts = draw(st.lists(up_to(2**45), min_size=1, max_size=6).filter(any))
    return share_tree.build_tree(parts), [
        source for source, part in enumerate(parts) if part
    ]


def located(draw):
    tree, _ = tree_of(draw)
    epoch = draw(up_to(2**48 - 1)) + 1
    return tree, epoch, np.uint64(draw(WORDS)), arrays_of(draw, np.int64, 5, 2**48)


def looked_up(draw):
    tree, epoch, key, items = located(draw)
    reads = arrays_of(draw, np.int64, tree.sources, 2**48)
    lengths = arrays_of(draw, np.int64, tree.sources, 2**46, least=1)
    keys = np.array([draw(WORDS) for _ in range(tree.sources)], dtype=np.uint64)
    return tree, epoch, key, items, reads, lengths, keys


def found(draw):
    tree, readers = tree_of(draw)
    lengths = arrays_of(draw, np.int64, tree.sources, 2**40, least=1)
    sources = np.array(
        draw(st.lists(st.sampled_from(readers), max_size=3)), dtype=np.int64
    )
    samples = np.array(
        [draw(up_to(int(lengths[source]) - 1)) for source in sources], np.int64
    )
    reads = arrays_of(draw, np.int64, tree.sources, 2**44)
    keys = np.array([draw(WORDS) for _ in range(tree.sources)], dtype=np.uint64)
    passes = draw(st.integers(0, 3))  # few: Python takes a while for each
    until = passes * int(lengths.min())
    return tree, sources, samples, lengths, keys, reads, until


def shared(draw):
    tree, readers = tree_of(draw)
    return tree, draw(st.sampled_from(readers)), draw(up_to(2**48))


def numbered(draw):
    lengths = arrays_of(draw, np.int64, draw(st.integers(1, 5)), 2**40, least=1)
    kind = draw(st.sampled_from([np.uint32, np.uint64, np.int64]))
    most = min(int(lengths.sum()) - 1, np.iinfo(kind).max)
    return np.cumsum(lengths) - lengths, arrays_of(draw, kind, 5, most)


def blended(draw):
    most = draw(st.sampled_from([3, 2**40]))  # few lengths: many of equal weight
    count = draw(st.integers(1, 5) | st.integers(40, 60))
    lengths = arrays_of(draw, np.int64, count, most, least=1)
    weights = base.normalize_weights(lengths.tolist(), len(lengths))
    kind = draw(st.sampled_from([np.uint32, np.uint64]))
    firsts = np.cumsum(lengths) - lengths
    groups = greedy_blend.groups_of(weights, lengths)
    return lengths, weights, firsts, *groups, np.zeros(50, dtype=kind)


def blended_with_limits(draw):
    limits = arrays_of(draw, np.int64, draw(st.integers(1, 5)), 2**62)
    weights = base.normalize_weights([1 + it for it in limits.tolist()], len(limits))
    return weights, limits, draw(st.integers(0, 50))


def long_sequences(draw):
    """Lengths of sequences of up to 2**31 - 1 tokens, and the stream's length."""
    lengths = arrays_of(draw, np.int32, draw(st.integers(1, 5)), BIG, least=1)
    return lengths, int(lengths.sum(dtype=np.int64))


def cut(draw):
    lengths, tokens = long_sequences(draw)
    rows = draw(st.integers(1, 30))
    extra = draw(st.integers(0, 1))
    length = max(1, (tokens - extra) // rows)
    kind = draw(st.sampled_from([np.int32, np.int64]))
    order = np.array(draw(st.permutations(range(len(lengths)))), dtype=np.int32)
    return lengths, order, length, extra, np.zeros((rows + 1, 2), dtype=kind)


def located_pieces(draw):
    lengths, order, _, extra, cuts = arguments = cut(draw)
    three_indexes._cut_stream.py_func(*arguments)
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * itemsize
    kind = draw(st.sampled_from([np.uint32, np.int64]))
    shuffled = np.array(draw(st.permutations(range(len(cuts) - 1))), dtype=kind)
    samples = arrays_of(draw, np.int64, 4, len(shuffled) - 1)
    return (
        (order, cuts, shuffled),
        (lengths, pointers, itemsize),
        np.arange(4),
        samples,
        extra,
    )


def pieces_to_copy(draw):
    kind = draw(st.sampled_from([np.uint16, np.int32, np.int64]))
    tokens = arrays_of(draw, kind, 12)
    wide = np.int64 if kind == np.int64 else draw(st.sampled_from([np.int32, np.int64]))
    begin = draw(st.integers(0, 12))
    end = draw(st.integers(begin, 12))
    return tokens, np.array([[1, begin, end, 3]]), np.full((2, 15), -1, dtype=wide)


EDGES = {  # of every kernel that Python runs at first: it, and how its arguments are drawn
    "derive": (derive, lambda draw: (draw(WORDS), np.uint64(draw(WORDS)))),
    "permute": (permute, permutation),
    "unpermute": (unpermute, permutation),
    "source_at": (interleaving.source_at, located),
    "_lookup": (stateless._lookup, looked_up),
    "_find_items": (stateless._find_items, found),
    "share_of": (share_tree.share_of, shared),
    "pairs_of": (base.pairs_of, numbered),
    "blend": (greedy_blend.blend, blended),
    "blend_samples": (three_indexes.blend_samples, blended_with_limits),
    "_cut_stream": (three_indexes._cut_stream, cut),
    "_locate": (megatron_rows._locate, located_pieces),
    "copy_pieces": (joined_rows.copy_pieces, pieces_to_copy),
    "position_ids": (
        document_masks.position_ids,
        lambda draw: (arrays_of(draw, np.uint8, 12, 1).reshape(3, 4) == 1,),
    ),
}


def test_every_kernel_that_python_runs_at_first_is_among_those_whose_edges_are_tried():
    begun_in_python = {
        node.name
        for module in MODULES
        for node in module.nodes
        if isinstance(node, ast.FunctionDef)
        and any("work=" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert begun_in_python == EDGES.keys()


@pytest.mark.parametrize("name", EDGES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_kernel_gives_the_same_at_the_edges_in_python_as_compiled(name, data):
    """NumPy's small numbers stay small, and wrap around; numba widens them to 64 bits."""
    kernel, drawn = EDGES[name]
    arguments = drawn(data.draw)
    answers = []
    for most in (0, 2**40):
        given_to_kernel = copy.deepcopy(arguments)  # some are written to
        with python_up_to(most), np.errstate(all="raise", over="ignore"):
            answer = kernel(*given_to_kernel)
        answers.append(values_of((answer, given_to_kernel)))
    assert answers[0] == answers[1]


def values_of(answer):
    """Python's numbers, in lists, of numbers and arrays in tuples."""
    if isinstance(answer, tuple):
        return [values_of(part) for part in answer]
    return np.asarray(answer).tolist()


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
