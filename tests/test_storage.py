"""Buckets: rows, resumes and commands as from local files, and one clear line for whatever can go wrong on the way.

The server is the tests' own. NANOSET_TEST_S3=http://127.0.0.1:5000 takes another one for s3://, such as moto's.
"""

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from bucket_server import BucketServer, server_of_process
from hypothesis import given
from hypothesis import strategies as st
from run_config import run_tree

from nanoset_ref.cli import main
from nanoset_ref.io import bucket_ranges, buckets, object_versions, threads, uploads
from nanoset_ref.io.error_text import one_line
from nanoset_ref.io.object_versions import ObjectVersion
from nanoset_ref.io.paths import as_path
from nanoset_ref.io.urls import BucketPath, StorageError, local_copy
from nanoset_ref.load import collator
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.preprocess import preprocess
from nanoset_ref.tokens import (
    TokenFileError,
    TokenFileWriter,
    convert,
    describe,
    open_tokens,
    verify,
    without_companions,
)
from nanoset_ref.tokens.content import content_hash, document_blocks, hash_blocks
from nanoset_ref.train import Config, ConfigError, load_config, stages_of
from nanoset_ref.train import main as train
from nanoset_ref.train.data_config import TokenFilesConfig

N, S = 600, 32


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
        "NANOSET_REF_TIMEOUT": "3",
    }.items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(
        urllib.request.Request(f"{variables['AWS_ENDPOINT_URL']}/tokens", method="PUT")
    )
    for file in folder.iterdir():
        buckets.call_obstore(
            BucketPath(f"s3://tokens/{file.name}"), "put", file.read_bytes()
        )
        server.keep(f"/tokens/{file.name}", file.read_bytes())
    server.log.clear()
    return "s3://tokens"


def dataset(place, names="ab", **options):
    return Nanoset([f"{place}/{name}.npy" for name in names], None, S, N, **options)


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_rows_documents_and_plan_are_those_of_the_local_files(
    bucket, folder, server, scheme
):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    ours, local = dataset(place), dataset(folder)
    mixed = Nanoset([f"{place}/a.npy", folder / "b.npy"], None, S, N)
    positions = np.arange(N)
    for rows in (ours, mixed):
        assert np.array_equal(rows.read(positions), local.read(positions))
        assert np.array_equal(rows.starts(positions), local.starts(positions))
        assert (rows.plan, rows.fingerprint) == (local.plan, local.fingerprint)
    ids, same = ours.files[1].tokens, local.files[1].tokens
    for index in (
        slice(3, 900),
        slice(-5, None),
        slice(0, 0),
        0,
        -1,
        np.array([5, 900, 2]),
    ):
        assert np.array_equal(ids[index], same[index]) and np.shape(
            ids[index]
        ) == np.shape(same[index])
    assert len(ids) == len(same) and str(ours.files[0].path) == f"{place}/a.npy"
    raw = [open_tokens(f"{where}/raw.npy", eos_token_id=7) for where in (place, folder)]
    assert raw[0].manifest is None and np.array_equal(
        raw[0].document_offsets, raw[1].document_offsets
    )
    assert verify(f"{place}/a.npy") == verify(folder / "a.npy")
    assert describe(raw[0]) == describe(raw[1]) | {"path": f"{place}/raw.npy"}


def test_megatrons_samples_from_a_bucket_take_one_round_of_requests(
    bucket, folder, server
):
    options = {"split": "1,0,0", "split_num_samples": (40, None, None)}
    ours, local = (
        NanosetBuilder(
            NanosetConfig(
                random_seed=5, sequence_length=S, data_path=[f"{place}/a"], **options
            )
        ).build()[0]
        for place in (bucket, folder)
    )
    positions = np.arange(len(local))
    server.log.clear()
    assert np.array_equal(ours.read(positions), local.read(positions))
    assert len(server.log) < len(local)


def test_chosen_documents_take_one_round_of_requests(bucket, folder, server):
    ours, local = (open_tokens(f"{place}/b.npy") for place in (bucket, folder))
    chosen = np.arange(1, ours.require_document_offsets().size - 1, 2)
    server.latency, server.most = 0.1, 0
    hashes = [hash_blocks(document_blocks(file, chosen)) for file in (ours, local)]
    assert hashes[0] == hashes[1]
    assert server.most > 10


