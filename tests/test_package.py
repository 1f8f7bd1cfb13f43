"""The public names are there, and importing the package costs nothing."""

import subprocess
import sys

import nanoset_ref


def test_every_public_name_can_be_had():
    for name in nanoset_ref.__all__:
        assert getattr(nanoset_ref, name).__name__ == name
        assert name in dir(nanoset_ref)


def test_a_process_that_only_tokenises_does_not_load_torch():
    code = "import sys, nanoset_ref.preprocess, nanoset_ref.tokens; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


TRAINERS_IMAGE = """
import importlib.abc, sys

ABSENT = "datasets huggingface_hub matplotlib pandas pyarrow tokenizers transformers".split()

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import nanoset_ref
from nanoset_ref import Nanoset, build_nanoset_dataloader, open_tokens
from nanoset_ref.cli import main
from nanoset_ref.megatron import MMapIndexedDatasetBuilder

np.arange(99, dtype=np.uint16).tofile("a_input_ids.npy")
open("x.jsonl", "w").write('{"text": "a"}\\n')
with MMapIndexedDatasetBuilder("b.bin", np.int32) as builder:
    builder.add_document(np.arange(99), [99])
for order in ("nanotron", "stateless"):
    dataset = Nanoset(["a_input_ids.npy", "b.bin"], None, 8, 24, order=order)
    print([tuple(batch["input_ids"].shape) for batch in build_nanoset_dataloader(dataset, micro_batch_size=12)])
print(main(["inspect", "a_input_ids.npy", "--eos-token-id", "7"]))
print(main(["preprocess", "--input", "x.jsonl", "--output-prefix", "x", "--tokenizer-name-or-path", "t"]))
"""


def test_reading_needs_no_library_of_texts_and_a_missing_one_is_named_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TRAINERS_IMAGE], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.count("[(12, 8), (12, 8)]") == 2, done.stderr
    assert done.stdout.endswith("0\n1\n")
    assert done.stderr.strip().endswith('pip install "nanoset_ref[text]"')
    assert done.stderr.count("\n") == 1
