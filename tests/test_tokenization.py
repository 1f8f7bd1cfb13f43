"""The engine: one result with any number of processes, one job per target, and nothing left of a job that died."""

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from multiprocessing import Lock, Pipe
from pathlib import Path

import numpy as np
import pytest
import tqdm
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import free_port

from nanoset_ref.chunks.subset_tokenization import TokenizeConfig, tokenize
from nanoset_ref.megatron import MMapIndexedDataset
from nanoset_ref.megatron.preprocess import preprocess_corpus
from nanoset_ref.preprocess import encoding_processes, load_tokenizer, preprocess
from nanoset_ref.preprocess.encoding_processes import JobError
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text_blocks import TextBlock, TextPart
from nanoset_ref.tokens import TokenFile, TokenFileWriter

TEXTS = [f"document {k} of this corpus " + "word " * (k % 11) for k in range(300)]


@pytest.fixture
def corpus(tmp_path):
    """Three files, plain and compressed, of 100 documents each."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number, name in enumerate(("a.jsonl", "b.jsonl.gz", "c.jsonl")):
        lines = "".join(
            json.dumps({"text": text}) + "\n"
            for text in TEXTS[100 * number : 100 * number + 100]
        ).encode()
        (folder / name).write_bytes(
            gzip.compress(lines) if name.endswith(".gz") else lines
        )
    return folder


@pytest.fixture
def job(golden, corpus, tmp_path):
    """Tokenise the corpus into t_input_ids.npy; returns the counts."""
    return partial(
        preprocess, corpus, tmp_path / "t", golden / "tokenizer", backend="hf"
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_give_what_one_process_gives(
    job, corpus, golden, tmp_path, monkeypatch, workers
):
    shown = []

    class Bar(tqdm.tqdm):
        def close(self):
            shown.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    (corpus / "b.jsonl").write_text(
        '{"text": "ok"}\nnot json\n{"body": 1}\n{"text": 2}\nnot json\n'
    )
    counts = job(on_error="skip", append_eod=True, num_workers=workers, progress=True)
    file = TokenFile(tmp_path / "t_input_ids.npy")
    whole = load_tokenizer(golden / "tokenizer")(
        [*TEXTS[:100], "ok", *TEXTS[100:]], add_special_tokens=False
    )
    assert [
        ids.tolist() for ids in np.split(file.tokens, file.document_offsets[1:-1])
    ] == [[*ids, 2] for ids in whole["input_ids"]]
    assert shown[0] == (sum(path.stat().st_size for path in corpus.iterdir()),) * 2
    assert (counts.documents, counts.tokens, counts.backend) == (
        301,
        file.num_tokens,
        "hf",
    )
    assert counts.skipped == {"invalid JSON": 2, "missing column": 1, "not a string": 1}


LINES = st.lists(
    st.sampled_from(["", " ", "one two", "a</s>b", "<s></s>", "{bad"]),
    min_size=1,
    max_size=9,
)


@settings(max_examples=8)
@given(
    lines=LINES,
    backend=st.sampled_from(["hf", "gigatoken"]),
    mode=st.sampled_from(["keep", "split"]),
    append_eod=st.booleans(),
    workers=st.sampled_from([1, 2]),
)
def test_reported_counts_are_those_of_the_files_in_every_format(
    golden, tmp_path_factory, lines, backend, mode, append_eod, workers
):
    texts = [line for line in lines if line != "{bad"]
    whole = load_tokenizer(golden / "tokenizer")
    documents = [
        whole.backend_tokenizer.encode(text, add_special_tokens=False).ids
        for text in texts
    ]
    if mode == "split":
        documents = [
            whole(text, split_special_tokens=True)["input_ids"] for text in texts
        ]
    if not any(documents):
        return
    tmp_path = tmp_path_factory.mktemp("formats")
    (tmp_path / "in" / "sub").mkdir(parents=True)
    path = tmp_path / "in" / "sub" / "a.jsonl"
    path.write_text(
        "".join(
            (line if line == "{bad" else json.dumps({"text": line})) + "\n"
            for line in lines
        )
    )
    end = [2] * append_eod
    options = {"backend": backend, "on_error": "skip", "special_tokens": mode}
    own = preprocess(
        path,
        tmp_path / "t",
        golden / "tokenizer",
        append_eod=append_eod,
        num_workers=workers,
        **options,
    )
    (pair,) = preprocess_corpus(
        path,
        tmp_path / "t",
        tokenizer_model=golden / "tokenizer",
        append_eod=append_eod,
        workers=workers,
        **options,
    ).values()
    config = TokenizeConfig(
        tokenizer=str(golden / "tokenizer"), eos_text="</s>", format="tokens", **options
    )
    [account] = tokenize(
        tmp_path / "in", tmp_path / "out", config, num_workers=workers
    )["sub"].conservation
    for name, ending, counts in (
        ("t_input_ids.npy", end, own),
        ("out/sub/train_input_ids.npy", [2], None),
    ):
        file = TokenFile(tmp_path / name)
        expected = [ids + ending for ids in documents]
        assert [
            ids.tolist() for ids in np.split(file.tokens, file.document_offsets[1:-1])
        ] == expected
        if counts:
            assert (counts.documents, counts.tokens) == (len(texts), file.num_tokens)
    file = MMapIndexedDataset(tmp_path / "t_text_document")
    assert file.tokens.tolist() == [
        token for ids in documents if ids for token in ids + end
    ]
    assert (pair.documents, pair.tokens) == (file.num_documents, len(file.tokens))
    assert (
        account.written_tokens
        == account.document_tokens + account.separator_tokens
        == sum(map(len, documents)) + len(texts)
    )
    special = [sum(token < 3 for token in ids) for ids in documents]
    for counts in (own, pair):
        assert (
            sum(counts.skipped.values())
            == account.skipped_documents
            == len(lines) - len(texts)
        )
        assert (sum(counts.special_tokens.values()), counts.special_documents) == (
            sum(special),
            sum(map(bool, special)),
        )
    assert (account.special_tokens, account.special_documents) == (
        sum(special),
        sum(map(bool, special)),
    )


def test_ranks_are_let_go_when_the_call_in_rank_0_fails(monkeypatch):
    ours, theirs = Pipe()
    monkeypatch.setattr(
        encoding_processes,
        "other_ranks",
        lambda: [encoding_processes.RemoteEncoder("another rank", ours)],
    )
    monkeypatch.setattr(encoding_processes, "is_main_rank", lambda: True)
    rank = threading.Thread(target=encoding_processes.serve, args=[theirs], daemon=True)
    rank.start()
    with pytest.raises(ZeroDivisionError):
        encoding_processes.in_rank_0(lambda: 1 / 0)()
    rank.join(60)
    assert not rank.is_alive()


def children() -> list[int]:
    """Processes that threads of this one have started; a thread may end while its file is read."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, path.read_text().split())
    return found


