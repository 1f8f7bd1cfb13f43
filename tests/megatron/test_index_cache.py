"""The index cache: built once, mapped by all, and never believed when it does not hold."""

import multiprocessing
import os
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from nanoset_ref.io import mmap_limit
from nanoset_ref.io.index_cache import IndexCacheWarning, load_or_build
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig

DESCRIPTION, NAMES = {"index": "test", "seed": 1}, ("a", "empty")


class Builder:
    """Counts how often it builds."""

    def __init__(self, value=5):
        self.calls, self.value = 0, value

    def __call__(self):
        self.calls += 1
        return np.full(300, self.value, dtype=np.int32), np.empty(0, dtype=np.int64)


@pytest.mark.parametrize(
    "largest", [1327, 1328], ids=["mapped", "read"]
)  # bytes of a file that is read: 128 of its header, 4 for each number
def test_an_index_is_built_once_and_read_only(tmp_path, monkeypatch, largest):
    monkeypatch.setattr(mmap_limit, "MAX_READ_BYTES", largest)
    build, other, folder = Builder(), Builder(1), tmp_path / "new" / "folder"
    for _ in range(2):
        values, empty = load_or_build(folder, DESCRIPTION, NAMES, build)
        assert (values.tolist(), empty.shape) == ([5] * 300, (0,))
        assert isinstance(values.base, np.memmap) is (largest < 1328)
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
        assert load_or_build(folder, {"seed": 2}, NAMES, other)[0][0] == 1, (
            "another description is another index"
        )
    assert (build.calls, other.calls) == (1, 1)


def entry(folder, suffix):
    (path,) = folder.glob(f"*{suffix}")
    return path


def flip_a_bit(path):
    path.write_bytes(path.read_bytes()[:-1] + b"\1")


def describe_something_else(path):
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))


@pytest.mark.parametrize(
    ("part", "damage"),
    [(".a.npy", flip_a_bit), (".a.npy", os.unlink), (".json", describe_something_else)],
)
def test_a_damaged_index_is_built_again_with_a_warning(tmp_path, part, damage):
    build = Builder()
    load_or_build(tmp_path, DESCRIPTION, NAMES, build)
    damage(entry(tmp_path, part))
    with pytest.warns(IndexCacheWarning, match="is built again"):
        load_or_build(tmp_path, DESCRIPTION, NAMES, build)
    assert load_or_build(tmp_path, DESCRIPTION, NAMES, build)[0].tolist() == [5] * 300
    assert build.calls == 2


def test_an_index_that_was_never_finished_is_built_without_a_word(tmp_path):
    build = Builder()
    load_or_build(tmp_path, DESCRIPTION, NAMES, build)
    entry(tmp_path, ".json").unlink()
    assert load_or_build(tmp_path, DESCRIPTION, NAMES, build)[0][0] == 5
    assert build.calls == 2


def test_a_folder_that_cannot_be_written_is_read_and_named(tmp_path):
    build = Builder()
    load_or_build(tmp_path, DESCRIPTION, NAMES, build)
    (tmp_path / "index.lock").unlink()
    (tmp_path / "index.lock").mkdir()  # as on a read-only disk, also for root
    assert load_or_build(tmp_path, DESCRIPTION, NAMES, build)[0][0] == 5
    with pytest.raises(
        OSError,
        match=f"cannot write the index cache {tmp_path}: name another folder, or none",
    ):
        load_or_build(tmp_path, {"seed": 2}, NAMES, build)
    assert build.calls == 1


@pytest.mark.parametrize("part", [".a.npy", ".empty.npy", ".json"])
@pytest.mark.parametrize(
    "put", [os.mkdir, os.mkfifo, lambda path: path.symlink_to(path.parent)]
)
def test_a_folder_in_place_of_an_entry_stays_and_the_index_is_built_in_memory(
    tmp_path, part, put
):
    build = Builder()
    load_or_build(tmp_path, DESCRIPTION, NAMES, build)
    path = entry(tmp_path, part)
    path.unlink()
    put(path)
    before = [path.lstat() for path in sorted(tmp_path.iterdir())]
    for _ in range(2):
        with pytest.warns(
            IndexCacheWarning,
            match=f"{path.name} is not a file of an index: it is left unchanged",
        ):
            assert (
                load_or_build(tmp_path, DESCRIPTION, NAMES, build)[0].tolist()
                == [5] * 300
            )
    assert [path.lstat() for path in sorted(tmp_path.iterdir())] == before


