"""Encoding batches: the ids are the tokenizer's own with every backend, in their dtype, with their own errors."""

import json
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import pytest
from encode_helpers import wrapped
from tokenizers import Tokenizer, models, pre_tokenizers

from nanoset_ref.preprocess import batch_encoder, text_formats
from nanoset_ref.preprocess.backends import LIBRARIES, hf_encoder
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.tokenizer import (
    TokenizerError,
    load_tokenizer,
    rebuild_tokenizer,
)

TEXTS = [
    "",
    "one two three",
    "  x\n\ny ",
    "\u00e9e\u0301 \u4f60\u597d\U0001f600\x00",
    "a</s>b <s>",
    "",
    "and so on",
]


def lines_of(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return open_text(path)


def batches_of(source):
    return (batch for block in source.blocks() for batch in block.batches())


def test_stopping_early_waits_for_no_queued_batch(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 1)
    source = lines_of(tmp_path / "a.jsonl", map(str, range(9)))
    encoder, begun = Encoder(tokenizer, backend="hf"), []
    second, released = threading.Event(), threading.Event()
    shutdown = ThreadPoolExecutor.shutdown

    def encode(batch):
        begun.append(batch)
        if len(begun) == 2:
            second.set()
            released.wait()
        return encoder.encode_text(batch)

    def release_and_shutdown(pool):
        """The batch under way ends when the pool waits for it."""
        released.set()
        shutdown(pool)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", release_and_shutdown)
    stream = encoder.stream(batches_of(source), [encode])
    next(stream)
    second.wait()
    stream.close()
    assert len(begun) == 2  # the one that came, and the one under way


@pytest.mark.parametrize("backend", ["hf", "gigatoken", "auto"])
def test_every_backend_gives_the_tokenizers_own_ids(tokenizer, backend):
    encoder = Encoder(tokenizer, backend=backend, probe_texts=TEXTS)
    ids, lengths = encoder.encode_batch(TEXTS)
    expected = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS
    ]
    assert ids.dtype == np.uint16
    assert lengths.dtype == np.int64
    assert ids.tolist() == [token for one in expected for token in one]
    assert lengths.tolist() == list(map(len, expected))
    assert encoder.backend == ("hf" if backend == "hf" else "gigatoken")
    assert [(it.dtype, it.size) for it in encoder.encode_batch([])] == [
        (np.uint16, 0),
        (np.int64, 0),
    ]


def test_auto_falls_back_when_gigatoken_differs_or_is_missing(
    tokenizer, monkeypatch, caplog
):
    caplog.set_level("INFO", "nanoset_ref")
    with monkeypatch.context() as patch:
        patch.setitem(
            LIBRARIES,
            "gigatoken",
            lambda tokenizer: lambda texts: hf_encoder(tokenizer)(texts[::-1]),
        )
        assert Encoder(tokenizer).backend == "hf"
        assert "gigatoken is not used: its ids differ" in caplog.text
        with pytest.raises(
            TokenizerError,
            match="cannot be used: its ids differ .* use --backend hf",
        ):
            Encoder(tokenizer, backend="gigatoken")
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    assert Encoder(tokenizer).backend == "hf"
    with pytest.raises(
        TokenizerError, match="cannot be used: ModuleNotFoundError: .* use --backend hf"
    ):
        Encoder(tokenizer, backend="gigatoken")


def test_gigatoken_is_compared_all_the_time_and_the_first_difference_names_its_document(
    tokenizer, tmp_path, monkeypatch
):
    path = tmp_path / "a.jsonl"
    source = lines_of(path, ["one"] * 600 + ["deux"] * 600)

    def english(tokenizer):
        """As hf, but with other ids for a language that the beginning of the corpus is not in."""
        return lambda texts: hf_encoder(tokenizer)(
            [text.replace("deux", "two") for text in texts]
        )

    monkeypatch.setitem(LIBRARIES, "gigatoken", english)
    monkeypatch.setattr(text_formats, "BLOCK_BYTES", 16)  # of a line with "one"
    encoder = Encoder(tokenizer, probe_texts=source.probe_texts())
    assert encoder.backend == "gigatoken"
    list(encoder.stream(islice(batches_of(source), 600)))
    with pytest.raises(
        TokenizerError,
        match=rf"{path}:601: gigatoken produces different ids .* begin again with backend hf",
    ):
        list(encoder.stream(batches_of(source)))


def test_an_error_leaves_the_batches_before_it_their_encoder(monkeypatch):
    """The first batch takes its encoder late, after those of two later ones have failed."""
    failed = threading.Semaphore(0)
    takes = iter([True])

    class LateFirst(deque):
        def popleft(self):
            if callable(self[0]) and next(takes, False):
                failed.acquire()
                failed.acquire()
            return super().popleft()

    def encode(batch):
        if batch:
            failed.release()
            raise TokenizerError(f"batch {batch}")
        return "ids"

    monkeypatch.setattr(batch_encoder, "deque", LateFirst)
    encoded = batch_encoder.encode_in_order(range(3), [encode, encode])
    assert next(encoded) == (0, "ids")
    with pytest.raises(TokenizerError, match="batch 1"):
        next(encoded)


def test_a_program_may_end_with_a_stream_half_read(golden):
    """The module that the stream hangs on has lost its names by the time the stream is closed."""
    program = f"""if True:
        import concurrent.futures.thread, itertools
        from nanoset_ref.preprocess import text, tokenizer
        from nanoset_ref.preprocess.encoder import Encoder
        encoder = Encoder(tokenizer.load_tokenizer({str(golden / "tokenizer")!r}), backend="hf")
        part = text.TextPart("a", 1, ("text",), "raise", None)
        block = text.TextBlock(part, 1, lambda: [(lambda: ["word"], 1)], lambda: 1)
        batches = (batch for _ in itertools.count() for batch in block.batches())
        concurrent.futures.thread.kept = encoder.stream(batches)
        next(concurrent.futures.thread.kept)
    """
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_prompt_that_is_cut_short_cuts_no_document_short(golden):
    tokenizer = load_tokenizer(golden / "tokenizer")
    encoder = Encoder(tokenizer, backend="hf")
    expected = encoder.encode_batch(["one two three </s>"])[0].tolist()
    tokenizer("a prompt", truncation=True, max_length=2, split_special_tokens=True)
    assert encoder.encode_batch(["one two three </s>"])[0].tolist() == expected
    assert (
        rebuild_tokenizer(encoder.worker_config["tokenizer"], False).truncation is None
    )


def test_the_dtype_follows_the_largest_id():
    backend = Tokenizer(
        models.WordLevel(
            {"<unk>": 0, "a": 1, "b": 70_000, "</s>": 2}, unk_token="<unk>"
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    ids, lengths = Encoder(
        wrapped(backend, eos_token="</s>"), append_eod=True
    ).encode_batch(["a b", ""])
    assert (ids.dtype, ids.tolist(), lengths.tolist()) == (
        np.int32,
        [1, 70_000, 2, 2],
        [3, 1],
    )