@pytest.mark.parametrize("name", ["a.bin", "a.idx", "a.ds"])
@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_pairs_and_ds_files_are_read_by_ranges(bucket, folder, server, scheme, name):
    place = bucket if scheme == "s3" else f"http://127.0.0.1:{server.port}/tokens"
    there, here = open_tokens(f"{place}/{name}"), open_tokens(folder / name)
    assert np.array_equal(there.document_offsets, here.document_offsets)
    assert (there.dtype, there.num_tokens) == (here.dtype, here.num_tokens)
    assert there.checksum == here.checksum is not None
    assert there.check_content() and content_hash(there) == content_hash(here)
    server.log.clear()
    server.sent = 0
    rows, same = (
        Nanoset([file], None, S, 40, order="stateless") for file in (there, here)
    )
    assert np.array_equal(rows.read(np.arange(40)), same.read(np.arange(40)))
    assert np.array_equal(rows.starts(np.arange(40)), same.starts(np.arange(40)))
    assert server.sent < 40 * (S + 1) * 2 + 40 * bucket_ranges.MAX_GAP
    again = pickle.loads(pickle.dumps(there))
    assert np.array_equal(again.tokens[5:9], here.tokens[5:9])
    if name != "a.ds":
        assert np.array_equal(there[3], here[3])
        assert f"'{place}/a'" in repr(there)
        server.keep("/tokens/a.bin", (folder / "a.bin").read_bytes()[:-2])
        with pytest.raises(
            TokenFileError, match=f"{place}/a.bin has .* bytes, but its index a.idx"
        ):
            open_tokens(f"{place}/{name}")


def loader_of(rows, **options):
    return build_nanoset_dataloader(
        rows, micro_batch_size=8, dp_rank=1, dp_size=2, **options
    )


def batches_of(loader, count=None):
    return [
        torch.as_tensor(batch["input_ids"]).clone() for batch in islice(loader, count)
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_ahead": 2},
        {"num_loading_workers": 1, "multiprocessing_context": "spawn"},
    ],
)
def test_a_resume_goes_on_where_a_local_one_would(bucket, folder, options):
    whole = batches_of(loader_of(dataset(folder)))
    loader = loader_of(dataset(bucket), **options)
    begun = batches_of(loader, 3)
    resumed = loader_of(dataset(bucket), read_ahead=1)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert len(whole) == N // 16 and resumed.consumed_train_samples == 48
    assert torch.equal(torch.stack(whole), torch.stack(begun + batches_of(resumed)))


def test_many_ranges_are_under_way_at_once_and_no_more_bytes_than_rows_have(
    bucket, folder, server
):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", order="stateless")
    server.latency, server.sent, server.most = 0.1, 0, 0
    rows.read(np.arange(0, N, 3))
    assert server.most > 30
    assert server.sent < 200 * (S + 1) * 4 + 60 * bucket_ranges.MAX_GAP


@pytest.mark.parametrize("fault", [500, 503, "cut", "half", "stall"])
def test_a_server_with_faults_is_asked_again_and_given_up(
    bucket, folder, server, fault
):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", "a")
    expected, positions = dataset(folder, "a").read(np.arange(9)), np.arange(9)
    server.faults += [fault] * 3
    assert np.array_equal(rows.read(positions), expected)
    assert not server.faults
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


@pytest.mark.parametrize("read_ahead", [0, 2])
def test_ctrl_c_does_not_wait_for_a_server_that_stalls(
    bucket, folder, server, read_ahead, monkeypatch
):
    """A request is given up after some seconds, and nobody should wait for that after Ctrl-C."""
    monkeypatch.setenv("NANOSET_REF_TIMEOUT", "60")
    loader = loader_of(dataset(bucket), read_ahead=read_ahead)
    server.faults += ["stall"] * 100_000

    ended = threading.Event()

    def interrupt_the_first_request():
        while not (server.stalled or ended.is_set()):
            time.sleep(0.01)
        if not ended.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt_the_first_request, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    finally:
        ended.set()
    assert server.stalled, "every request was given up before Ctrl-C came through"
    assert loader.consumed_train_samples == 0
    server.faults.clear()
    server.cut_stalled()
    expected = batches_of(loader_of(dataset(folder)))
    assert torch.equal(torch.stack(batches_of(loader)), torch.stack(expected))


