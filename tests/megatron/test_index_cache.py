"""The index cache: built once, mapped by all, and never believed when it does not hold."""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanoset_ref.index_cache import Arrays, IndexCacheWarning, cached
from nanoset_ref.megatron import BlendedNanoset, NanosetBuilder, NanosetConfig

DESCRIPTION, NAMES = {"index": "test", "seed": 1}, ("a", "empty")


class Builder:
    """Counts how often it builds."""

    def __init__(self, value: int = 5) -> None:
        self.calls, self.value = 0, value

    def __call__(self) -> Arrays:
        self.calls += 1
        return np.full(300, self.value, dtype=np.int32), np.empty(0, dtype=np.int64)


def test_an_index_is_built_once_and_mapped_read_only(tmp_path: Path) -> None:
    build, other, folder = Builder(), Builder(1), tmp_path / "new" / "folder"
    for _ in range(2):
        values, empty = cached(folder, DESCRIPTION, NAMES, build)
        assert (values.tolist(), empty.shape) == ([5] * 300, (0,))
        assert isinstance(values.base, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
        assert cached(folder, {"seed": 2}, NAMES, other)[0][0] == 1, "another description is another index"
    assert (build.calls, other.calls) == (1, 1)


def entry(folder: Path, suffix: str) -> Path:
    (path,) = folder.glob(f"*{suffix}")
    return path


def describe_something_else(folder: Path) -> None:
    record = json.loads(entry(folder, ".json").read_text())
    record["description"]["seed"] = 2
    entry(folder, ".json").write_text(json.dumps(record))


def flip_a_bit(folder: Path) -> None:
    data = bytearray(entry(folder, ".a.npy").read_bytes())
    data[-1] ^= 1
    entry(folder, ".a.npy").write_bytes(data)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda folder: os.truncate(entry(folder, ".a.npy"), 200),
    "a flipped bit": flip_a_bit,
    "another description": describe_something_else,
    "an array missing": lambda folder: entry(folder, ".a.npy").unlink(),
    "a pickle": lambda folder: np.save(entry(folder, ".a.npy"), np.array([{}], dtype=object), allow_pickle=True),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_built_again_with_a_warning(tmp_path: Path, damage: str) -> None:
    build = Builder()
    cached(tmp_path, DESCRIPTION, NAMES, build)
    DAMAGES[damage](tmp_path)
    with pytest.warns(IndexCacheWarning, match="is built again"):
        assert cached(tmp_path, DESCRIPTION, NAMES, build)[0].tolist() == [5] * 300
    assert build.calls == 2
    assert cached(tmp_path, DESCRIPTION, NAMES, build)[0].tolist() == [5] * 300
    assert build.calls == 2


def test_an_index_that_was_never_finished_is_built_without_a_word(tmp_path: Path) -> None:
    build = Builder()
    cached(tmp_path, DESCRIPTION, NAMES, build)
    entry(tmp_path, ".json").unlink()
    assert cached(tmp_path, DESCRIPTION, NAMES, build)[0][0] == 5
    assert build.calls == 2


def test_a_folder_that_cannot_be_written_is_read_and_named(tmp_path: Path) -> None:
    build = Builder()
    cached(tmp_path, DESCRIPTION, NAMES, build)
    (tmp_path / "index.lock").unlink()
    (tmp_path / "index.lock").mkdir()  # as on a read-only disk, also for root
    assert cached(tmp_path, DESCRIPTION, NAMES, build)[0][0] == 5
    with pytest.raises(OSError, match=f"cannot write the index cache {tmp_path}: name another folder, or none"):
        cached(tmp_path, {"seed": 2}, NAMES, build)
    assert build.calls == 1


def test_an_error_while_building_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> Arrays:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cached(tmp_path, DESCRIPTION, NAMES, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["index.lock"]


def build_and_report(folder: Path, barrier: Any, results: Any) -> None:
    build = Builder()
    barrier.wait()
    values, _ = cached(folder, DESCRIPTION, NAMES, build)
    results.put((build.calls, int(values.sum())))


def test_of_many_processes_one_builds(tmp_path: Path) -> None:
    """As the ranks of a node do: all begin at once, without torch.distributed."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    processes = [
        context.Process(target=build_and_report, args=(tmp_path / "cache", barrier, results)) for _ in range(4)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside numba's threads
        for process in processes:
            process.start()
    outcomes = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(outcomes) == [(0, 1500), (0, 1500), (0, 1500), (1, 1500)]


# ---- what datasets cache


def config(data_path: Any, cache: Path | None, **fields: Any) -> NanosetConfig:
    defaults: dict[str, Any] = {"random_seed": 1, "sequence_length": 4, "split": "1,1,0"}
    return NanosetConfig(data_path=data_path, path_to_cache=cache, **(defaults | fields))


def count(cache: Path) -> int:
    return len(list(cache.glob("*.json")))


def read_all(dataset: Any) -> list[list[int]]:
    return dataset.read(np.arange(len(dataset))).tolist()


def test_cached_datasets_read_the_same_and_are_mapped(write_corpus: Any, tmp_path: Path) -> None:
    one, two, cache = write_corpus([[50]] * 4, "one"), write_corpus([[30]] * 4, "two"), tmp_path / "cache"
    fields: dict[str, Any] = {"split_num_samples": (40, 10, 0)}
    fresh = NanosetBuilder(config({one: 1, two: 2}, cache, **fields)).build()[0]
    entries = count(cache)
    assert entries == 2 * (2 + 1)  # of train and valid: two corpora and the blend
    again = NanosetBuilder(config({one: 1, two: 2}, cache, **fields)).build()[0]
    assert isinstance(fresh, BlendedNanoset)
    assert isinstance(again, BlendedNanoset)
    assert count(cache) == entries
    assert isinstance(again.datasets[0].sample_index.base, np.memmap)
    positions = np.arange(len(fresh))
    assert again.read(positions).tolist() == fresh.read(positions).tolist()


def test_a_corpus_that_was_replaced_is_another_entry(write_corpus: Any, tmp_path: Path) -> None:
    """Same path, same size; upstream reuses the old index and reads nonsense."""
    cache = tmp_path / "cache"
    before = NanosetBuilder(config(write_corpus([[30], [10]]), cache, split="1,0,0")).build()[0]
    for suffix in ("bin", "idx"):
        (tmp_path / f"corpus.{suffix}").unlink()
    after = NanosetBuilder(config(write_corpus([[10], [30]]), cache, split="1,0,0")).build()[0]
    assert before is not None
    assert after is not None
    assert count(cache) == 2
    assert before.fingerprint != after.fingerprint
    assert read_all(after) == read_all(NanosetBuilder(config(after.corpus.path_prefix, None, split="1,0,0")).build()[0])
