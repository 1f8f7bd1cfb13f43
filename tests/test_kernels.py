"""The caches of compiled kernels: no change of a source leaves a stale one."""

import ast
import os
import shutil
import subprocess
import sys

import numba
from test_budget import MODULES, PACKAGE

from nanoset_ref.io import kernels

INLINED = "from nanoset_ref.io.kernels import njit\n\n\n@njit(cache=True)\ndef inner(x):\n    return x + 1\n"
KERNEL = """
from nanoset_ref.io.kernels import njit
from nanoset_ref.inlined import inner


@njit(cache=True, nogil=True)
def outer(x):
    return 10 * inner(x)


if __name__ == "__main__":
    from nanoset_ref.kernel import outer

    print(outer(1), sum(outer.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_again_when_a_function_of_another_file_changes(tmp_path):
    """Also where size and time of the file stay as they were; and only then."""
    package = tmp_path / "nanoset_ref"
    package.mkdir()
    (package / "io").mkdir()
    (package / "__init__.py").touch()
    shutil.copy(kernels.__file__, package / "io")
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
        assert module.name == "io/kernels.py" or not names & {
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