def test_ctrl_c_does_not_wait_for_a_call_and_later_calls_are_answered():
    """In `Executor.map` a lock could stay taken, for which every later call waited."""
    main = threading.main_thread().ident
    waiting = threading.Event()

    def call(number):
        if number == 7:
            signal.pthread_kill(main, signal.SIGINT)
            waiting.wait()
        return -number

    with pytest.raises(KeyboardInterrupt):
        threads.thread_map(call, range(100), 4)
    assert threads.thread_map(abs, range(-100, 0), 4) == [*range(100, 0, -1)]
    waiting.set()
    with pytest.raises(ZeroDivisionError):
        threads.thread_map(lambda number: 1 // number, [1, 0, 2], 4)


def test_ctrl_c_while_calls_are_handed_out_leaves_none_behind(monkeypatch):
    called = []

    @contextlib.contextmanager
    def interrupted():
        yield
        raise KeyboardInterrupt

    def call(number):
        called.append(number)
        hold.wait()

    hold = threading.Event()
    monkeypatch.setattr(threads, "deferred_signals", interrupted)
    with pytest.raises(KeyboardInterrupt):
        threads.thread_map(call, range(100), 4)
    hold.set()
    monkeypatch.undo()
    assert threads.thread_map(abs, range(-100, 0), 4) == [*range(100, 0, -1)]
    assert len(called) <= 4


def test_batches_stay_lazy_copies_beside_the_threads_that_read_a_bucket(
    bucket, folder, monkeypatch
):
    next(iter(loader_of(dataset(bucket))))
    readers = threads._pool(bucket_ranges.THREADS, os.getpid())._threads
    assert readers
    running = [threading.main_thread(), *readers]
    monkeypatch.setattr(collator.threading, "enumerate", lambda: running)
    assert torch._C._is_cow_tensor(collator.writable_copy(torch.zeros(3)))
    running.append(threading.Thread(name="of the caller"))
    assert not torch._C._is_cow_tensor(collator.writable_copy(torch.zeros(3)))


def test_an_answer_that_is_too_short_is_asked_for_again(bucket, folder, server):
    rows, expected = (
        dataset(f"http://127.0.0.1:{server.port}/tokens", "a"),
        dataset(folder, "a").read(np.arange(9)),
    )
    server.faults += ["short"] * 3
    assert np.array_equal(rows.read(np.arange(9)), expected)
    server.faults += ["short"] * 100_000
    with pytest.raises(StorageError, match="a.npy: the server sends less than its"):
        rows.read(np.arange(1))


@pytest.mark.parametrize("fault", ["cut", "short", 503])
def test_a_server_that_never_answers_well_is_given_up_within_the_limit_and_the_log_says_that_it_waits(
    bucket, server, monkeypatch, caplog, fault
):
    rows, now = dataset(f"http://127.0.0.1:{server.port}/tokens", "a"), [0.0]
    monkeypatch.setattr(
        buckets.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    monkeypatch.setattr(buckets.time, "monotonic", lambda: now[0])
    buckets._next_warning.clear()
    server.faults += [fault] * 100_000
    with pytest.raises(StorageError):
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


def test_a_server_without_ranges_is_called_so(bucket, server):
    rows = dataset(f"http://127.0.0.1:{server.port}/tokens", "a")
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


def test_no_password_and_no_signed_query_is_shown(bucket, server, monkeypatch, caplog):
    hidden = ("password", "signature", "somebody")

    def says_nothing(text):
        assert text and not [word for word in hidden if word in str(text)]

    place = f"http://somebody:password@127.0.0.1:{server.port}/tokens"
    query = "?X-Signature=signature"
    monkeypatch.setenv("NANOSET_REF_TIMEOUT", "0.3")
    rows = Nanoset([f"{place}/a.npy{query}"], None, S, N)
    rows.read(np.arange(9))
    loader = loader_of(rows)
    for shown in (
        rows,
        rows.files[0],
        rows.files[0].path,
        rows.plan,
        rows.summary(),
        loader.state_dict(),
        rows.usage(0, 9),
    ):
        says_nothing(repr(shown))
    for name, fault in (
        ("none.npy", None),
        ("a.npy", 500),
        ("a.npy", 403),
        ("a.npy", "cut"),
        ("a.npy", "whole"),
    ):
        server.faults += [fault] * 1000 if fault else []
        with pytest.raises(OSError, match="http://127.0.0.1:") as error:
            open_tokens(f"{place}/{name}{query}", "uint16")
        server.faults.clear()
        says_nothing(error.value)
        assert error.value.__cause__ is None and error.value.__context__ is None
    with pytest.raises(OSError, match="the server cannot be reached") as error:
        open_tokens(f"http://somebody:password@127.0.0.1:9/a.npy{query}")
    says_nothing(error.value), says_nothing(caplog.text)


def test_urls_in_a_message_are_redacted_and_the_rest_of_it_stays():
    said = "no (http://me:word@host/a?b=1), 'HTTP://host/a?b': s3://b/k?c, x?y; http://host/a?...: why"
    shown = "no (http://host/a?...), 'HTTP://host/a?...': s3://b/k?c, x?y; http://host/a?...: why"
    assert one_line(said) == one_line(shown) == shown


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("verify URL", 0),
        ("verify URL --json", 0),
        ("verify URL --vocab-size 3", 1),
        ("estimate --data URL", 0),
        ("estimate --data URL --json", 0),
        ("estimate --data PAIR --json", 0),
        ("where 1 --data URL", 0),
        ("where 1 --data URL URL=0.5", 1),
        ("where 1 --data URL=1-2", 1),
        ("preprocess --input URL --output-prefix x --tokenizer-name-or-path x", 1),
        ("split URL URL URL --held-out 5", 1),
        ("card TWICE --name x --date 2026-11", 1),
        ("card NUMBER --name x --date 2026-11", 1),
        ("card DUPLICATE --name x --date 2026-11", 1),
        ("card NOTHING --name x --date 2026-11", 1),
        ("card DTYPE --name x --date 2026-11", 1),
        ("card CONTINUED --name x --date 2026-11", 1),
        ("card MEGATRON --name x --date 2026-11", 1),
    ],
)
def test_commands_show_no_password_and_no_signed_query(
    bucket, server, tmp_path, monkeypatch, capsys, command, code
):
    monkeypatch.chdir(tmp_path)
    server_of_url = f"http://somebody:password@127.0.0.1:{server.port}/tokens"
    url = f"{server_of_url}/a.npy?sig=signature"
    configs = {
        "TWICE": {"dataset_path": [url, url]},
        "NUMBER": {"dataset_path": {url: "x"}},
        "NOTHING": url,
        "DUPLICATE": {"dataset_path": {url: 1, "again": 1}},
        "DTYPE": {"dataset_path": [url], "token_dtype": "int32"},
        "CONTINUED": {"dataset_path": [url], "order": "stateless"},
        "MEGATRON": {"data_path": {url: None}, "split": "1"},
    }
    words = command.split()
    for name in configs.keys() & {*words}:
        stages = [("one", 1, configs[name], {})]
        if name == "CONTINUED":
            later = configs[name] | {"token_dtype": "uint16"}
            stages.append(("two", 5, later, {}))
        tree = run_tree(tmp_path / "run", stages, steps=9, length=16, rows=4)
        Path(name).write_text(json.dumps(tree).replace("again", url))
    if "--data" in words:
        words += "--sequence-length 16 --num-samples 50".split()
    pair = url.replace(".npy", ".bin")
    words = [word.replace("URL", url).replace("PAIR", pair) for word in words]
    assert main(words) == code
    shown = "".join(capsys.readouterr())
    assert "?..." in shown
    assert not [word for word in ("somebody", "pass", "sig") if word in shown]


