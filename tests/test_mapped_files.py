"""Files that are truncated while they are mapped: an error, and not the end of the process.

Values that are no token ids: refused by every reader of rows, since one would read their bits and another their values.
"""

import gc
import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref import (
    DocumentOptions,
    Nanoset,
    PackedNanoset,
    build_nanoset_dataloader,
)
from nanoset_ref.io import mmap_limit
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.mmap_limit import should_map
from nanoset_ref.load.bucket_gather import BucketGatherer
from nanoset_ref.megatron import (
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.tokens import (
    TokenFileError,
    TokenFileWriter,
    convert,
    describe,
    open_tokens,
    verify,
)

LENGTH = 8
DOCUMENTS = 3000  # of 10 tokens: every file has several pages of 4 KiB


def write_inputs(folder):
    with TokenFileWriter(folder / "a.npy", dtype="uint16") as writer:
        for _ in range(DOCUMENTS):
            writer.write_document(np.arange(10))
    with MMapIndexedDatasetBuilder(folder / "m.bin", np.uint16) as builder:
        builder.write(
            np.arange(10 * DOCUMENTS) % 10, np.full(DOCUMENTS, 10, dtype=np.int32)
        )
    np.save(folder / "order.npy", np.arange(DOCUMENTS, dtype="<u4")[::-1])


def published(folder):
    order = str(folder / "order.npy")
    return Nanoset(folder / "a.npy", None, LENGTH, DOCUMENTS, order=order)


def packed(folder):
    return PackedNanoset(
        folder / "a.npy", None, LENGTH, None, pad_id=0, path_to_cache=folder / "cache"
    )


def megatron(folder):
    shutil.copy(folder / "m.bin", folder / "other.bin")
    shutil.copy(folder / "m.idx", folder / "other.idx")
    config = NanosetConfig(
        random_seed=1,
        sequence_length=LENGTH,
        data_path={str(folder / "m"): 1.0, str(folder / "other"): 2.0},
        split="1,0,0",
        split_num_samples=(1000, 0, 0),
        path_to_cache=str(folder / "cache"),
    )
    return NanosetBuilder(config).build()[0]


def read_rows(rows):
    rows.read(np.arange(len(rows)))


def read_starts(rows):
    rows.starts(np.arange(len(rows)))


def read_plan(rows):
    options = DocumentOptions(eod_mask_loss=True)
    build_nanoset_dataloader(rows, micro_batch_size=1, documents=options).state_dict()


def read_beside_a_bucket(files):
    out = np.empty((1, LENGTH), dtype=np.int32)
    BucketGatherer(files)(np.array([0]), np.array([9 * DOCUMENTS]), out)


# what is truncated, by whom it is read, and how
READERS = [
    ("order.npy", published, read_rows),
    ("a.documents.npy", published, read_starts),
    ("cache/*.piece_starts.npy", packed, read_rows),
    ("cache/*.piece_lengths.npy", packed, read_starts),
    ("cache/*.document_index.npy", megatron, read_rows),
    ("cache/*.sample_index.npy", megatron, read_rows),
    ("cache/*.shuffle_index.npy", megatron, read_starts),
    ("cache/*.dataset_index.npy", megatron, read_rows),
    ("cache/*.dataset_sample_index.npy", megatron, read_rows),
    ("m.bin", megatron, read_rows),
    ("m.idx", megatron, read_starts),
    ("a.documents.npy", published, read_plan),
    ("order.npy", published, pickle.dumps),
    ("a.npy", lambda folder: [open_tokens(folder / "a.npy")], read_beside_a_bucket),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """{number of the reader: the error}, each from a process of its own: without the check the system kills it."""
    folder = tmp_path_factory.mktemp("mapped")
    script = f"import test_mapped_files as t; t.truncate_and_read_all({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=os.path.dirname(__file__),
        capture_output=True,
        text=True,
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "number", range(len(READERS)), ids=lambda number: READERS[number][0]
)
def test_a_mapped_file_that_is_truncated_is_an_error_that_names_it(found, number):
    name = READERS[number][0]
    error = found.get(str(number), "the process died")
    assert error.endswith(
        "was truncated after it was opened; build the dataset again"
    ), error
    assert name.removeprefix("cache/*") in error


def truncate_and_read_all(folder):
    # small files are read, not mapped
    mmap_limit.MAX_READ_BYTES = 0
    for number in range(len(READERS)):
        child = os.fork()
        if not child:
            part = Path(folder, str(number))
            part.mkdir()
            truncate_and_read(part, number)
            os._exit(0)
        os.waitpid(child, 0)


def truncate_and_read(folder, number):
    write_inputs(folder)
    name, make, read = READERS[number]
    rows = make(folder)
    if read is read_plan:  # a plan is kept once it is made
        rows.starts(np.arange(1))
    else:
        read(rows)
    for path in folder.glob(name):
        os.truncate(path, 200)
    try:
        read(rows)
    except OSError as error:
        print(f"{number}: {error}", flush=True)  # noqa: T201


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
def test_large_boundaries_of_any_number_of_files_are_read_under_any_limit(
    tmp_path, suffix
):
    first = tmp_path / f"0{suffix}"
    ids = np.arange(280_000, dtype=np.uint16) % 100
    if suffix == ".npy":
        with TokenFileWriter(first, dtype="uint16") as writer:
            writer.write(ids, np.full(140_000, 2))
    else:
        with MMapIndexedDatasetBuilder(first, np.uint16) as builder:
            builder.write(ids, np.full(140_000, 2))
    for part in [*tmp_path.iterdir()]:
        for number in range(1, 120):
            os.link(part, part.with_name(part.name.replace("0", str(number), 1)))
    files = [open_tokens(tmp_path / f"{number}{suffix}") for number in range(120)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests left open
    limit = len(os.listdir("/dev/fd")) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        bounds = [file.require_document_offsets() for file in files]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert all(np.array_equal(found, range(0, 280_001, 2)) for found in bounds)


def test_whether_to_map_takes_as_long_with_any_number_of_open_files(monkeypatch):
    """All open files were listed for each file: 6 ms with 5,000, so that many files took minutes."""
    # files of earlier tests may be open above those of this one, with numbers between them that are free
    highest = max(map(int, os.listdir("/dev/fd")))
    for function in ("listdir", "scandir"):
        monkeypatch.setattr(os, function, None)
    assert should_map(2 << 20)
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        free = max(highest, descriptors[-1]) + 100
        for descriptor, maps in ((descriptors[-1], False), (free, True)):
            limit = 4 * descriptor // 3
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
            assert should_map(2 << 20) == maps
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_mapped_file_that_is_replaced_keeps_its_content(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5000))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r").view(np.ndarray)
    np.save(tmp_path / "b.npy", np.arange(5))
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    check_not_truncated(mapped, np.arange(3))
    assert mapped[-1] == 4999


def write_pair(folder, values):
    with MMapIndexedDatasetBuilder(folder / "v.bin", values.dtype) as builder:
        builder.write(values, np.array([len(values) - 20, 20], dtype=np.int32))
    return open_tokens(folder / "v.bin")


@pytest.mark.parametrize(
    "read",
    [
        lambda file: Nanoset(file, None, LENGTH, None),
        lambda file: PackedNanoset(file, None, LENGTH, None, pad_id=0),
        verify,
        describe,
        lambda file: convert([file], file.path.with_suffix(".npy"), dtype="int32"),
    ],
    ids=["Nanoset", "PackedNanoset", "verify", "describe", "convert"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_that_are_no_integers_are_no_ids(tmp_path, read, dtype):
    """Float32 was read bit by bit by the kernel, and rounded by the reads before it was compiled."""
    file = write_pair(tmp_path, np.arange(60, dtype=dtype) + dtype(0.5))
    with pytest.raises(
        TokenFileError, match=f"v.bin holds {np.dtype(dtype).name} values"
    ):
        read(file)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64])
def test_rows_are_read_from_ids_of_two_widths_alone(tmp_path, dtype):
    file = write_pair(tmp_path, np.arange(60, dtype=dtype))
    with pytest.raises(
        ValueError, match=f"ids of {np.dtype(dtype).name}; convert it to uint16"
    ):
        Nanoset(file, None, LENGTH, None)


def test_a_file_without_documents_has_no_statistics(tmp_path):
    with TokenFileWriter(tmp_path / "a.npy", dtype="uint16") as writer:
        writer.write_document(np.arange(4))
    file = open_tokens(tmp_path / "a.npy")
    file.document_offsets = np.zeros(1, dtype=np.int64)
    with pytest.raises(TokenFileError, match=r"a.npy holds no documents"):
        describe(file)
