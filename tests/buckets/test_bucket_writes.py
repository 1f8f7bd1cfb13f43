"""Sets of files in a bucket are complete or absent; foreign objects are kept."""

import json
import os
import tempfile
from functools import partial

import numpy as np
import pytest

from nanoset_ref.cli import main
from nanoset_ref.io import uploads
from nanoset_ref.io.paths import as_path
from nanoset_ref.io.urls import StorageError, local_copy
from nanoset_ref.preprocess import preprocess
from nanoset_ref.tokens import TokenFileWriter, open_tokens, verify


def test_verify_seals_a_file_in_a_bucket(bucket, folder, server, capsys):
    for _ in range(2):
        assert not main(["verify", f"{bucket}/raw.npy", "--seal", "--eos-token-id=7"])
    assert capsys.readouterr().out.count("sealed as it is now") == 1
    content, _ = server.objects.pop("/tokens/raw.npy.seal")
    assert json.loads(content) == open_tokens(folder / "raw.npy").content_checksum()


def test_a_set_is_not_written_behind_a_query(bucket, server):
    url = f"http://127.0.0.1:{server.port}/tokens/set.npy?sig=SECRET"
    rule = r"set\.npy\?\.\.\.: a query cannot be part of a target"
    with (
        pytest.raises(StorageError, match=rule),
        TokenFileWriter(url, dtype="uint16") as writer,
    ):
        writer.write_document([1])
    assert not any("PUT" in line for line in server.log)


@pytest.mark.only_on("linux")
def test_a_full_disk_of_the_temporaries_is_named_with_the_way_out(bucket, monkeypatch):
    full = partial(open, "/dev/full", "w+b")
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    rule = rf"free on the disk of {tempfile.gettempdir()}, .* or name another TMPDIR"
    with pytest.raises(OSError, match=rule), local_copy(f"{bucket}/a.idx"):
        pass
    with (
        pytest.raises(OSError, match=rule),
        TokenFileWriter(f"{bucket}/full.npy", dtype="uint16") as writer,
    ):
        writer.write_document(np.zeros(100_000, np.uint16))


def test_preprocess_writes_a_set_that_the_tool_reads_and_the_last_part_makes_it_valid(
    bucket, server, golden, tmp_path, monkeypatch, capsys
):
    def run(prefix, **options):
        return preprocess(
            golden / "preprocess" / "input.json",
            prefix,
            golden / "tokenizer",
            column="body",
            backend="hf",
            **options,
        )

    run(tmp_path / "new"), run(f"{bucket}/deep/new")
    url, path = f"{bucket}/deep/new_input_ids.npy", tmp_path / "new_input_ids.npy"
    for suffix in (".npy", ".json", ".documents.npy"):
        assert (
            as_path(url).with_suffix(suffix).read_bytes()
            == path.with_suffix(suffix).read_bytes()
        )
    assert (
        main(["verify", url]) == 0
        and f"ok      {url}: 3,069 tokens in 31" in capsys.readouterr().out
    )
    layout = ["--sequence-length", "32", "--data"]
    for command in (["inspect"], ["where", "--step", "2", *layout], ["audit", *layout]):
        told = [
            (main([*command, place]), capsys.readouterr().out.split())
            for place in (url, str(path))
        ]
        ours, local = (
            [word for word in words if "new" not in word] for _, words in told
        )
        assert [code for code, _ in told] == [0, 0] and ours == local
    with pytest.raises(
        FileExistsError, match="new_input_ids.npy exists and is left unchanged"
    ):
        run(f"{bucket}/deep/new")
    server.log.clear()
    run(f"{bucket}/deep/new", overwrite=True)
    if "NANOSET_TEST_S3" not in os.environ:
        changes = [
            line
            for line in server.log
            if line.startswith(("PUT", "DELETE")) and "trial" not in line
        ]
        ends = ("DELETE .npy", "PUT .documents.npy", "PUT .json", "PUT .npy")
        assert [line.replace("/tokens/deep/new_input_ids", "") for line in changes] == [
            *ends
        ]
        server.denied.add("PUT /tokens/deep/new_input_ids.json")
        with pytest.raises(StorageError, match="new_input_ids.json: access is denied"):
            run(f"{bucket}/deep/new", overwrite=True)
        assert "/tokens/deep/new_input_ids.npy" not in server.objects, (
            "an old last part beside new ones"
        )
        server.denied.add("PUT /tokens/deep/other_input_ids.nanoset_ref-trial")
        with pytest.raises(
            StorageError, match="other_input_ids.nanoset_ref-trial: access is denied"
        ):
            run(f"{bucket}/deep/other")


def test_a_set_that_was_interrupted_is_written_again_and_a_foreign_companion_is_kept(
    bucket, server
):
    if "NANOSET_TEST_S3" in os.environ:
        return  # only the tests' own server refuses on request
    url = f"{bucket}/again_input_ids.npy"

    def write():
        with TokenFileWriter(url, dtype="uint16", overwrite=True) as writer:
            writer.write_document(range(9))

    server.denied.add("PUT /tokens/again_input_ids.json")
    with pytest.raises(StorageError, match="again_input_ids.json: access is denied"):
        write()
    assert "/tokens/again_input_ids.documents.npy" in server.objects
    server.denied.clear()
    write()
    assert open_tokens(url).tokens[:].tolist() == [*range(9)]
    for name in ("json", "npy"):
        as_path(f"{bucket}/again_input_ids.{name}").unlink()
    companion = "/tokens/again_input_ids.documents.npy"
    foreign = b"another program's notes about documents"
    server.keep(companion, foreign)
    with pytest.raises(FileExistsError, match="was written by another program"):
        write()
    assert as_path(f"{bucket}/again_input_ids.documents.npy").read_bytes() == foreign
    server.denied.add(f"GET {companion}")
    with pytest.raises(StorageError, match="documents.npy: access is denied"):
        write()


def test_large_objects_are_written_in_parts(bucket, server, monkeypatch):
    monkeypatch.setattr(uploads, "MIN_PART_BYTES", 5 << 20)
    with TokenFileWriter(f"{bucket}/large.npy", dtype="uint16") as writer:
        for _ in range(7):
            writer.write_document(np.arange(1_000_000) % 60_000)
    if "NANOSET_TEST_S3" not in os.environ:
        assert [line for line in server.log if "?uploads" in line] == [
            "POST /tokens/large.npy?uploads"
        ]
    assert verify(f"{bucket}/large.npy").startswith("7,000,000 tokens in 7 documents")
    with (
        pytest.raises(ZeroDivisionError),
        TokenFileWriter(f"{bucket}/half.npy", dtype="uint16") as writer,
    ):
        writer.write_document([1])
        writer.write_document([1 / 0])
    assert not as_path(f"{bucket}/half.npy").exists()
