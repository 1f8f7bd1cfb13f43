"""The engine: one result whoever does the work, one job per target, and nothing left of a job that died."""

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.text import InputError, open_text
from nanoset_ref.text import parts as parts_module
from nanoset_ref.tokenise import EncoderConfig, tokenise
from nanoset_ref.tokenise import shares as shares_module
from nanoset_ref.tokenise.encode import Encoder, load_tokenizer
from nanoset_ref.tokenise.shares import Share, claimed, encode_part, merged
from nanoset_ref.tokenise.workers import BYTES, JobError, LocalCounters, job_folder

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
    import gzip

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


# ------------------------------------------------------------------------------------------------ claims and parts


class NumberedParts:
    """Stands for a source: `sizes` blocks in each part, a block is its own name."""

    def __init__(self, sizes):
        self.parts = sizes

    def blocks_of(self, part):
        return ((part, index) for index in range(self.parts[part]))


@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=6), workers=st.integers(1, 5), seed=st.integers(0, 999))
def test_every_block_is_claimed_exactly_once_in_any_interleaving(sizes, workers, seed):
    counters = LocalCounters(len(sizes))
    running = [claimed(NumberedParts(sizes), counters) for _ in range(workers)]
    draw = random.Random(seed)
    seen = []
    while running:
        worker = draw.choice(running)
        try:
            part, index, block = next(worker)
            assert block == (part, index)
            seen.append(block)
        except StopIteration:
            running.remove(worker)
    assert sorted(seen) == [(part, index) for part, size in enumerate(sizes) for index in range(size)]


def test_a_worker_without_a_file_of_its_own_helps_with_those_of_others():
    counters = LocalCounters(2)
    first, second, third = (claimed(NumberedParts([4, 2]), counters) for _ in range(3))
    rounds = [[next(worker)[:2] for worker in (first, second, third)] for _ in range(2)]
    assert rounds == [[(0, 0), (1, 0), (0, 1)], [(0, 2), (1, 1), (0, 3)]]
    assert [list(worker) for worker in (first, second, third)] == [[], [], []]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_parts_of_any_number_of_workers_merge_into_the_same_ids(corpus, encoder, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(parts_module, "BLOCK_BYTES", 500)
    source = open_text(corpus)
    counters = LocalCounters(len(source.parts), multiprocessing.get_context("spawn"))

    def work(rank):
        return encode_part(rank, encoder, source, tmp_path, counters, lambda: None)

    with ThreadPoolExecutor(workers) as pool:
        assert list(pool.map(work, range(workers))) == [Counter()] * workers
    blocks = list(merged(tmp_path, workers, encoder.dtype))
    assert len(blocks) > 20
    sink = ListSink()
    for ids, lengths in blocks:
        sink.write(ids, lengths)
    assert sink == expected(encoder)
    assert counters.add(BYTES, 0) == source.num_bytes


def test_a_lost_or_repeated_block_is_noticed(corpus, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "BLOCK_BYTES", 500)
    source = open_text(corpus)
    encode_part(0, encoder, source, tmp_path, LocalCounters(3), lambda: None)
    table = np.load(tmp_path / "0.blocks.npy")
    for wrong in (np.delete(table, 3, axis=0), np.concatenate([table, table[5:6]])):
        np.save(tmp_path / "0.blocks.npy", wrong)
        with pytest.raises(JobError, match="tokenised twice or never"):
            list(merged(tmp_path, 1, encoder.dtype))


def test_the_progress_moves_inside_a_huge_document(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("nanoset_ref.tokenise.encode.BATCH_CHARS", 5_000)
    monkeypatch.setattr(encoder._cutter, "_piece_chars", 1_000)
    monkeypatch.setattr(shares_module, "REPORT_S", 0.0)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["x", "some words " * 10_000, "y"]))
    source = open_text(path)
    counters = LocalCounters(1)
    seen = []
    share = Share(encoder, counters, lambda: seen.append(counters.add(BYTES, 0)))
    share.encode(source.blocks(), "raise", lambda ids, lengths: None)
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


def test_a_killed_local_worker_ends_the_job_at_once(corpus, golden, tmp_path):
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
    with job_folder(tmp_path / "target"):
        with pytest.raises(JobError, match=r"another job is writing .*target; wait for it or choose another output"):
            work(partial(list_sink, into=ListSink()), tmp_path / "target")
        work(partial(list_sink, into=ListSink()), tmp_path / "target_2")
    work(partial(list_sink, into=ListSink()), tmp_path / "target")
    assert os.listdir(tmp_path) == ["corpus"]


def test_what_a_dead_job_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / ".target.job"
    left.mkdir()
    (left / "3.ids").write_bytes(b"old")
    (left / "lock").touch()
    with job_folder(tmp_path / "target") as folder:
        assert folder == left
        assert os.listdir(folder) == ["lock"]
    assert os.listdir(tmp_path) == []


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
        tokenise(
            partial(open_text, corpus), config(golden), partial(list_sink, into=FullSink()), tmp_path / "target"
        )


def test_the_number_of_workers_is_checked(tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        tokenise(open_text, None, None, tmp_path / "target", workers=0)
