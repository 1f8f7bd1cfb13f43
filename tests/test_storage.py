"""Buckets: rows, resumes and commands as from local files, and one clear line for whatever can go wrong on the way.

The server is the tests' own. NANOSET_TEST_S3=http://127.0.0.1:5000 takes another one for s3://, such as moto's.
"""

import json
import multiprocessing
import os
import sys
import urllib.request
from itertools import islice

import numpy as np
import pytest
import torch
from bucket_server import server_of_process
from run_config import run_tree

from nanoset_ref import storage
from nanoset_ref.cli import main
from nanoset_ref.dataloader import build_nanoset_dataloader
from nanoset_ref.formats import describe, verify
from nanoset_ref.nanoset import Nanoset
from nanoset_ref.preprocess import preprocess
from nanoset_ref.tokens import TokenFileWriter, open_tokens
from nanoset_ref.train import main as train

N, S = 600, 32


@pytest.fixture(scope="module")
def server():
    return server_of_process()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    random = np.random.RandomState(1)
    for name, dtype in (("a", "uint16"), ("b", "int32")):
        with TokenFileWriter(folder / f"{name}.npy", dtype=dtype, vocab_size=300, eos_token_id=7) as writer:
            for length in random.randint(0, 400, 60):
                writer.write_document(random.randint(0, 300, length))
    (folder / "raw.npy").write_bytes((folder / "a.npy").read_bytes())
    return folder


@pytest.fixture
def bucket(server, folder, monkeypatch):
    """The URL of a bucket with the files of `folder`, on a server without faults."""
    server.faults.clear()
    server.denied.clear()
    server.latency = 0.0
    variables = {"AWS_ENDPOINT_URL": os.environ.get("NANOSET_TEST_S3", f"http://127.0.0.1:{server.port}")}
    variables |= dict.fromkeys(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "test")
    for name, value in {**variables, "AWS_REGION": "us-east-1", "NANOSET_REF_TIMEOUT": "3"}.items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{variables['AWS_ENDPOINT_URL']}/tokens", method="PUT"))
    for file in folder.iterdir():
        storage.BucketPath(f"s3://tokens/{file.name}").ask("put", file.read_bytes())
        server.keep(f"/tokens/{file.name}", file.read_bytes())
    server.log.clear()
    return "s3://tokens"


def dataset(place, names="ab", **options):
    return Nanoset([f"{place}/{name}.npy" for name in names], None, S, N, **options)


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_rows_documents_and_plan_are_those_of_the_local_files(bucket, folder, server, scheme):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    ours, local = dataset(place), dataset(folder)
    mixed = Nanoset([f"{place}/a.npy", folder / "b.npy"], None, S, N)
    positions = np.arange(N)
    for rows in (ours, mixed):
        assert np.array_equal(rows.read(positions), local.read(positions))
        assert np.array_equal(rows.starts(positions), local.starts(positions))
        assert (rows.plan, rows.fingerprint) == (local.plan, local.fingerprint)
    ids, same = ours.files[1].tokens, local.files[1].tokens
    for index in (slice(3, 900), slice(-5, None), slice(0, 0), 0, -1, np.array([5, 900, 2])):
        assert np.array_equal(ids[index], same[index]) and np.shape(ids[index]) == np.shape(same[index])
    assert len(ids) == len(same) and str(ours.files[0].path) == f"{place}/a.npy"
    raw = [open_tokens(f"{where}/raw.npy", eos_token_id=7) for where in (place, folder)]
    assert raw[0].manifest is None and np.array_equal(raw[0].document_offsets, raw[1].document_offsets)
    assert verify(f"{place}/a.npy") == verify(folder / "a.npy")
    assert describe(raw[0]) == describe(raw[1]) | {"path": f"{place}/raw.npy"}


def loader_of(rows, **options):
    return build_nanoset_dataloader(rows, micro_batch_size=8, dp_rank=1, dp_size=2, **options)


def batches_of(loader, count=None):
    return [torch.as_tensor(batch["input_ids"]).clone() for batch in islice(loader, count)]