def test_a_signed_url_is_read_with_its_companions_or_says_why_not(
    bucket, folder, server
):
    url = f"http://127.0.0.1:{server.port}/tokens/raw.npy?sig=1%2F2"
    server.signed = {"GET /tokens/raw.npy?sig=1%2F2"}
    with pytest.raises(
        StorageError,
        match=r"raw.json\?...: access is denied: a signed query opens one object",
    ):
        open_tokens(url)
    rows = Nanoset([open_tokens(url, "uint16")], None, S, N)
    assert np.array_equal(
        rows.read(np.arange(9)), dataset(folder, ["raw"]).read(np.arange(9))
    )
    state = loader_of(rows).state_dict()
    assert state["plan"]["files"][0]["known_by"] == "probes"
    assert "checksum" not in verify(open_tokens(url, "uint16", 7))
    url = url.replace("raw", "a")
    server.signed = {
        f"GET /tokens/a{end}?sig=1%2F2"
        for end in (".npy", ".json", ".documents.npy", ".sources.npz")
    }
    signed, local = open_tokens(url), open_tokens(folder / "a.npy")
    assert signed.facts == local.facts and np.array_equal(
        signed.document_offsets, local.document_offsets
    )


@pytest.mark.parametrize("name", ["raw.npy", "a.bin"])
def test_companions_that_a_server_denies_are_taken_to_be_absent(bucket, server, name):
    """Without the right to list a bucket, a server denies absent objects, too."""
    for suffix in (".json", ".documents.npy", ".npy.seal", ".seal"):
        server.denied.add(f"HEAD /tokens/{name.partition('.')[0]}{suffix}")
    file = open_tokens(f"{bucket}/{name}", "uint16", 7)
    state = loader_of(Nanoset([file], None, S, N)).state_dict()
    assert state["plan"]["files"][0]["known_by"] == "probes"
    assert "checksum" not in verify(file)


