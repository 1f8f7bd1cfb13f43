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
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