@pytest.mark.parametrize("killed", [False, True])
def test_an_error_of_the_input_or_a_killed_worker_ends_the_job_at_once(
    job, corpus, tmp_path, monkeypatch, killed
):
    monkeypatch.setattr(
        "nanoset_ref.preprocess.text_formats.BLOCK_BYTES", 200
    )  # work for both workers
    before = children()
    here, receive, first = os.getpid(), encoding_processes._receive, Lock()

    def receive_and_die(connection):
        work = receive(connection)
        if os.getpid() != here and first.acquire(block=False):
            os.kill(os.getpid(), signal.SIGKILL)
        return work

    if killed:
        monkeypatch.setattr(encoding_processes, "_receive", receive_and_die)
        error, message = (
            JobError,
            r"worker \d \(pid \d+\) died while it worked .*; nothing was written",
        )
    else:
        (corpus / "c.jsonl").write_text('{"text": "ok"}\n{"text": \n')
        error, message = InputError, r"c.jsonl:2: not JSON"
    with pytest.raises(error, match=message):
        job(num_workers=2)
    assert not set(children()) - set(before)
    assert os.listdir(tmp_path) == ["corpus"]


def test_two_jobs_on_one_target_collide_unless_one_is_dead(job, tmp_path):
    path = tmp_path / "t_input_ids.npy"
    with TokenFileWriter(path, dtype="uint16") as other:
        with pytest.raises(
            JobError,
            match=rf"another job is writing {path}; wait for it or choose another output",
        ):
            job()
        other.write([1], [1])
    (tmp_path / ".t_input_ids.npy.1-deadbeef.tmp").touch()
    assert job(overwrite=True).documents == 300
    assert sorted(os.listdir(tmp_path)) == [
        "corpus",
        *(f"t_input_ids.{end}" for end in ("documents.npy", "json", "npy")),
    ]


