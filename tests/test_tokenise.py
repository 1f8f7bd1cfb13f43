"""The engine: one result whoever does the work, one job per target, and nothing left of a job that died."""

import gzip
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanoset_ref.text import InputError, open_text
from nanoset_ref.text import parts as parts_module
from nanoset_ref.tokenise import EncoderConfig, JobError, Ranks, tokenise
from nanoset_ref.tokenise.cutting import StretchCutter
from nanoset_ref.tokenise.encode import Encoder, load_tokenizer
from nanoset_ref.tokenise.work import Share

TEXTS = [f"document {k} of this corpus " + "word " * (k % 11) for k in range(300)]


class ListSink(list):
    """Keeps what is written; knows whether it was left in good order."""

    complete = False

    def write(self, ids, lengths):
        self.extend(one.tolist() for one in np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths))


@contextmanager
def list_sink(encoder, *, into):
    yield into
    into.complete = True


@pytest.fixture(scope="module")
def encoder(golden):
    return Encoder(load_tokenizer(golden / "tokenizer"), backend="hf")


@pytest.fixture
def corpus(tmp_path):
    """Three files, plain and compressed, of 100 documents each."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number, name in enumerate(("a.jsonl", "b.jsonl.gz", "c.jsonl")):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[100 * number : 100 * number + 100]).encode()
        (folder / name).write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    return folder


def config(golden, **options):
    return EncoderConfig(tokenizer=str(golden / "tokenizer"), **options)


def expected(encoder, texts=TEXTS):
    ids, lengths = encoder.encode_batch(texts)
    return [one.tolist() for one in np.split(ids, np.cumsum(lengths)[:-1])]


# ------------------------------------------------------------------------------------------------ shares


def rank_of(rank, size):
    ranks = Ranks()
    ranks.rank, ranks.size = rank, size
    return ranks


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(1, 40), block_bytes=st.integers(100, 3000))
def test_shares_of_any_number_of_ranks_are_the_whole_in_order(corpus, size, block_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts_module, "BLOCK_BYTES", block_bytes)
        source = open_text(corpus)
        shares = [[block.begin for block in source.blocks(rank, size)] for rank in range(size)]
        assert sum(shares, []) == [block.begin for block in source.blocks()]
        texts = [one.text for rank in range(size) for block in source.blocks(rank, size) for one in block.documents()]
    assert texts == TEXTS


def test_what_ranks_hand_over_is_what_one_process_encodes(corpus, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "BLOCK_BYTES", 500)
    source, sink = open_text(corpus), ListSink()
    for rank in range(5):
        share = Share(rank_of(rank, 5), source, encoder, shown=False)
        share.hand_over(tmp_path / str(rank))
        with pytest.raises(FileExistsError):  # another process with this rank
            share.hand_over(tmp_path / str(rank))
        for ids, lengths in share.handed_over(tmp_path / str(rank)):
            sink.write(ids, lengths)
    assert sink == expected(encoder)


def test_the_progress_moves_inside_a_huge_document(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("nanoset_ref.tokenise.encode.BATCH_CHARS", 5_000)
    monkeypatch.setattr(encoder, "_cutter", StretchCutter(encoder.tokenizer.backend_tokenizer, 1_000))
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["x", "some words " * 10_000, "y"]))
    source, seen = open_text(path), []
    share = Share(Ranks(), source, encoder, shown=True)
    monkeypatch.setattr(share._bar, "update", lambda n: seen.append(n))
    assert len(list(share.encoded())) < len(seen)
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[len(seen) // 2] < 0.8 * source.num_bytes
    assert seen[-1] == source.num_bytes


# ------------------------------------------------------------------------------------------------ jobs


@pytest.mark.parametrize("workers", [1, 3])
def test_local_workers_give_what_one_process_gives(corpus, encoder, golden, tmp_path, workers):
    (corpus / "b.jsonl").write_text('{"text": "ok"}\nnot json\n{"body": 1}\n{"text": 2}\nnot json\n')
    sink = ListSink()
    counts = tokenise(
        partial(open_text, corpus, on_error="skip"),
        config(golden, backend="hf", append_eod=True),
        partial(list_sink, into=sink),
        tmp_path / "target",
        workers=workers,
    )
    texts = [*TEXTS[:100], "ok", *TEXTS[100:]]
    assert sink == [[*ids, 2] for ids in expected(encoder, texts)]
    assert sink.complete
    assert counts.documents == 301
    assert counts.tokens == sum(map(len, sink))
    assert counts.skipped == {"invalid JSON": 2, "missing column": 1, "not a string": 1}
    assert counts.backend == "hf"
    assert os.listdir(tmp_path) == ["corpus"]


def test_an_error_of_a_local_worker_ends_the_job_with_its_message(corpus, golden, tmp_path):
    (corpus / "c.jsonl").write_text('{"text": "ok"}\n{"text": \n')
    sink = ListSink()
    with pytest.raises(InputError, match=r"c.jsonl:2: not JSON"):
        tokenise(
            partial(open_text, corpus),
            config(golden, backend="hf"),
            partial(list_sink, into=sink),
            tmp_path / "target",
            workers=2,
        )
    assert not sink.complete
    assert multiprocessing.active_children() == []
    assert os.listdir(tmp_path) == ["corpus"]


def test_a_killed_local_worker_ends_the_job_at_once(corpus, golden, tmp_path, monkeypatch):
    monkeypatch.setattr("nanoset_ref.tokenise.encode.BATCH_DOCUMENTS", 5)  # work for both workers

    def kill():
        while not (children := multiprocessing.active_children()):
            time.sleep(0.01)
        os.kill(children[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    sink = ListSink()
    with pytest.raises(JobError, match=r"worker \d \(pid \d+\) was killed by SIGKILL amid its work; nothing was"):
        tokenise(
            partial(open_text, corpus), config(golden), partial(list_sink, into=sink), tmp_path / "target", workers=2
        )
    killer.join()
    assert not sink.complete
    assert multiprocessing.active_children() == []
    assert os.listdir(tmp_path) == ["corpus"]


def test_two_jobs_on_one_target_collide_and_on_two_do_not(corpus, golden, tmp_path):
    work = partial(tokenise, partial(open_text, corpus), config(golden, backend="hf"))

    @contextmanager
    def while_another_job_runs(encoder):
        with pytest.raises(JobError, match=r"another job is writing .*target; wait for it or choose another output"):
            work(partial(list_sink, into=ListSink()), tmp_path / "target")
        work(partial(list_sink, into=ListSink()), tmp_path / "target_2")
        yield ListSink()

    work(while_another_job_runs, tmp_path / "target")
    assert os.listdir(tmp_path) == ["corpus"]


def test_what_a_dead_job_left_is_removed_by_the_next_and_links_are_not_followed(corpus, golden, tmp_path):
    (tmp_path / ".target.job.lock").touch()
    (tmp_path / ".target.job.3.ids").write_bytes(b"old")
    (tmp_path / ".target.job.link").symlink_to(corpus)
    seen = []

    @contextmanager
    def look(encoder):
        seen.extend(sorted(os.listdir(tmp_path)))
        yield ListSink()

    tokenise(partial(open_text, corpus), config(golden), look, tmp_path / "target")
    assert seen == [".target.job.lock", "corpus"]
    assert os.listdir(tmp_path) == ["corpus"]
    assert len(os.listdir(corpus)) == 3


def test_an_input_without_documents_is_an_error(golden, tmp_path):
    path = tmp_path / "a.jsonl"
    for content, reason in [("\n\n", "every line is blank"), ("x\n", "1 skipped: invalid JSON")]:
        path.write_text(content)
        with pytest.raises(InputError, match=rf"the input holds no usable document \({reason}\)"):
            tokenise(
                partial(open_text, path, on_error="skip"),
                config(golden),
                partial(list_sink, into=ListSink()),
                tmp_path / "target",
            )


def test_a_full_disk_is_named(corpus, golden, tmp_path):
    class FullSink(ListSink):
        def write(self, ids, lengths):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*'"):
        tokenise(partial(open_text, corpus), config(golden), partial(list_sink, into=FullSink()), tmp_path / "target")


def test_the_number_of_workers_is_checked(tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1, .*got 0"):
        tokenise(open_text, None, None, tmp_path / "target", workers=0)


# ------------------------------------------------------------------------------------------------ kills


PROGRAM = """
import sys
from nanoset_ref.preprocess import main
if __name__ == "__main__":
    names = "--input", "--output-prefix", "--tokenizer-name-or-path"
    options = [word for pair in zip(names, sys.argv[1:]) for word in pair]
    sys.exit(main([*options, "--append-eod", "--workers", "2"], prog="job"))