@pytest.mark.parametrize(
    "options", [{}, {"read_ahead": 2}, {"num_loading_workers": 1, "multiprocessing_context": "spawn"}]
)
def test_a_resume_goes_on_where_a_local_one_would(bucket, folder, options):
    whole = batches_of(loader_of(dataset(folder)))
    loader = loader_of(dataset(bucket), **options)
    begun = batches_of(loader, 3)
    resumed = loader_of(dataset(bucket), read_ahead=1)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert len(whole) == N // 16 and resumed.consumed_train_samples == 48
    assert torch.equal(torch.stack(whole), torch.stack(begun + batches_of(resumed)))


def test_many_ranges_are_under_way_at_once_and_no_more_bytes_than_rows_have(bucket, folder, server):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", order="stateless")
    server.latency, server.sent, server.most = 0.1, 0, 0
    rows.read(np.arange(0, N, 3))
    assert server.most > 30
    assert server.sent < 200 * (S + 1) * 4 + 60 * storage.GAP


@pytest.mark.parametrize("fault", [500, 503, "cut", "half", "stall"])
def test_a_server_with_faults_is_asked_again_and_given_up(bucket, folder, server, fault):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", "a")
    expected, positions = dataset(folder, "a").read(np.arange(9)), np.arange(9)
    server.faults += [fault] * 3
    assert np.array_equal(rows.read(positions), expected)
    assert not server.faults
    server.faults += [fault] * 100_000
    with pytest.raises(OSError, match=r"^http.*a.npy: the server is not there, fails or falls silent") as error:
        rows.read(positions[:1])
    assert "\n" not in str(error.value)
    server.faults.clear()


def test_an_answer_that_is_too_short_is_no_row(bucket, server):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", "a")
    server.faults += ["short"]
    with pytest.raises(storage.StorageError, match="sends fewer bytes than asked for"):
        rows.read(np.arange(1))


def test_an_object_that_is_replaced_under_its_reader_is_noticed(bucket, folder):
    rows = dataset(bucket, "a")
    rows.read(np.arange(5))
    storage.BucketPath(f"{bucket}/a.npy").ask("put", bytes(reversed((folder / "a.npy").read_bytes())))
    with pytest.raises(storage.StorageError, match="a.npy was replaced after it was opened; build the dataset again"):
        rows.read(np.arange(5))
    with pytest.raises(ValueError, match="was replaced or changed after it was opened"):
        rows.files[0].check_unchanged()


@pytest.mark.filterwarnings("ignore:This process")
def test_forked_workers_are_refused_in_a_line_that_names_the_thread(bucket, folder):
    rows = dataset(bucket)
    with pytest.raises(storage.StorageError, match=r"a.npy: forked workers cannot read from a bucket; .* read_ahead=2"):
        loader_of(rows, num_loading_workers=1, multiprocessing_context="fork")
    loader_of(dataset(folder), num_loading_workers=1, multiprocessing_context="fork")

    def read():
        with pytest.raises(storage.StorageError, match="a forked process cannot read from the bucket"):
            rows.read(np.arange(1))

    child = multiprocessing.get_context("fork").Process(target=read)
    child.start()
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://tokens/none.npy", "no token file at URL"),
        ("s3://nowhere/a.npy", "no token file at URL"),
        ("s3://tokens/denied.npy", "URL: access is denied, or credentials are missing: set AWS_ACCESS_KEY_ID and"),
        ("http://127.0.0.1:9/a.npy", "URL: the server is not there, fails or falls silent"),
        ("https://nowhere.invalid/a.npy", "URL: the server is not there"),
        ("az://container/a.npy", "URL: "),
        ("s3://tokens/a.bin", "URL: of a bucket .npy token files are read; nanoset-ref convert makes one"),
        ("s3://tokens", "no token file at s3:/tokens"),
        ("s3://tokens/c.npy", "URL: only preprocess writes into a bucket"),
    ],
)
def test_what_is_missing_is_said_in_one_line(bucket, folder, server, capsys, url, words):
    if "NANOSET_TEST_S3" in os.environ and "denied" in url:
        words = "no token file"
    server.denied.add("HEAD /tokens/denied.npy")
    command = ["convert", str(folder / "a.npy")] if "writes" in words else ["inspect"]
    assert main([*command, url]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"nanoset-ref {command[0]}: error: {words.replace('URL', url)}") and said.count("\n") == 1


