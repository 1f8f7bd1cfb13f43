"""What works with the core alone: numpy, numba, torch, xxhash, lazy_loader, and what these need.

A subprocess refuses every other package, as if it were not installed.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from package_modules import MODULES
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nanoset_ref import TokenFileWriter
from nanoset_ref.cli import COMMANDS
from nanoset_ref.tokens import convert, open_tokens

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())[
    "project"
]
CORE = {"numpy", "numba", "torch", "xxhash", "lazy-loader"}
# distributions that are called otherwise than what is imported of them
DISTRIBUTIONS = {
    "ruamel": "ruamel-yaml",
    "llvmlite": "numba",
    "megatron": "megatron-core",
    "google": "protobuf",
}
REFUSING = """
import importlib.abc, sys

ALLOWED = set({allowed!r})

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
{code}
"""


def required(names: set[str]) -> set[str]:
    """The distributions with these names, and those that they need themselves."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another platform
            continue
        found.add(name)
        needs = [Requirement(line) for line in lines]
        waiting += [
            need.name for need in needs if not need.marker or need.marker.evaluate()
        ]
    return found


def importable(distributions: set[str]) -> list[str]:
    """What can be imported of these distributions, of the standard library and of this package."""
    names = {"nanoset_ref", "torchgen", "functorch", *sys.stdlib_module_names}
    for name, owners in metadata.packages_distributions().items():
        if distributions & {canonicalize_name(owner) for owner in owners}:
            names.add(name)
    return sorted(names)


ALLOWED = importable(required(CORE))


