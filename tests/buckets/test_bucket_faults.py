"""A server that fails, stalls or is slow, and what is missing: asked again, given up in time, named in one line."""

import json
import multiprocessing
import os
import sys

import numpy as np
import pytest
from bucket_helpers import N, S, dataset, loader_of
from run_config import run_tree

from nanoset_ref.cli import main
from nanoset_ref.io import buckets, object_versions
from nanoset_ref.io.urls import StorageError
from nanoset_ref.train import ConfigError, load_config


@pytest.mark.parametrize("fault", [500, 503, "cut", "half", "stall"])
def test_a_server_with_faults_is_asked_again_and_given_up(
    bucket, folder, server, fault, monkeypatch, lose_patience
):
    stalls = fault in ("half", "stall")
    if stalls:  # which is noticed after a quarter of this
        monkeypatch.setenv("NANOSET_REF_TIMEOUT", "8")
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", "a")
    expected, positions = dataset(folder, "a").read(np.arange(9)), np.arange(9)
    server.faults += [fault] * (1 if stalls else 3)
    assert np.array_equal(rows.read(positions), expected)
    assert not server.faults
    lose_patience()
    server.faults += [fault] * 100_000
    why = (
        "the server truncates its answers"
        if fault in ("cut", "half")
        else "the server cannot be reached, fails or"
    )
    with pytest.raises(OSError, match=f"^http.*a.npy: {why}") as error:
        rows.read(positions[:1])
    assert "\n" not in str(error.value)
    server.faults.clear()


def test_an_answer_that_is_too_short_is_asked_for_again(
    bucket, folder, server, lose_patience
):
    rows, expected = (
        dataset(f"http://127.0.0.1:{server.port}/tokens", "a"),
        dataset(folder, "a").read(np.arange(9)),
    )
    server.faults += ["short"] * 3
    assert np.array_equal(rows.read(np.arange(9)), expected)
    lose_patience()
    server.faults += ["short"] * 100_000
    with pytest.raises(StorageError, match="a.npy: the server sends less than its"):
        rows.read(np.arange(1))


