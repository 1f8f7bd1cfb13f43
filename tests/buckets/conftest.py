"""Buckets on a server of the tests' own, with the same files in a local folder.

NANOSET_TEST_S3=http://127.0.0.1:5000 takes another server for s3://, such as moto's.
"""

import os
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from bucket_server import server_of_process

from nanoset_ref.io import buckets
from nanoset_ref.io.urls import BucketPath
from nanoset_ref.tokens import TokenFileWriter, convert, open_tokens


@pytest.fixture(scope="module")
def server():
    return server_of_process()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    random = np.random.RandomState(1)
    for name, dtype in (("a", "uint16"), ("b", "int32")):
        with TokenFileWriter(
            folder / f"{name}.npy", dtype=dtype, vocab_size=300, eos_token_id=7
        ) as writer:
            for length in random.randint(0, 400, 60):
                writer.write_document(random.randint(0, 300, length))
    (folder / "raw.npy").write_bytes((folder / "a.npy").read_bytes())
    for suffix in ("bin", "ds"):
        convert([open_tokens(folder / "a.npy")], folder / f"a.{suffix}")
    return folder


@pytest.fixture
def bucket(server, folder, monkeypatch):
    """The URL of a bucket with the files of `folder`, on a server without faults."""
    server.reset()
    variables = {
        "AWS_ENDPOINT_URL": os.environ.get(
            "NANOSET_TEST_S3", f"http://127.0.0.1:{server.port}"
        )
    }
    variables |= dict.fromkeys(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "test")
    for name, value in {
        **variables,
        "AWS_REGION": "us-east-1",
        "NANOSET_REF_TIMEOUT": "60",
    }.items():
        monkeypatch.setenv(name, value)
    make_bucket = f"{variables['AWS_ENDPOINT_URL']}/tokens"
    request = urllib.request.Request(make_bucket, method="PUT")
    urllib.request.urlopen(request).close()
    for file in folder.iterdir():
        buckets.call_obstore(
            BucketPath(f"s3://tokens/{file.name}"), "put", file.read_bytes()
        )
        server.keep(f"/tokens/{file.name}", file.read_bytes())
    server.log.clear()
    return "s3://tokens"


@pytest.fixture
def lose_patience(monkeypatch):
    """A function: from its call on, a server is given up when it has been asked twice, however fast this machine is."""
    now = [0.0]

    def sleep(seconds):
        now[0] += 1000 * seconds

    def start():
        monkeypatch.setattr(buckets.time, "sleep", sleep)
        monkeypatch.setattr(buckets.time, "monotonic", lambda: now[0])

    return start


@pytest.fixture
def numbered(bucket, server, tmp_path):
    """Two objects whose URLs differ by their queries, and local files with the same bytes; documents end with 7."""
    urls = []
    files = []
    for number, count in (("1", 600), ("2", 900)):
        ids = np.random.RandomState(int(number)).randint(8, 300, count)
        ids[9::10] = 7
        content = ids.astype("<u2").tobytes()
        server.keep(f"/get.npy?id={number}", content)
        urls.append(f"http://127.0.0.1:{server.port}/get.npy?id={number}")
        files.append(str(tmp_path / f"local{number}.npy"))
        Path(files[-1]).write_bytes(content)
    yield urls, files
    for number in "12":
        del server.objects[f"/get.npy?id={number}"]