def run_with_core(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = REFUSING.format(allowed=ALLOWED, code=code)
    return subprocess.run(
        [sys.executable, "-W", "ignore::UserWarning", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .npy token file of 40 documents, and the same as a .bin/.idx pair and a .ds file."""
    folder = tmp_path_factory.mktemp("core")
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 30, 40)
    ids = generator.integers(1, 100, lengths.sum()).astype(np.uint16)
    ids[np.cumsum(lengths) - 1] = 0
    with TokenFileWriter(
        folder / "a.npy", dtype=np.uint16, vocab_size=100, eos_token_id=0, tokenizer="t"
    ) as writer:
        writer.write(ids, lengths)
    for name in ("b.bin", "c.ds"):
        convert([open_tokens(folder / "a.npy")], folder / name)
    return folder


READING = """
import numpy as np
from nanoset_ref import *
from nanoset_ref.megatron import MegatronCollator, NanosetBuilder, NanosetConfig
from nanoset_ref.provenance import RunSegment

np.save("order.npy", np.arange(8, dtype=np.uint32))
for order in ("nanotron", "stateless", "identity"):
    weights = None if order == "identity" else [0.5, 0.3, 0.2]
    dataset = Nanoset(["a.npy", "b.bin", "c.ds"], weights, 8, 48, order=order)
    documents = DocumentOptions(reset_position_ids=True, eod_mask_loss=True)
    loader = build_nanoset_dataloader(dataset, micro_batch_size=12, documents=documents)
    assert [tuple(batch["position_ids"].shape) for batch in loader] == [(12, 8)] * 4
    schedule = Schedule(dp_size=2, micro_batch_size=3)
    assert len(where(dataset, schedule, 1)) == 6 and when(dataset, schedule, 0)
    assert audit([RunSegment("run", dataset, schedule, 8)]).segments
packed = PackedNanoset(["a.npy"], None, 32, pad_id=0)
assert len(packed[0]["input_ids"]) == 33
config = NanosetConfig(
    random_seed=1, sequence_length=8, data_path=["b"], split="1,0,0", eos_token_id=0, eod_mask_loss=True
)
train = NanosetBuilder(config).build(["train"])[0]
print("read", len(train))
"""


def test_the_core_reads_every_format_in_every_order_and_packs_masks_and_audits(folder):
    done = run_with_core(READING, folder)
    assert done.stdout.startswith("read "), done.stderr


COMMAND_LINES = """
inspect a.npy
inspect b.bin
inspect c.ds --eos-token-id 0
verify a.npy b.bin c.ds
convert a.npy d.bin --overwrite
convert b.bin e.ds --overwrite
merge a.npy d.bin f.npy --overwrite
split f.npy g.npy h.npy --held-out 3 --overwrite
where --data a.npy b --order stateless --sequence-length 8 --step 1
where --data b --sequence-length 8 --step 1
when --data a.npy --sequence-length 8 --document 3
audit --data a.npy c.ds --sequence-length 8 --micro-batch-size 2
audit --data a.npy --order identity --sequence-length 8 --micro-batch-size 2
estimate --data a.npy --sequence-length 8 --tokens-per-second 5
index --data-path b --split 1,0,0 --sequence-length 8 --path-to-cache cache
train --example tokens
"""


def test_the_core_carries_out_every_command_on_token_files(folder):
    lines = COMMAND_LINES.strip().splitlines()
    code = "\n".join(
        [
            "from nanoset_ref.cli import main",
            f"for line in {lines!r}:",
            "    code = main(line.split())",
            "    assert code == 0, (line, code)",
        ]
    )
    done = run_with_core(code, folder)
    assert done.returncode == 0, done.stderr


HELP = """
from nanoset_ref.cli import main

heavy = set()
for words in {lines!r}:
    assert main([*words, "--help"]) == 0, words
    loaded = {{"torch", "numba", "transformers"}} & set(sys.modules)
    assert not loaded, (words, loaded)
"""


def test_every_help_works_with_the_core_and_loads_neither_torch_nor_numba(tmp_path):
    steps = ("download", "tokenize", "mix", "validate", "convert")
    lines = [[name] for name in COMMANDS] + [["chunks", step] for step in steps] + [[]]
    done = run_with_core(HELP.format(lines=lines), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(lines)


def test_help_of_each_module_as_a_program(tmp_path):
    code = """
import runpy
sys.argv[1:] = ["--help"]
for module in ("preprocess", "train", "chunks", "chunks.corpus", "megatron.index", "megatron.preprocess"):
    try:
        runpy.run_module(f"nanoset_ref.{module}", run_name="__main__")
    except SystemExit as end:
        assert end.code == 0, module
"""
    done = run_with_core(code, tmp_path)
    assert done.stdout.count("usage: ") == 6, done.stderr


TRAINING = ("train", "index", "merge", "split", "convert")


def test_no_command_that_only_looks_loads_torch_or_numba(folder):
    lines = [
        line
        for line in COMMAND_LINES.strip().splitlines()
        if not line.startswith(TRAINING)
    ]
    code = "\n".join(
        [
            "from nanoset_ref.cli import main",
            f"for line in {lines!r}:",
            "    assert main(line.split()) == 0, line",
            '    assert not {"torch", "numba", "transformers"} & {*sys.modules}, line',
        ]
    )
    done = run_with_core(code, folder)
    assert done.returncode == 0, done.stderr


MISSING = {
    "preprocess --input a.jsonl --output-prefix x --tokenizer-name-or-path t": "text",
    "megatron-preprocess --input a.jsonl --output-prefix x --tokenizer-model t": "text",
    "chunks download --out-root x --repo y": "text",
    "chunks tokenize --input-root in --out-root x --tokenizer t": "text",
    "chunks validate a.jsonl": "text",
    "train --config run.yaml": "train",
    "audit --config run.yaml": "train",
    "show --data a.npy --sequence-length 8 --sample 0": "text",
    "inspect a.npy --png a.png": "lab",
    "inspect s3://bucket/a.npy": "bucket",
}


def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(folder):
    (folder / "run.yaml").write_text("general: {}\n")
    (folder / "a.jsonl").write_text('{"text": "a"}\n')
    (folder / "in/part").mkdir(parents=True, exist_ok=True)
    (folder / "in/part/a.jsonl").write_text('{"text": "a"}\n')
    code = f"""
from nanoset_ref.cli import main
for line in {list(MISSING)!r}:
    assert main(line.split()) == 1
"""
    done = run_with_core(code, folder)
    lines = [line for line in done.stderr.splitlines() if ": error: " in line]
    assert (done.returncode, len(lines)) == (0, len(MISSING)), done.stderr
    for said, extra in zip(lines, MISSING.values(), strict=True):
        install = re.escape(f'pip install "nanoset_ref[{extra}]"')
        assert re.search(
            rf": error: .+ needs the package \S+, which is not installed: {install}$",
            said,
        )


def test_in_python_a_missing_extra_is_the_same_line(tmp_path):
    code = "from nanoset_ref import load_tokenizer; load_tokenizer('gpt2')"
    last = run_with_core(code, tmp_path).stderr.splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: a tokenizer needs the package transformers, which is not installed: "
        'pip install "nanoset_ref[text]"'
    )


def extra_imports(tree: ast.Module) -> Iterator[tuple[str | None, str]]:
    """(extra, package) of each import of a package that is neither ours, nor the core's, nor Python's; the extra is
    None where the import stands in no `with extra(...)`.
    """

    def visit(node: ast.AST, name: str | None) -> Iterator[tuple[str | None, str]]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.With):
            call = node.items[0].context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "extra":
                name = ast.literal_eval(call.args[0])
        imported: list[str] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported = [node.module]
        for package in {it.partition(".")[0] for it in imported}:
            distribution = canonicalize_name(DISTRIBUTIONS.get(package, package))
            is_ours = package == "nanoset_ref" or package in sys.stdlib_module_names
            if not is_ours and distribution not in CORE:
                yield name, distribution
        for child in ast.iter_child_nodes(node):
            yield from visit(child, name)

    yield from visit(tree, None)


PEERS = {
    "litdata",
    "streaming",
    "pytest",
}  # write their own formats for the laws; loads the plugin


def installed_by(extra: str) -> set[str]:
    """The distributions that an extra lists, those of the extras in it included."""
    found: set[str] = set()
    for line in PROJECT["optional-dependencies"][extra]:
        need = Requirement(line)
        if need.name == "nanoset_ref":
            found |= set().union(*map(installed_by, need.extras))
        else:
            found.add(canonicalize_name(need.name))
    return found


def test_every_optional_package_is_imported_under_an_extra_that_installs_it():
    wrong = [
        (module.name, extra, package)
        for module in MODULES
        if module.path.suffix == ".py"
        for extra, package in extra_imports(module.tree)
        if extra is None or package not in installed_by(extra)
        if package not in PEERS
    ]
    assert wrong == []


def test_the_core_is_five_packages_and_all_holds_the_extras_of_users():
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == {
        "numpy",
        "numba",
        "torch",
        "xxhash",
        "lazy_loader",
    }
    for extra in ("text", "train", "bucket", "lab", "gigatoken", "sentencepiece"):
        assert installed_by(extra) <= installed_by("all")
