"""TokenStream: the rows of a token file in any layout, shuffled and repeated, from every kind of text."""

import gzip
import itertools

import datasets
import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_helpers import (
    EOS,
    LENGTHS,
    TOKENIZER,
    TokenStream,
    ids,
    rows_of,
    tokens_of,
    write_text,
)
from transformers import PreTrainedTokenizerFast

from nanoset_ref import streaming
from nanoset_ref.load.collator import DataCollatorForCLM
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.preprocess import preprocess
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.tokenizer import TokenizerError
from nanoset_ref.streaming import TokenStreamDataLoader
from nanoset_ref.streaming.row_stream import Cursor, buffer_order
from nanoset_ref.tokens import TokenFile


def test_rows_equal_those_of_the_nanoset_on_real_text(real_text, tmp_path):
    for name, workers in (("scenes", 2), ("speeches", 0)):
        source, file = real_text / f"{name}.jsonl", tmp_path / f"{name}_input_ids.npy"
        preprocess(
            source, tmp_path / name, real_text / "gpt2", append_eod=True, progress=False
        )
        expected = torch.tensor(rows_of(TokenFile(file).tokens.tolist(), 128))
        assert len(expected) == Nanoset(file, None, 128, 1).dataset_lengths[0]
        stream = TokenStream(source, real_text / "gpt2", 128, micro_batch_size=8)
        whole = list(
            TokenStreamDataLoader(
                stream, DataCollatorForCLM(128, 0, 0, 0), num_workers=workers
            )
        )
        assert len(whole) == len(expected) // 8
        for name, rows in (
            ("input_ids", expected[:, :-1]),
            ("label_ids", expected[:, 1:]),
        ):
            assert torch.equal(
                torch.cat([batch[name] for batch in whole]), rows[: len(whole) * 8]
            )


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=4, max_size=12),
    length=st.integers(1, 6),
    size=st.integers(1, 3),
    batch=st.integers(1, 3),
    buffer=st.sampled_from([0, 1, 5, 1000]),
    start=st.integers(0, 9),
)
def test_any_layout_delivers_the_same_rows_in_the_same_order(
    tmp_path_factory, lengths, length, size, batch, buffer, start
):
    paths = write_text(tmp_path_factory.mktemp("text"), lengths)
    expected = rows_of(tokens_of(lengths), length)
    options = {"shuffle_buffer": buffer, "backend": "hf"}
    if not expected:
        with pytest.raises(ValueError, match=f"no row of {length + 1} tokens"):
            list(TokenStream(paths, TOKENIZER, length, **options))
        return
    order = ids(TokenStream(paths, TOKENIZER, length, **options))
    if buffer < 2:
        assert order == expected
    assert sorted(order) == sorted(expected)
    window = max(buffer, 1)
    for k in range(0, len(order), window):
        assert sorted(order[k : k + window]) == sorted(expected[k : k + window])
    ranks = []
    for rank in range(size):
        stream = TokenStream(
            paths,
            TOKENIZER,
            length,
            micro_batch_size=batch,
            dp_rank=rank,
            dp_size=size,
            **options,
        )
        stream.seek(0, start)
        ranks.append(ids(stream))
    whole = max(0, len(order) - start) // size * size
    assert [row for group in zip(*ranks, strict=True) for row in group] == order[
        start : start + whole
    ]


def test_every_window_epoch_shard_and_seed_has_its_own_shuffle(paths):
    keys = itertools.product(
        (1, 2), (0, 1), itertools.starmap(Cursor, [(0, 0), (0, 1), (50, 0), (50, 1)])
    )
    orders = {tuple(buffer_order(50, *key)) for key in keys}
    assert len(orders) == 16
    assert all(sorted(order) == list(range(50)) for order in orders)
    stream = TokenStream(paths, TOKENIZER, 4, shuffle_buffer=20)
    first, second = ids(stream), ids(stream)
    assert first != second
    assert sorted(first) == sorted(second)
    stream.seek(1)
    assert ids(stream) == second


