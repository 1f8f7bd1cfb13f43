"""Every byte is of the version that was opened, and the cache keeps versions and objects apart."""

import numpy as np
import pytest
from bucket_helpers import N, S, dataset
from bucket_server import BucketServer

from nanoset_ref.io import bucket_ranges, buckets
from nanoset_ref.io.object_versions import ObjectVersion
from nanoset_ref.io.urls import BucketPath, StorageError
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.tokens import open_tokens
from nanoset_ref.tokens.document_blocks import content_hash


@pytest.mark.parametrize("scheme", ["s3", "http"])
@pytest.mark.parametrize("conditional", [True, False])
def test_bytes_of_another_version_are_no_row_whichever_request_they_answer(
    bucket, server, scheme, conditional
):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    server.conditional = conditional
    rows, several = dataset(place, "a"), np.arange(0, N, 7)
    server.answered = '"another"'  # to GET alone: HEAD still says what it said when the object was opened
    for positions in (several, several[:1]):
        with pytest.raises(
            StorageError, match="a.npy was replaced after it was opened"
        ):
            rows.read(positions)
    server.answered = None
    assert len(rows.read(several)) == len(several), (
        "the object that was opened is there again"
    )


@pytest.mark.parametrize("told", [{"ETag", "Last-Modified"}, {"Last-Modified"}])
@pytest.mark.parametrize("conditional", [True, False])
def test_every_range_is_asked_for_of_the_version_that_was_opened_and_nothing_else_is_asked(
    bucket, folder, server, told, conditional
):
    server.told, server.conditional = told, conditional
    rows, positions = (
        dataset(f"http://127.0.0.1:{server.port}/tokens", "a"),
        np.arange(0, N, 7),
    )
    assert np.array_equal(rows.read(positions), dataset(folder, "a").read(positions))
    server.log.clear(), server.conditions.clear()
    rows.read(positions)
    assert {line.split()[0] for line in server.log} == {"GET"}
    expected = (
        server.objects["/tokens/a.npy"][1]
        if "ETag" in told
        else "Wed, 21 Oct 2026 07:28:00 GMT"
    )
    assert set(server.conditions) == {expected}


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_server_that_tells_no_versions_is_read_only_if_that_is_allowed_and_then_nothing_is_kept(
    bucket, folder, server, tmp_path, monkeypatch, way
):
    server.told = set()
    url, positions = f"http://127.0.0.1:{server.port}/tokens/a.npy", np.arange(9)
    with pytest.raises(
        StorageError,
        match=r"a.npy: its server reports neither .*allow_unversioned=True.* or NANO",
    ):
        open_tokens(url)
    monkeypatch.setenv("NANOSET_REF_CACHE", str(tmp_path))
    if way == "environment":
        monkeypatch.setenv("NANOSET_REF_ALLOW_UNVERSIONED", "1")
    for _ in range(2):
        rows = Nanoset(
            [open_tokens(url, allow_unversioned=way == "argument")], None, S, N
        )
        assert np.array_equal(
            rows.read(positions), dataset(folder, "a").read(positions)
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("told", ["Last-Modified", "ETag"])
def test_the_cache_tells_objects_apart_that_differ_by_their_queries(
    numbered, server, tmp_path, monkeypatch, told
):
    """A server may give two objects one time stamp, or one ETag: it is unique among the versions of one object."""
    urls, files = numbered
    server.told, server.answered, server.conditional = {told}, '"v1"', False
    for number in "12":
        content, etag = server.objects[f"/get.npy?id={number}"]
        server.objects[f"/get.npy?id={number}"] = content[:1000], etag
    monkeypatch.setenv("NANOSET_REF_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        for url, file in zip(urls, files, strict=True):
            ids = open_tokens(url, "uint16").tokens
            assert np.array_equal(ids[:], np.fromfile(file, "<u2")[:500])


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("az://tokens/a.npy", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("s3://tokens/a.npy", "AWS_ENDPOINT_URL"),
        ("s3://tokens/a.npy", "AWS_ENDPOINT"),
    ],
)
def test_the_cache_tells_the_objects_of_two_servers_apart(monkeypatch, url, variable):
    keys = set()
    for value in ("one", "two"):
        monkeypatch.setenv(variable, value)
        version = ObjectVersion(100, '"v1"')
        ids = bucket_ranges.BucketIds(BucketPath(url), version, np.dtype("<u2"))
        keys.add(ids.cache_key)
    assert len(keys) == 2


def test_a_process_that_gets_other_settings_reads_with_them(
    bucket, folder, monkeypatch
):
    other = BucketServer().started()
    for file in folder.glob("b.*"):
        other.keep(f"/tokens/{file.name.replace('b', 'a', 1)}", file.read_bytes())
    one = content_hash(open_tokens(f"{bucket}/a.npy"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{other.port}")
    two = content_hash(open_tokens(f"{bucket}/a.npy"))
    assert [one, two] == [
        content_hash(open_tokens(folder / name)) for name in ("a.npy", "b.npy")
    ]


def test_an_object_that_is_replaced_under_its_reader_is_noticed(bucket, folder):
    rows = dataset(bucket, "a")
    rows.read(np.arange(5))
    buckets.call_obstore(
        BucketPath(f"{bucket}/a.npy"),
        "put",
        bytes(reversed((folder / "a.npy").read_bytes())),
    )
    with pytest.raises(
        StorageError,
        match="a.npy was replaced after it was opened; build the dataset again",
    ):
        rows.read(np.arange(5))
    with pytest.raises(ValueError, match="was replaced or changed after it was opened"):
        rows.files[0].check_unchanged()
