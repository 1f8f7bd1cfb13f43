"""URLs: which object one names, in every spelling, with queries, and in every command."""

import json
import re
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from bucket_helpers import S
from run_config import run_tree

from nanoset_ref.cli import main
from nanoset_ref.io import buckets
from nanoset_ref.io.urls import BucketPath, StorageError
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.tokens import (
    TokenFileWriter,
    open_tokens,
    without_companions,
)
from nanoset_ref.train import Config, stages_of
from nanoset_ref.train.data_config import TokenFilesConfig


def test_a_pair_behind_a_query_has_megatrons_samples(bucket, folder, server, capsys):
    url = f"http://127.0.0.1:{server.port}/tokens/a"
    options = "--sequence-length 16 --num-samples 50 --micro-batch-size 2".split()
    answers = []
    for file in (f"{folder}/a.bin", f"{url}.bin?sig=1", f"{url}.idx?sig=1"):
        assert not main(["where", "1", "--data", file, *options])
        lines = capsys.readouterr().out.splitlines()
        answers.append([line.rpartition(" sample ")[2] for line in lines])
    assert answers[0] == answers[1] == answers[2]
    for path in (f"{url}.bin?sig=1", f"{url}.idx?sig=1", f"{url}?sig=1"):
        config = NanosetConfig(
            random_seed=1, sequence_length=S, data_path=path, split="1,0,0"
        )
        assert config.splits[0].blend.prefixes == [f"{url}?sig=1"]
        assert len(NanosetBuilder(config).build(["train"])[0])
    assert without_companions([f"{url}.bin?sig=1", f"{url}.idx?sig=1"]) == [
        f"{url}.bin?sig=1"
    ]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://tokens", "s3://tokens does not name an object"),
        ("http://host?sig=secret", r"^http://host\?\.\.\. does not name an object"),
        ("s3://tokens//a.npy", "keys with '//'.* cannot be read"),
        ("s3://tokens/./a.npy", "keys with .*'/./'.* cannot be read"),
        ("s3://tokens/b/../a.npy", "keys with .*'/../'.* cannot be read"),
        ("http://host/b%2Fa.npy", "keys with .*%2F cannot be read"),
        ("http://host/a#b.npy", r"http://host/a#b.npy: .* write '#' in a key as %23"),
        (
            "hf://tokens/a.npy",
            "hf:// is not supported, only s3://, gs://, gcs://, az://, http://, https://",
        ),
        ("r2://tokens/a.npy", "r2:// is not supported"),
        (
            Path("s3://tokens/a.npy"),
            "s3:/tokens/a.npy must be a local path, or a token file",
        ),
        (
            Path("http://me:word@host/a.npy?sig=secret"),
            r"^http:/host/a.npy\?\.\.\. must be a local path, or a token file",
        ),
    ],
)
def test_a_url_that_means_no_key_that_can_be_read_is_refused_by_name(
    bucket, server, url, words
):
    with pytest.raises(StorageError, match=words):
        open_tokens(url)
    assert not server.log, "nothing else was asked for in its place"


def test_schemes_have_other_spellings_and_keys_keep_their_characters(
    bucket, folder, server
):
    assert (BucketPath("gcs://b/a").root, BucketPath("gcs://b/a").key) == (
        "gs://b",
        "a",
    )
    assert (
        open_tokens("S3://tokens/a.npy").num_tokens
        == open_tokens(folder / "a.npy").num_tokens
    )
    for key in ("a b?c#d%20e.npy", "ö+&=.npy"):
        server.keep(f"/tokens/{key}", (folder / "raw.npy").read_bytes())
        assert open_tokens(f"s3://tokens/{key}").path.name == key
        quoted = f"http://127.0.0.1:{server.port}/tokens/{urllib.parse.quote(key)}"
        assert open_tokens(quoted).path.name == key


@pytest.mark.parametrize(
    "host",
    [
        "tokens.s3.us-east-1.amazonaws.com",
        "s3.us-east-1.amazonaws.com",
        "account.r2.cloudflarestorage.com",
        "account.blob.core.windows.net",
        "storage.googleapis.com",
    ],
)
def test_a_signed_url_of_a_cloud_is_asked_for_as_it_is(bucket, host):
    """obstore takes such a URL for one of s3:// or az://: no signature, and AWS_ENDPOINT_URL's server."""
    path = BucketPath(f"https://{host}/tokens/a.npy?X-Amz-Signature=1")
    store = buckets.connect(path.root, 1.0)
    assert repr(store) == f'HTTPStore("https://{host}/?X-Amz-Signature=1")'