@pytest.mark.parametrize("kind", ["gz", "zst", "parquet", "dataset"])
def test_every_kind_of_text_gives_the_same_rows_and_resumes(
    paths, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr("nanoset_ref.preprocess.text_formats.BLOCK_BYTES", 120)
    rows = datasets.Dataset.from_dict(
        {"text": [document.text for document in open_text(paths).documents()]}
    )
    lines = "".join(path.read_text() for path in paths).encode()
    source = tmp_path / {"gz": "text.jsonl.gz", "zst": "text.jsonl.zst"}.get(
        kind, f"text.{kind}"
    )
    if kind == "parquet":
        rows.to_parquet(source, batch_size=4)
    elif kind == "dataset":
        rows.save_to_disk(source)
    else:
        source.write_bytes({"gz": gzip, "zst": zstandard}[kind].compress(lines))
    for shuffle_buffer in (0, 5):
        begun, again = (
            TokenStream(source, TOKENIZER, 4, shuffle_buffer=shuffle_buffer)
            for _ in range(2)
        )
        taken = ids(begun, 33)
        assert begun.state_dict()["cursors"]["0"]["block"] > 1
        again.load_state_dict(begun.state_dict())
        assert taken + ids(again) == ids(
            TokenStream(paths, TOKENIZER, 4, shuffle_buffer=shuffle_buffer)
        )


def test_shards_deal_the_text_out_once_per_pass_and_independently_of_the_layout(paths):
    blocks = [
        [document.text for document in block.documents()]
        for block in open_text(paths).blocks()
    ]
    packed = []
    for shard in range(4):
        texts = [text for block in blocks[shard::4] for text in block]
        tokens = [token for text in texts for token in [*map(int, text.split()), EOS]]
        packed.append(itertools.cycle(rows_of(tokens, 3)))
    expected = [
        row for rows in itertools.islice(zip(*packed, strict=True), 60) for row in rows
    ]
    for size, batch, workers in ((1, 1, 0), (2, 1, 2), (3, 2, 0), (1, 2, 2)):
        ranks = []
        for rank in range(size):
            options = {
                "dp_rank": rank,
                "dp_size": size,
                "shards": 4,
                "repeat": True,
                "backend": "hf",
            }
            stream = TokenStream(paths, TOKENIZER, 3, micro_batch_size=batch, **options)
            loader = TokenStreamDataLoader(stream, collate_fn=ids, num_workers=workers)
            ranks.append(
                [
                    row
                    for rows in itertools.islice(loader, 60 // size // batch)
                    for row in rows
                ]
            )
        assert [row for group in zip(*ranks, strict=True) for row in group] == expected[
            : len(ranks[0]) * size
        ]
    stream = TokenStream(
        paths, TOKENIZER, 3, dp_rank=1, dp_size=2, shards=4, repeat=True
    )
    assert ids(stream, 50) == expected[1:100:2]
    assert set(stream.state_dict()["cursors"]) == {
        "1",
        "3",
    }  # a rank reads its own shards only


def test_repeat_begins_the_text_again(paths):
    once = rows_of(tokens_of(LENGTHS), 4)
    assert (
        ids(TokenStream(paths, TOKENIZER, 4, repeat=True), 2 * len(once) + 3)
        == once + once + once[:3]
    )
    shuffled = ids(
        TokenStream(paths, TOKENIZER, 4, repeat=True, shuffle_buffer=20), 2 * len(once)
    )
    first, second = shuffled[: len(once)], shuffled[len(once) :]
    assert sorted(first) == sorted(second) == sorted(once)
    assert first != second


def test_wrong_arguments_say_what_is_right(paths, tmp_path):
    stream = TokenStream(paths, TOKENIZER, 4)
    for name, value in (
        ("sequence_length", 0),
        ("micro_batch_size", 0),
        ("shards", 0),
        ("shuffle_buffer", -1),
    ):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            TokenStream(paths, TOKENIZER, **{"sequence_length": 4, name: value})
    with pytest.raises(ValueError, match="seed must be an integer, got 'x'"):
        TokenStream(paths, TOKENIZER, 4, seed="x")
    for wrong in (
        {"consumed_train_samples": -1},
        {"epoch_began_at": 5},
        {"epoch": 1.5},
    ):
        with pytest.raises(ValueError, match="must be (an integer of )?at least"):
            stream.seek(**wrong)
    with pytest.raises(
        TypeError,
        match="StreamOptions: shufle: unknown key, did you mean 'shuffle_buffer'",
    ):
        TokenStream(paths, TOKENIZER, 4, shufle=1)
    with pytest.raises(
        ValueError, match="shards=2 end at different times.*pass repeat=True"
    ):
        TokenStream(paths, TOKENIZER, 4, shards=2)
    with pytest.raises(ValueError, match="too few blocks"):
        ids(TokenStream(paths[0], TOKENIZER, 4, shards=2, repeat=True), 2)
    for name, value, message in (
        ("persistent_workers", True, "such workers would not start over"),
        ("batch_size", 2, "the stream's micro_batch_size is the batch size"),
        ("drop_last", False, "an incomplete batch is dropped"),
        ("in_order", False, "batches out of order cannot be counted for a resume"),
        ("num_worker", 1, "unknown key, did you mean 'num_workers'"),
    ):
        with pytest.raises(
            TypeError, match=f"^TokenStreamDataLoader: {name}: .*{message}"
        ):
            TokenStreamDataLoader(stream, **{name: value})
    without = PreTrainedTokenizerFast(tokenizer_object=TOKENIZER.backend_tokenizer)
    with pytest.raises(TokenizerError, match="append_eod needs an EOS token"):
        ids(TokenStream(paths, without, 4))


def test_nothing_is_appended_unasked_and_a_warning_says_so(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "1 2 3"}\n{"body": "4 5"}\n')
    text = open_text(str(path), column="body")
    assert ids(streaming.TokenStream(text, TOKENIZER, 4)) == [[1, 2, 3, 4, 5]]
    assert caplog.text.count("nothing separates the documents") == 1
    caplog.clear()
    assert ids(TokenStream(text, TOKENIZER, 4)) == [[1, 2, 3, EOS, 4]]
    assert "between documents" not in caplog.text
    with pytest.raises(FileNotFoundError):
        TokenStream(tmp_path / "none.jsonl", TOKENIZER, 4)


def test_special_tokens_of_a_text_are_kept_with_a_warning_or_split_or_refused(
    golden, tmp_path, caplog
):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n{"text": "a</s>b</s>"}\n{"text": "</s>two"}\n')

    def stream(mode, **options):
        return TokenStream(
            path, str(golden / "tokenizer"), 1, special_tokens=mode, **options
        )

    def ends(mode):
        rows = ids(stream(mode))
        return [row[0] for row in [*rows, rows[-1][1:]]].count(2)

    kept = ends("keep")
    assert (
        f"{path}:2: the document holds the special token '</s>', which is kept"
        in caplog.text
    )
    assert (
        "documents that hold special tokens: 2 (3 x </s>); --special-tokens split"
        in caplog.text
    )
    caplog.clear()
    assert kept - ends("split") == 3
    ids(stream("keep", dp_rank=1, dp_size=2))  # rank 0 has said it
    assert "special token" not in caplog.text
    with pytest.raises(
        InputError, match=f"{path}:2: the document holds the special token '</s>'"
    ):
        ids(stream("refuse"))


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_on_the_cpu_whatever_the_default_device(paths, workers):
    stream = TokenStream(paths, TOKENIZER, 3)
    expected = next(iter(TokenStreamDataLoader(stream)))
    torch.set_default_device("meta")  # stands for cuda
    try:
        batch = next(iter(TokenStreamDataLoader(stream, num_workers=workers)))
    finally:
        torch.set_default_device(None)
    assert batch["input_ids"].device.type == "cpu"
    assert batch["input_ids"].equal(expected["input_ids"])
