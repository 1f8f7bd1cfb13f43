"""The caches of compiled kernels: no change of a source leaves a stale one."""

import ast
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core.caching import IndexDataCacheFile
from package_modules import MODULES, PACKAGE

from nanoset_ref.io import compilation
from nanoset_ref.io import njit as kernels

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
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.chdir(line.removesuffix("\\n"))  # whose modules are found first
        runpy.run_module("nanoset_ref.kernel", run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("it failed", flush=True)
"""


@pytest.fixture(scope="module")
def forks():
    """A process that has imported numba and compiled with it, and is forked for each folder that it is given."""
    environment = dict(os.environ)
    environment.pop("NUMBA_CACHE_DIR", None)
    with subprocess.Popen(
        [sys.executable, "-B", "-c", FORKS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.fixture
def run(package, forks):
    """A function: what the kernel returns, and how many compiled functions came from the cache."""

    def run_once():
        forks.stdin.write(f"{package.parent}\n")
        forks.stdin.flush()
        return forks.stdout.readline().split()

    return run_once


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
