"""Workers that start quickly wherever processes are not forked by default."""

import multiprocessing
import sys
from pathlib import Path

import pytest
from ranks import start_server

sys.path.insert(
    0, str(Path(__file__).parent)
)  # for stream_helpers, here and in workers


@pytest.fixture(autouse=True, scope="module")
def quick_workers():
    method = multiprocessing.get_start_method()
    if method == "fork":
        yield
        return
    start_server()  # which has imported torch already
    multiprocessing.set_start_method("forkserver", force=True)
    yield
    multiprocessing.set_start_method(method, force=True)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Six files, each one block."""
    from stream_helpers import LENGTHS, write_text  # once they can be imported

    return write_text(tmp_path_factory.mktemp("text"), LENGTHS, files=6)