def test_an_input_without_documents_a_full_disk_and_no_workers_are_errors(
    job, corpus, tmp_path, monkeypatch
):
    for content, reason in (
        ("\n\n", "every line is blank"),
        ("x\n", "1 skipped: invalid JSON"),
    ):
        (tmp_path / "a.jsonl").write_text(content)
        with pytest.raises(
            InputError, match=rf"the input holds no usable document \({reason}\)"
        ):
            preprocess(
                tmp_path / "a.jsonl", *job.args[1:], **job.keywords, on_error="skip"
            )
    with pytest.raises(ValueError, match="workers must lie in 1 .. 1024, .*got 0"):
        job(num_workers=0)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TokenFileWriter, "write", full)
    with pytest.raises(OSError, match=r"No space left on device.*t_input_ids.npy"):
        job()


# ------------------------------------------------------------------------------------------------ kills


def at_work(folder):
    """Whether a job below it has begun to write."""
    return list((folder / "out").glob(".a_input_ids.npy.*.tmp"))


def processes_with(word):
    """The processes whose environment has a word in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += (
                [int(path.parent.name)] if word.encode() in path.read_bytes() else []
            )
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def has_ended(pid):
    """Whether it has no files open any more, in none of its threads: its environment is gone earlier."""
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(threads) == 1
    return True


def can_listen(port):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's do
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            return False
    return True


def wait_until(condition):
    """It ends by pytest's own timeout where that never comes true."""
    while not condition():
        time.sleep(0.02)


@pytest.fixture
def start(golden, tmp_path):
    """Start the command, alone or by torchrun; returns the process, and a word in the environment of all it starts."""
    (tmp_path / "out").mkdir()
    for name, lines in (("big", 30_000), ("small", 1)):
        (tmp_path / f"{name}.jsonl").write_text(
            (json.dumps({"text": "some words of a long text " * 40}) + "\n") * lines
        )
    word = f"IS_OF_TEST={tmp_path}"
    started = []

    def run(options, torchrun=""):
        words = f"{torchrun} -m nanoset_ref.preprocess --output-prefix out/a --append-eod --backend hf {options}"
        words = [*words.split(), "--tokenizer-name-or-path", golden / "tokenizer"]
        environment = {**os.environ, "IS_OF_TEST": str(tmp_path)}
        environment["RAYON_NUM_THREADS"] = "1"  # with 64 cores it would end too early
        pipes = {
            "cwd": tmp_path,
            "env": environment,
            "stderr": subprocess.PIPE,
            "start_new_session": True,
            "text": True,
        }
        started.append(subprocess.Popen([sys.executable, *words], **pipes))
        return started[-1], word

    yield run
    for process in started:
        process.kill()
        process.stderr.close()
        process.wait()
    for pid in processes_with(word):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_group_leaves_no_process_no_semaphore_and_no_output(
    start, tmp_path, number
):
    process, word = start("--input big.jsonl --num-workers 2")
    wait_until(
        lambda: len(processes_with(word)) >= 2 and at_work(tmp_path)
    )  # itself and its worker
    time.sleep(0.5)
    for pid in processes_with(word):
        mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
        assert not [
            line
            for line in mapped
            if "/dev/shm/sem" in line and not line.endswith("(deleted)")
        ]
    pids = processes_with(word)
    os.killpg(process.pid, number)
    _, errors = process.communicate()
    wait_until(lambda: not processes_with(word) and all(map(has_ended, pids)))
    assert not [
        name for name in os.listdir(tmp_path / "out") if not name.startswith(".")
    ]
    if number != signal.SIGKILL:
        assert errors.count("\n") == 2, "one line beside the one about the backend"
        assert "\nnanoset_ref.preprocess: error: " in errors
        assert not os.listdir(tmp_path / "out")