@pytest.mark.parametrize(
    ("scheme", "settings"), [("s3", "AWS"), ("gs", "GOOGLE"), ("az", "AZURE")]
)
def test_denied_access_is_answered_with_the_settings_of_its_cloud(scheme, settings):
    path = BucketPath(f"{scheme}://tokens/a.npy")
    for line in ("403", buckets.CLOUD_METADATA_ADDRESS):
        error = buckets._translate(path, "PermissionDeniedError", line)
        variables = set(re.findall(r"\b[A-Z]+(?=_)", str(error)))
        assert variables == {settings}


def test_a_denied_url_is_not_answered_with_the_settings_of_a_cloud(bucket, server):
    server.denied.add("HEAD /tokens/a.npy")
    url = f"http://127.0.0.1:{server.port}/tokens/a.npy"
    words = "read without the credentials of a cloud, so sign it, or name the object"
    with pytest.raises(StorageError, match=words):
        open_tokens(url)


@pytest.mark.parametrize("status", [405, 501])
def test_a_server_without_head_is_asked_for_one_byte(
    bucket, folder, server, monkeypatch, status
):
    """obstore says that an object does not exist where HEAD is not allowed."""
    answer = server.answer

    def without_head(method, *rest):
        return ((status, "", b""), None) if method == "HEAD" else answer(method, *rest)

    monkeypatch.setattr(server, "answer", without_head)
    place = f"http://127.0.0.1:{server.port}/tokens"
    file = open_tokens(f"{place}/a.npy")
    expected = open_tokens(folder / "a.npy")
    assert file.facts == expected.facts
    assert np.array_equal(file.tokens[:99], expected.tokens[:99])
    assert server.conditions[-1] == file.version.e_tag
    with pytest.raises(FileNotFoundError, match="no token file at"):
        open_tokens(f"{place}/none.npy")


@pytest.mark.parametrize("query", ["", "?sig=1"])
def test_an_empty_object_of_which_one_byte_is_asked_for_is_called_empty(
    bucket, server, monkeypatch, query
):
    """It was "replaced after it was opened": it has no first byte."""
    answer = server.answer

    def without_head(method, *rest):
        return ((405, "", b""), None) if method == "HEAD" else answer(method, *rest)

    monkeypatch.setattr(server, "answer", without_head)
    server.keep(f"/tokens/none.npy{query}", b"")
    with pytest.raises(StorageError, match=r"none.npy.* is empty"):
        open_tokens(f"http://127.0.0.1:{server.port}/tokens/none.npy{query}")


@pytest.mark.parametrize(
    ("scheme", "query"), [("s3", ""), ("http", ""), ("http", "?sig=1")]
)
def test_a_compressed_object_is_not_read_as_ids(
    bucket, server, monkeypatch, scheme, query
):
    """Raw ids have no header: the bytes of gzip were delivered as ids."""
    answer = server.answer

    def compressed(*arguments):
        (status, headers, content), fault = answer(*arguments)
        return (status, f"{headers}Content-Encoding: {encoding}\r\n", content), fault

    monkeypatch.setattr(server, "answer", compressed)
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    for encoding in ("gzip", "gzip,aws-chunked", "x-gzip", "GZIP", "aws-chunked, zstd"):
        words = f"raw.npy.* is compressed .*: {encoding}"
        with pytest.raises(StorageError, match=words):
            open_tokens(f"{place}/raw.npy{query}", "uint16")
    # what an upload in pieces may leave behind; the content is as it was
    encoding = "aws-chunked"
    assert open_tokens(f"{place}/raw.npy{query}", "uint16").num_tokens


def test_a_bucket_of_another_region_is_called_so_at_once(bucket, server, monkeypatch):
    asked = []

    def redirected(method, *_):
        asked.append(method)
        return (301, "x-amz-bucket-region: eu-west-1\r\n", b""), None

    monkeypatch.setattr(server, "answer", redirected)
    with pytest.raises(StorageError, match="in another region: set AWS_REGION to it"):
        open_tokens(f"{bucket}/a.npy")
    assert asked == ["HEAD"]