@pytest.mark.parametrize("query", ["", "?sig=1%2F2"])
def test_a_seal_is_sought_with_the_password_and_query_of_its_file(
    bucket, server, query
):
    url = f"http://somebody:password@127.0.0.1:{server.port}/tokens/raw.npy"
    file = open_tokens(url + query)
    assert os.fspath(file.seal_path) == f"{url}.seal{query}"
    assert file.checksum is None


def test_verify_seals_a_file_in_a_bucket(bucket, folder, server, capsys):
    for _ in range(2):
        assert not main(["verify", f"{bucket}/raw.npy", "--seal", "--eos-token-id=7"])
    assert capsys.readouterr().out.count("sealed as it is now") == 1
    content, _ = server.objects.pop("/tokens/raw.npy.seal")
    assert json.loads(content) == open_tokens(folder / "raw.npy").content_checksum()


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


INDEXES = st.one_of(
    st.integers(-12, 12),
    st.slices(10),
    st.builds(
        slice,
        *[st.none() | st.integers(-13, 13)] * 2,
        st.none() | st.integers(1, 4) | st.integers(-4, -1),
    ),
    st.lists(st.integers(-11, 11), max_size=5),
    st.lists(st.integers(-10, 9), min_size=4, max_size=4).map(
        lambda it: np.array(it, np.int16).reshape(2, 2)
    ),
    st.lists(st.booleans(), min_size=10, max_size=10).map(np.array),
    st.sampled_from([np.uint64(3), np.int8(-1), 1.0, "1", [0.5]]),
)


@given(INDEXES)
def test_ids_in_a_bucket_are_indexed_as_in_numpy(index):
    ids = np.arange(100, 110, dtype="<u2")
    far = bucket_ranges.BucketIds(
        BucketPath("s3://b/k"), ObjectVersion(ids.nbytes, '"e"'), ids.dtype
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            bucket_ranges,
            "fetch",
            lambda extents: [ids.tobytes()[begin:end] for _, begin, end in extents],
        )
        try:
            expected = ids[index]
        except IndexError:
            with pytest.raises(IndexError):
                far[index]
            return
        found = far[index]
        assert np.array_equal(found, expected) and np.shape(found) == np.shape(expected)


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
def test_what_is_missing_is_said_in_one_line(
    bucket, folder, server, capsys, url, words
):
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


def test_training_from_a_bucket_has_the_losses_of_training_from_the_disk(
    bucket, folder, tmp_path, capsys
):
    losses, path = [], tmp_path / "run.yaml"
    for name, place, options in (
        ("local", folder, {}),
        ("bucket", bucket, {"read_ahead": 2}),
    ):
        stages = [("one", 1, {"dataset_path": f"{place}/a.npy"}, options)]
        path.write_text(
            json.dumps(run_tree(tmp_path / name, stages, steps=3, length=S))
        )
        assert train(["--config", str(path)]) == 0, capsys.readouterr().err
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert losses[0] == losses[1] and len(losses[0]) == 3