"""


def processes_with(word):
    """The processes whose environment has a word in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [int(path.parent.name)] if word.encode() in path.read_bytes() else []
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def start(golden, tmp_path):
    """Start a program on a large input; returns the process and the word in the environment of all it starts."""
    (tmp_path / "out").mkdir()
    big = tmp_path / "big.jsonl"
    big.write_text((json.dumps({"text": "some words of a long text " * 40}) + "\n") * 30_000)
    word = f"IS_OF_TEST={tmp_path}"
    started = []

    def run(*program):
        environment = {**os.environ, "IS_OF_TEST": str(tmp_path)}
        started.append(
            subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, start_new_session=True, text=True)
        )
        return started[-1], word

    yield run
    for process in started:
        process.kill()
        process.stderr.close()
        process.wait()
    for pid in processes_with(word):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_group_leaves_no_process_no_semaphore_and_no_output(start, golden, tmp_path, number):
    arguments = [str(tmp_path / "big.jsonl"), str(tmp_path / "out" / "a"), str(golden / "tokenizer")]
    process, word = start(sys.executable, "-c", PROGRAM, *arguments)
    wait_until(lambda: len(processes_with(word)) >= 4)  # itself, the tracker of multiprocessing, two workers
    wait_until((tmp_path / "out" / ".a_input_ids.npy.job.lock").exists)
    time.sleep(0.5)
    for pid in processes_with(word):
        mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
        assert not [line for line in mapped if "/dev/shm/sem" in line and not line.endswith("(deleted)")]
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=20)
    wait_until(lambda: not processes_with(word), 10)
    assert not [name for name in os.listdir(tmp_path / "out") if not name.startswith(".")]
    if number != signal.SIGKILL:
        assert errors.count("\n") == 2, "one line beside the one about the backend"
        assert "\njob: error: " in errors
        assert not os.listdir(tmp_path / "out")


@pytest.mark.parametrize("moment", ["at its start", "at work"])
def test_ranks_end_with_a_killed_launcher_and_the_port_is_free_again(start, golden, tmp_path, moment):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = f"-m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 --master-port {port}"
    program = f"{torchrun} -m nanoset_ref.preprocess --output-prefix {tmp_path}/out/a --append-eod --backend hf"
    program += f" --tokenizer-name-or-path {golden}/tokenizer --input"
    process, word = start(sys.executable, *program.split(), str(tmp_path / "big.jsonl"))
    wait_until(lambda: len(processes_with(word)) >= 3)
    if moment == "at work":
        wait_until((tmp_path / "out" / ".a_input_ids.npy.job.1.ids").exists)
    process.kill()
    wait_until(lambda: not processes_with(word), 10)
    small = tmp_path / "small.jsonl"
    small.write_text('{"text": "some words"}\n')
    process, _ = start(sys.executable, *program.split(), str(small))
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    names = ["a_input_ids.documents.npy", "a_input_ids.json", "a_input_ids.npy"]
    assert sorted(os.listdir(tmp_path / "out")) == names