def test_without_the_extra_a_line_names_it_and_local_files_do_not_ask_for_it(bucket, folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert main(["inspect", f"{bucket}/a.npy"]) == 1
    assert capsys.readouterr().err.endswith("a bucket is read by obstore: pip install 'nanoset_ref[bucket]'\n")
    assert main(["inspect", str(folder / "a.npy")]) == 0 and len(dataset(folder).read(np.arange(N))) == N


def test_preprocess_writes_a_set_that_the_tool_reads_and_the_last_part_makes_it_valid(
    bucket, server, golden, tmp_path, monkeypatch, capsys
):
    def run(prefix, **options):
        return preprocess(
            golden / "preprocess" / "input.json", prefix, golden / "tokenizer", column="body", backend="hf", **options
        )

    run(tmp_path / "new"), run(f"{bucket}/deep/new")
    url, path = f"{bucket}/deep/new_input_ids.npy", tmp_path / "new_input_ids.npy"
    for suffix in (".npy", ".json", ".documents.npy"):
        assert storage.located(url).with_suffix(suffix).read_bytes() == path.with_suffix(suffix).read_bytes()
    assert main(["verify", url]) == 0 and f"ok      {url}: 3,069 tokens in 31" in capsys.readouterr().out
    layout = ["--sequence-length", "32", "--data"]
    for command in (["inspect"], ["where", "--step", "2", *layout], ["audit", *layout]):
        told = [(main([*command, place]), capsys.readouterr().out.split()) for place in (url, str(path))]
        ours, local = ([word for word in words if "new" not in word] for _, words in told)
        assert [code for code, _ in told] == [0, 0] and ours == local
    with pytest.raises(FileExistsError, match="new_input_ids.npy exists and is left unchanged"):
        run(f"{bucket}/deep/new")
    server.log.clear()
    run(f"{bucket}/deep/new", overwrite=True)
    if "NANOSET_TEST_S3" not in os.environ:
        changes = [line for line in server.log if line.startswith(("PUT", "DELETE")) and "trial" not in line]
        ends = ("DELETE .npy", "PUT .documents.npy", "PUT .json", "PUT .npy")
        assert [line.replace("/tokens/deep/new_input_ids", "") for line in changes] == [*ends]
        server.denied.add("PUT /tokens/deep/new_input_ids.json")
        with pytest.raises(storage.StorageError, match="new_input_ids.json: access is denied"):
            run(f"{bucket}/deep/new", overwrite=True)
        assert "/tokens/deep/new_input_ids.npy" not in server.objects, "an old last part beside new ones"
        server.denied.add("PUT /tokens/deep/other_input_ids.trial")
        with pytest.raises(storage.StorageError, match="other_input_ids.trial: access is denied"):
            run(f"{bucket}/deep/other")


def test_large_objects_are_written_in_parts(bucket, server, monkeypatch):
    monkeypatch.setattr(storage, "LEAST_PART", 5 << 20)
    with TokenFileWriter(f"{bucket}/large.npy", dtype="uint16") as writer:
        for _ in range(7):
            writer.write_document(np.arange(1_000_000) % 60_000)
    if "NANOSET_TEST_S3" not in os.environ:
        assert [line for line in server.log if "?uploads" in line] == ["POST /tokens/large.npy?uploads"]
    assert verify(f"{bucket}/large.npy").startswith("7,000,000 tokens in 7 documents")
    with pytest.raises(ZeroDivisionError), TokenFileWriter(f"{bucket}/half.npy", dtype="uint16") as writer:
        writer.write_document([1])
        writer.write_document([1 / 0])
    assert not storage.located(f"{bucket}/half.npy").exists()


def test_training_from_a_bucket_has_the_losses_of_training_from_the_disk(bucket, folder, tmp_path, capsys):
    losses, path = [], tmp_path / "run.yaml"
    for name, place, options in (("local", folder, {}), ("bucket", bucket, {"read_ahead": 2})):
        stages = [("one", 1, {"dataset_path": f"{place}/a.npy"}, options)]
        path.write_text(json.dumps(run_tree(tmp_path / name, stages, steps=3, length=S)))
        assert train(["--config", str(path)]) == 0, capsys.readouterr().err
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert losses[0] == losses[1] and len(losses[0]) == 3