@pytest.mark.parametrize("fault", ["cut", "short", 503])
def test_a_server_that_never_answers_well_is_given_up_within_the_limit_and_the_log_says_that_it_waits(
    bucket, server, monkeypatch, caplog, fault
):
    rows, now = dataset(f"http://127.0.0.1:{server.port}/tokens", "a"), [0.0]
    monkeypatch.setenv("NANOSET_REF_TIMEOUT", "3")
    monkeypatch.setattr(
        buckets.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    monkeypatch.setattr(buckets.time, "monotonic", lambda: now[0])
    buckets._next_warning.clear()
    server.faults += [fault] * 100_000
    with pytest.raises(StorageError, match="after NANOSET_REF_TIMEOUT=3 seconds$"):
        rows.read(np.arange(1))
    assert 1 < now[0] <= 3
    assert caplog.text.count("retrying for up to 3 s") == 1


def test_a_slow_server_is_warned_of_once_in_ten_seconds(
    bucket, server, monkeypatch, caplog
):
    """Many requests wait for it; each bucket has its own warning."""
    now = [0.0]
    monkeypatch.setattr(buckets.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(buckets.time, "monotonic", lambda: now[0])
    buckets._next_warning.clear()

    def warnings(path, seconds):
        now[0] = seconds
        answers = iter([buckets.TryAgainError(f"{path} is slow"), None])

        def act(store):
            error = next(answers)
            if error is not None:
                raise error

        caplog.clear()
        buckets.request(path, act)
        return caplog.text.count("retrying")

    one = buckets.BucketPath(f"http://127.0.0.1:{server.port}/tokens/a.npy")
    two = buckets.BucketPath(f"http://localhost:{server.port}/tokens/a.npy")
    assert one.root != two.root
    asked = [(one, 100), (one, 101), (two, 101), (one, 109), (one, 111), (one, 112)]
    assert [warnings(*it) for it in asked] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_server_without_ranges_is_called_so(bucket, server, scheme):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    rows = dataset(place, "a")
    server.faults += ["whole"] * 100
    with pytest.raises(StorageError, match="a.npy: the server does not support ranges"):
        rows.read(np.arange(1))


def test_a_panic_of_the_library_is_an_error_like_any_other(bucket, monkeypatch):
    rows, PanicException = (
        dataset(bucket, "a"),
        type("PanicException", (BaseException,), {}),
    )

    def panics(*_, **__):
        raise PanicException("range end index 100 out of range")

    for module in (buckets, object_versions):
        monkeypatch.setattr(module, "obstore_function", lambda what: panics)
    monkeypatch.setenv("NANOSET_REF_TIMEOUT", "0.2")
    with pytest.raises(StorageError, match="a.npy: .*range end index 100"):
        rows.read(np.arange(1))


@pytest.mark.filterwarnings("ignore:This process")
def test_forked_workers_are_refused_in_a_line_that_names_the_thread(
    bucket, folder, monkeypatch
):
    rows = dataset(bucket)
    with pytest.raises(
        StorageError,
        match=r"a.npy: forked workers cannot read from a bucket; .* read_ahead=2",
    ):
        loader_of(rows, num_loading_workers=1, multiprocessing_context="fork")
    loader_of(dataset(folder), num_loading_workers=1, multiprocessing_context="fork")

    def read():
        with pytest.raises(
            StorageError, match="a forked process cannot read from the bucket"
        ):
            rows.read(np.arange(1))

    stages = [
        ("one", 1, {"dataset_path": str(folder / "a.npy")}, {}),
        ("two", 2, {"dataset_path": f"{bucket}/a.npy"}, {"num_loading_workers": 1}),
    ]
    config = folder.parent / "forked.yaml"
    config.write_text(json.dumps(run_tree("checkpoints", stages, steps=3, length=S)))
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "fork")
    with pytest.raises(
        ConfigError, match=r"data_stages\[1\].*a.npy: forked workers cannot read"
    ):
        load_config(config)

    child = multiprocessing.get_context("fork").Process(target=read)
    child.start()
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://tokens/none.npy", "no token file at URL"),
        ("s3://nowhere/a.npy", "no token file at URL"),
        (
            "s3://tokens/denied.npy",
            "URL: access is denied, or credentials are missing: set AWS_ACCESS_KEY_ID and",
        ),
        (
            "http://127.0.0.1:9/a.npy",
            "URL: the server cannot be reached, fails or stalls",
        ),
        ("https://nowhere.invalid/a.npy", "URL: the server cannot be reached"),
        ("az://container/a.npy", "URL: "),
        (
            "s3://tokens/none.bin",
            "s3://tokens/none is not a corpus: none.bin and none.idx must",
        ),
        ("s3://tokens/none.ds", "no .ds file at URL"),
        ("s3://tokens/c.npy", "URL: only preprocess writes token files into a bucket"),
    ],
)
def test_missing_objects_are_named_in_one_line(
    bucket, folder, server, capsys, url, words, monkeypatch
):
    if not url.startswith("s3:"):  # nobody answers
        monkeypatch.setenv("NANOSET_REF_TIMEOUT", "1")
    if "NANOSET_TEST_S3" in os.environ and "denied" in url:
        words = "no token file"
    server.denied.add("HEAD /tokens/denied.npy")
    command = ["convert", str(folder / "a.npy")] if "writes" in words else ["inspect"]
    assert main([*command, url]) == 1
    said = capsys.readouterr().err
    assert (
        said.startswith(f"nanoset-ref {command[0]}: error: {words.replace('URL', url)}")
        and said.count("\n") == 1
    )


def test_without_the_extra_a_line_names_it_and_local_files_do_not_ask_for_it(
    bucket, folder, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert main(["inspect", f"{bucket}/a.npy"]) == 1
    assert capsys.readouterr().err.endswith(
        'reading a bucket needs the package obstore, which is not installed: pip install "nanoset_ref[bucket]"\n'
    )
    assert (
        main(["inspect", str(folder / "a.npy")]) == 0
        and len(dataset(folder).read(np.arange(N))) == N
    )