def test_a_pipe_in_the_place_of_the_lock_is_an_error_and_nobody_waits(tmp_path):
    os.mkfifo(tmp_path / "index.lock")
    with pytest.raises(OSError, match="index.lock is not a regular file"):
        load_or_build(tmp_path, DESCRIPTION, NAMES, Builder())


def build_as_another_user(folder):
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    build = Builder()
    load_or_build(folder, DESCRIPTION, NAMES, build)
    load_or_build(folder, {"seed": 2}, NAMES, build)
    assert build.calls == 1


def test_two_users_share_a_folder_whose_lock_only_its_owner_may_write():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o777)
        load_or_build(folder, DESCRIPTION, NAMES, Builder())
        os.chmod(f"{folder}/index.lock", 0o444)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=build_as_another_user, args=(folder,))
        process.start()
        process.join()
        assert process.exitcode == 0


def test_an_error_while_building_leaves_nothing(tmp_path):
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        load_or_build(tmp_path, DESCRIPTION, NAMES, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["index.lock"]


def build_and_report(folder):
    build = Builder()
    values, _ = load_or_build(folder, DESCRIPTION, NAMES, build)
    return build.calls, int(values.sum())


@pytest.mark.filterwarnings("ignore:This process")  # forking beside numba's threads
def test_of_many_processes_one_builds(tmp_path):
    """As the ranks of a node do: all begin at once, without torch.distributed."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(4, context, context.Barrier(4).wait) as pool:
        outcomes = pool.map(build_and_report, [tmp_path / "cache"] * 4)
    assert sorted(outcomes) == [(0, 1500), (0, 1500), (0, 1500), (1, 1500)]


# ---- what datasets cache


def build(data_path, cache):
    config = NanosetConfig(
        data_path=data_path,
        path_to_cache=cache,
        random_seed=1,
        sequence_length=4,
        split="1,0,0",
    )
    return NanosetBuilder(config).build()[0]


def test_fields_that_change_no_index_share_an_entry(write_corpus, tmp_path):
    prefix = write_corpus([[9], [5], [30]])

    def entries(**options):
        config = NanosetConfig(
            random_seed=1,
            sequence_length=4,
            data_path=str(prefix),
            split="1,0,0",
            path_to_cache=tmp_path / "cache",
            **options,
        )
        NanosetBuilder(config).build()
        return len(list((tmp_path / "cache").glob("*.json")))

    assert entries() == 1
    assert entries(pad_id=0) == entries(eos_token_id=3, eod_mask_loss=True) == 1
    assert entries(add_extra_token_to_sequence=False) == 2


def test_a_corpus_that_was_replaced_is_another_entry(write_corpus, tmp_path):
    """Same path, same size; upstream reuses the old index and reads nonsense."""
    cache = tmp_path / "cache"
    before = build(write_corpus([[30], [10]]), cache).fingerprint
    for suffix in ("bin", "idx"):
        (tmp_path / f"corpus.{suffix}").unlink()
    after = build(write_corpus([[10], [30]]), cache)
    assert len(list(cache.glob("*.json"))) == 2
    assert before != after.fingerprint
    expected, positions = build(after.corpus.path_prefix, None), np.arange(len(after))
    assert after.read(positions).tolist() == expected.read(positions).tolist()


def test_an_index_that_does_not_fit_on_the_disk_names_the_file_and_the_disk(tmp_path):
    """A limit on the size of files stands for the disk; `np.save` hears of neither where an array is small."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.raises(
            OSError,
            match="cannot be written .* bytes are free on the disk of",
        ) as caught:
            load_or_build(tmp_path / "indexes", DESCRIPTION, NAMES, Builder())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename.startswith(str(tmp_path / "indexes")) and str(
        tmp_path / "indexes"
    ) in str(caught.value)
    assert not list((tmp_path / "indexes").glob(".*"))


def test_indexes_do_not_depend_on_the_padding(write_corpus, tmp_path):
    """`nanoset-ref index` builds those of every pad_id."""
    prefix = write_corpus([[30], [10]])
    for pad_id in (-1, 0):
        config = NanosetConfig(
            random_seed=1,
            sequence_length=4,
            data_path=prefix,
            split="1,0,0",
            path_to_cache=tmp_path / "cache",
            pad_id=pad_id,
        )
        NanosetBuilder(config).build()
        assert len(list((tmp_path / "cache").glob("*.json"))) == 1