def test_an_endpoint_without_http_is_called_so_at_once(bucket, monkeypatch, caplog):
    """obstore panicked for a minute, with a traceback of Rust for each try."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(StorageError, match="AWS_ENDPOINT_URL must begin with http://"):
        open_tokens(f"{bucket}/a.npy")
    assert "retrying" not in caplog.text


def test_a_bucket_without_the_right_to_delete_is_called_so_at_once(
    bucket, server, monkeypatch
):
    """S3 answers 200 and an error for each object, and was asked again for a minute."""
    change = server.change

    def denied(method, path, asked, body):
        if "delete" not in asked:
            return change(method, path, asked, body)
        key = re.search("<Key>.*</Key>", body.decode())[0]
        denial = f"{key}<Code>AccessDenied</Code><Message>No</Message>"
        content = f"<DeleteResult><Error>{denial}</Error></DeleteResult>"
        return 200, "", content.encode()

    monkeypatch.setattr(server, "change", denied)
    with (
        pytest.raises(StorageError, match="needs the right to delete objects, too"),
        TokenFileWriter(f"{bucket}/set.npy", dtype="uint16") as writer,
    ):
        writer.write_document([1])
    assert sum(line.endswith("?delete") for line in server.log) == 1


def test_urls_that_differ_by_their_queries_are_two_files_to_every_command(
    numbered, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("queries").write_text("0:1\n1:1\n")
    options = "--sequence-length 16 --num-samples 80 --micro-batch-size 4".split()
    for question in (
        "when --document 1 --source 0",
        "when --document 1 --source 1",
        "when --bulk queries",
        "skip queries",
    ):
        answers = []
        for files in numbered:
            assert not main(
                f"{question} --eos-token-id 7 --data".split() + files + options
            )
            answers.append(capsys.readouterr().out)
        assert answers[0] == answers[1]
    steps = []
    for name, files in zip(("urls", "files"), numbered, strict=True):
        stage = ("one", 1, {"dataset_path": files}, {})
        config = run_tree(tmp_path / "run", [stage], steps=20, length=16, rows=4)
        Path("run.yaml").write_text(json.dumps(config))
        made = f"card run.yaml --name {name} --date 2026-11 --output {name}.json"
        assert not main(made.split())
        names = [
            file["name"]
            for file in json.loads(Path(f"{name}.json").read_text())["sources"]
        ]
        assert len({*names}) == 2 and "id=" not in str(names)
        assert not main(f"where --run {name}.json 3".split())
        answer = capsys.readouterr().out.partition("\n")[2]
        for number, file in enumerate(names):
            answer = answer.replace(f" {file} ", f" {number} ")
        steps.append(answer)
    assert steps[0] == steps[1]


def test_an_object_is_one_by_any_spelling_of_its_url():
    one = BucketPath("s3://tokens/a.npy")
    assert one == BucketPath("S3://tokens/a.npy") and one != BucketPath(
        "s3://tokens/b.npy"
    )
    assert BucketPath("gcs://tokens/a.npy") == BucketPath("gs://tokens/a.npy")
    place = "127.0.0.1/a%20b.npy"
    secret = BucketPath(f"http://somebody:password@{place}?id=1")
    assert secret == BucketPath(f"HTTP://{place.replace('%20', ' ')}?id=1")
    assert secret != BucketPath(f"http://{place}?id=2")


@pytest.mark.parametrize(
    ("one", "other", "stored"),
    [
        ("s3://tokens/a.bin", "s3://tokens/a.idx", "s3://tokens/a.bin"),
        ("s3://tokens/a.npy", "S3://tokens/a.npy", "s3://tokens/a.npy"),
        ("HOST/a.idx?id=1", "HOST/a.bin?id=1", "HOST/a.bin?id=1"),
        ("HOST/a.npy", "me:word@HOST/a.npy", "HOST/a.npy"),
        ("HOST/a.npy?id=1", "HOST/a.npy?id=2", None),
    ],
)
def test_a_stage_goes_on_with_a_file_in_a_bucket_by_each_of_its_names(
    bucket, server, tmp_path, one, other, stored
):
    host = f"127.0.0.1:{server.port}/tokens"
    names = [one, other, stored or ""]
    for number, name in enumerate(names):
        if "HOST" in name:
            names[number] = f"http://{name.replace('HOST', host)}"
    one, other, stored = names
    stages = [
        (name, step, {"dataset_path": path, "order": "stateless"}, {})
        for name, step, path in (("a", 1, one), ("b", 3, other))
    ]
    tree = run_tree(tmp_path / "run", stages, steps=5, length=S, rows=4)
    _, second = stages_of(Config.model_validate(tree))
    both = {"dataset_path": [one, other]}
    if not stored:
        assert [*second.files] == [*TokenFilesConfig(**both).dataset_path]
        return
    assert [*second.files] == [stored]
    with pytest.raises(ValueError, match="a file may be named once"):
        TokenFilesConfig(**both)
