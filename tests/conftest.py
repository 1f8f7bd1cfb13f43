"""Fixtures that every test may use: the golden vectors of the real systems, and some real text."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

# the first example compiles; a hundred examples each took the suite beyond its quarter of an hour
settings.register_profile(
    "patient",
    deadline=None,
    max_examples=75,
    # a process that waits half a minute for a core draws them slowly
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")

HERE = Path(__file__).parent

# Of the files that take longest, longest first: what is begun last should be short, or one of two processes waits.
LONGEST = """
tests/test_notebooks.py tests/laws/test_our_loaders.py tests/training/test_train_kills.py tests/test_kills.py
tests/laws/test_planted_faults.py tests/test_executors.py notebooks/06_training_run.ipynb tests/test_trainers_page.py
tests/test_training_data.py tests/test_kernel_edges.py tests/laws/test_verdicts.py tests/test_tokenization.py
notebooks/12_subsets_to_chunks.ipynb tests/test_course_facts.py tests/streaming/test_trainers.py
tests/test_ownership.py tests/test_planner.py tests/training/test_train_errors.py
notebooks/01_quickstart.ipynb notebooks/09_document_masks.ipynb tests/test_order_statistics.py
tests/test_readme.py tests/streaming/test_stream_resume.py notebooks/17_does_the_order_matter.ipynb
tests/test_combinations.py tests/streaming/test_iterable.py tests/laws/test_laws.py
""".split()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "slow: takes half a minute or more; `-m slow` runs it"
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out the tests of what this system or this Python does not have, and slow ones that are
    not asked for. Nothing is skipped.
    """
    kept = [item for item in items if all(map(applies, item.iter_markers("only_on")))]
    if "slow" not in config.option.markexpr:
        kept = [item for item in kept if not item.get_closest_marker("slow")]
    left_out = [item for item in items if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(kept, key=lambda item: turn(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and without a visit to all that was imported: a tenth of the time went to it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)


def turn(file: str) -> int:
    """When a file is begun; those that are not listed come last, as they were collected."""
    return next(
        (at for at, name in enumerate(LONGEST) if file.endswith(name)), len(LONGEST)
    )


def applies(only_on: pytest.Mark) -> bool:
    """Whether a test with the mark `only_on(platform, below=(3, 14))` can be run here."""
    return sys.platform == only_on.args[0] and sys.version_info < only_on.kwargs.get(
        "below", (4,)
    )


@pytest.fixture(scope="session", autouse=True)
def no_power_cuts() -> Iterator[None]:
    """Files stay in the memory of the system: thousands of syncs take longer than the tests that write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses a closed file, too
        yield


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> Iterator[None]:
    """Shells ignore SIGINT in what they start in the background, and so would all that a test starts and interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def golden() -> Path:
    """What the real Nanotron, Megatron-Core, datatrove and the others return; golden/README.md says how to read it."""
    return HERE / "golden"


@pytest.fixture(scope="session")
def real_text() -> Path:
    """Three files of Shakespeare's, and GPT-2's tokenizer with its first merges; README.md there says more."""
    return HERE / "real_text"