@pytest.fixture
def batch():
    part = TextPart("x", 0, ("text",), "raise", lambda part: iter(()))
    block = TextBlock(part, 0, lambda: [(lambda: b'{"text": "x"}', 0)], lambda: 1)
    return next(block.batches())


class Failing:
    """In place of an encoder."""

    def __init__(self, error):
        self.error = error

    def encode_text(self, batch):
        raise self.error


@pytest.mark.parametrize("error", [TypeError(), MemoryError(), SystemExit()])
def test_a_worker_with_two_threads_answers_or_ends_when_one_fails(
    monkeypatch, batch, error
):
    monkeypatch.setattr(encoding_processes, "num_threads", lambda processes: 2)
    with encoding_processes.forked_encoders(1, Failing(error)) as (first, _):
        if isinstance(error, Exception):
            assert first.encode(batch) is None  # so it is encoded here
        else:
            with pytest.raises(JobError, match="died while it worked"):
                first.encode(batch)


def test_an_answer_that_breaks_off_is_the_death_of_its_worker(batch):
    ours, theirs = Pipe()
    theirs.send_bytes(b'[{"dtype": "uint16", "skipped": {}}, [4, 8, 0, 0]]')
    os.write(theirs.fileno(), b"\1\0")
    with socket.socket(fileno=os.dup(theirs.fileno())) as end:
        end.shutdown(socket.SHUT_WR)
    with pytest.raises(JobError, match="died while it worked"):
        encoding_processes.RemoteEncoder("a worker", ours).encode(batch)


class Foreign:
    """An object of a library that must not be deleted in another process, as torch's process groups."""

    def __init__(self):
        self.pid = os.getpid()

    def __del__(self):
        if os.getpid() != self.pid:
            os._exit(1)


def test_a_worker_does_not_delete_what_its_parent_keeps_for_a_thread(batch):
    kept = threading.local()
    kept.group = Foreign()
    with encoding_processes.forked_encoders(1, Failing(ValueError())) as (first, *_):
        assert first.encode(batch) is None


SIGNALED = """
import os, signal, sys, time
from nanoset_ref.preprocess.encoding_processes import forked_encoders
signal.signal(signal.SIGTERM, signal.default_int_handler)
os.register_at_fork({hook})
try:
    with forked_encoders(2, None):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("hook", "said"),
    {
        "before=lambda: os.kill(os.getpid(), signal.SIGINT)": "interrupted\n",
        "after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT)": "interrupted\n",
        "after_in_child=lambda: time.sleep(0.5)": "",
    }.items(),
)
def test_no_signal_is_lost_in_the_hooks_of_a_fork(hook, said):
    script = SIGNALED.format(hook=hook)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == (said, "")


@pytest.mark.parametrize(
    "killed", ["the launcher at its start", "the launcher at work", "a rank at work"]
)
def test_ranks_end_with_a_killed_launcher_or_rank_and_the_port_is_free_again(
    start, tmp_path, killed
):
    torchrun = "-m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1"
    port = free_port()
    torchrun = f"{torchrun} --master-port {port}"
    process, word = start("--input big.jsonl", torchrun)
    wait_until(lambda: len(processes_with(word)) >= 3)
    if killed.endswith("at work"):
        wait_until(lambda: at_work(tmp_path))
        time.sleep(1)
    pids = processes_with(word)
    if killed.startswith("a rank"):
        ranks = [
            pid
            for pid in pids
            if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
        ]
        os.kill(ranks[0], signal.SIGKILL)
        assert "error: " in process.communicate()[1]
    process.kill()
    wait_until(lambda: not processes_with(word) and all(map(has_ended, pids)))
    wait_until(lambda: can_listen(port))
    process, _ = start("--input small.jsonl")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    names = ["a_input_ids.documents.npy", "a_input_ids.json", "a_input_ids.npy"]
    assert sorted(os.listdir(tmp_path / "out")) == names
