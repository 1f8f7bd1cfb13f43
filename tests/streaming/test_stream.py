"""TokenStream: the rows of a token file, in any layout, resumed in the middle of documents and of buffers."""

import gzip
import itertools
import json
from copy import copy, deepcopy

import datasets
import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from resume_contract import check_resume_contract
from stream_parts import (
    TOKENIZER,
    TokenStream,
    ids,
    number_tokenizer,
    read_resumed,
    write_text,
)
from tokenizers import decoders, normalizers, pre_tokenizers
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import PreTrainedTokenizerFast

from nanoset_ref import streaming
from nanoset_ref.load.collator import DataCollatorForCLM
from nanoset_ref.load.dataloader import NanosetDataLoader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.preprocess import preprocess
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.tokenizer import TokenizerError
from nanoset_ref.streaming import TokenStreamDataLoader
from nanoset_ref.streaming.row_stream import Cursor, buffer_order
from nanoset_ref.tokens import TokenFile

EOS = 0
OTHER = number_tokenizer(100)


def tokens_of(lengths):
    """The slow and obvious stream of tokens: the words, an EOS after each document."""
    words, tokens = itertools.count(1), []
    for length in lengths:
        tokens += [next(words) for _ in range(length)] + [EOS]
    return tokens


def rows_of(tokens, length):
    return [tokens[k : k + length + 1] for k in range(0, len(tokens) - length, length)]


LENGTHS = [5, 0, 1, 17, 3, 40, 2, 2, 9, 0, 30, 1, 1, 25, 8, 60, 4, 13]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Six files, each one block."""
    return write_text(tmp_path_factory.mktemp("text"), LENGTHS, files=6)


@pytest.fixture
def encoded(monkeypatch):
    """The list of texts that encoders are given from now on."""
    seen, stream = [], Encoder.stream

    def noting(batches):
        for batch in batches:
            seen.extend(batch.read().texts)
            yield batch

    monkeypatch.setattr(
        Encoder, "stream", lambda encoder, given: stream(encoder, noting(given))
    )
    return seen


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


@pytest.mark.parametrize("block_bytes", [1 << 20, 120])
def test_a_cursor_leads_to_any_row_without_encoding_what_lies_before(
    paths, monkeypatch, encoded, block_bytes
):
    monkeypatch.setattr("nanoset_ref.preprocess.text_formats.BLOCK_BYTES", block_bytes)
    whole = ids(TokenStream(paths, TOKENIZER, 4))
    texts = [document.text for document in open_text(paths).documents()]
    # the tokens up to the end of each document
    ends = list(itertools.accumulate(len(text.split()) + 1 for text in texts))
    begun = TokenStream(paths, TOKENIZER, 4)
    cursors = [begun.state_dict()["cursors"]["0"] for _ in begun]
    assert len({cursor["block"] for cursor in cursors}) > 5
    assert max(cursor["offset"] for cursor in cursors) > 30
    for row, cursor in enumerate(cursors):
        again = TokenStream(paths, TOKENIZER, 4)
        again.seek(0, row, cursors={"0": cursor})
        encoded.clear()
        assert ids(again) == whole[row:]
        assert encoded == texts[sum(end <= 4 * row for end in ends) :]
    again.seek(0, 9, cursors={"0": cursors[20]})
    assert (
        ids(again) == whole[9:]
    )  # a cursor behind the place that is wanted is of no use, and does no harm


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


# ---- resume


def test_a_shuffled_stream_keeps_the_resume_contract_in_every_layout(paths):
    order = ids(TokenStream(paths, TOKENIZER, 3, shuffle_buffer=16))
    place = {tuple(row): k for k, row in enumerate(order)}
    assert len(place) == len(order) == len(tokens_of(LENGTHS)) // 3

    def factory(rank, size, batch, workers):
        stream = TokenStream(
            paths,
            TOKENIZER,
            3,
            micro_batch_size=batch,
            dp_rank=rank,
            dp_size=size,
            shuffle_buffer=16,
            backend="hf",
        )
        return TokenStreamDataLoader(stream, collate_fn=list, num_workers=workers)

    def positions_of(rows):
        return [place[tuple(row["input_ids"].tolist())] for row in rows]

    check_resume_contract(
        factory,
        positions_of,
        len(order),
        layouts=((2, 3), (3, 1), (1, 4)),
        workers=(0, 2),
        stops=[3],
        epochs=False,  # the next epoch has another order
    )


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (0, {}),
        (3, {"shuffle_buffer": 11}),
        (2, {"repeat": True}),
        (0, {"shards": 3, "repeat": True}),
        (2, {"shards": 3, "repeat": True, "shuffle_buffer": 4}),
    ],
)
def test_stateful_dataloader_continues_mid_document_and_mid_buffer(
    paths, workers, options
):
    endless = options.get("repeat", False)

    batches = 40 if endless else None

    def loader():
        stream = TokenStream(
            paths,
            TOKENIZER,
            4,
            micro_batch_size=2,
            dp_rank=1,
            dp_size=2,
            backend="hf",
            **options,
        )
        return StatefulDataLoader(
            stream, 2, num_workers=workers, collate_fn=ids, drop_last=True
        )

    reference = loader()
    whole = list(itertools.islice(reference, batches))
    for stop in (
        1,
        27 if endless else 4,
    ):  # in the first pass of the shards, and in the second one
        taken, resumed = read_resumed(loader, loader(), (stop, 2), batches)
        assert taken == whole
    assert endless or list(resumed) == list(reference)  # the second epoch


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


def test_an_abandoned_epoch_continues_with_what_was_not_delivered(paths):
    loader = TokenStreamDataLoader(
        TokenStream(paths, TOKENIZER, 3, micro_batch_size=2), ids, num_workers=2
    )
    taken = list(itertools.islice(loader, 5))
    state = loader.state_dict()
    assert (state["consumed_train_samples"], state["cursors"]["0"]["row"]) == (10, 9)
    assert taken + list(loader) == list(loader)
    assert loader.state_dict()["epoch"] == 2


def test_the_count_is_that_of_a_nanoset_over_all_epochs(paths):
    rows = ids(TokenStream(paths, TOKENIZER, 3))
    stream = TokenStreamDataLoader(TokenStream(paths, TOKENIZER, 3), ids)
    nanoset = NanosetDataLoader(
        rows, ResumableBatchSampler(len(rows), 1), collate_fn=list
    )
    for batches in (None, None, 5):
        assert list(itertools.islice(stream, batches)) == list(
            itertools.islice(nanoset, batches)
        )
        count = stream.state_dict()["consumed_train_samples"]
        assert count == nanoset.state_dict()["consumed_train_samples"]
    assert count == 2 * len(rows) + 5
    again = TokenStreamDataLoader(TokenStream(paths, TOKENIZER, 3), ids)
    again.load_state_dict(stream.state_dict())
    assert next(iter(again)) == [rows[5]]


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


def changed(tokenizer, **parts):
    """A copy whose backend has other parts."""
    copy = deepcopy(tokenizer)
    for name, part in parts.items():
        setattr(copy.backend_tokenizer, name, part)
    return copy


def test_a_state_knows_the_tokenizer_as_it_encodes_and_the_text_by_its_content(
    tmp_path,
):
    """Neither a vocabulary nor a size tells them apart; a name, and what no id depends on, does not matter."""
    [path] = write_text(tmp_path, [5, 6, 7])
    moved, other = tmp_path / "moved.jsonl", tmp_path / "other" / path.name
    moved.write_bytes(path.read_bytes())
    other.parent.mkdir()
    other.write_bytes(path.read_bytes().replace(b"1", b"2"))
    state = TokenStreamDataLoader(TokenStream(path, TOKENIZER, 4)).state_dict()
    same = [
        TokenStream(
            moved, changed(TOKENIZER, decoder=decoders.ByteLevel()), 4, seed=99
        ),
        TokenStream(path, TOKENIZER, 4, micro_batch_size=3, shuffle_buffer=1),
    ]
    for stream in same:
        TokenStreamDataLoader(stream).load_state_dict(state)
    others = [
        (r"files\[0\] .*checksum", TokenStream(other, TOKENIZER, 4)),
        (
            "tokenizer",
            TokenStream(
                path, changed(TOKENIZER, normalizer=normalizers.Lowercase()), 4
            ),
        ),
        (
            "tokenizer",
            TokenStream(
                path, changed(TOKENIZER, pre_tokenizer=pre_tokenizers.Whitespace()), 4
            ),
        ),
        ("suffix", TokenStream(path, TOKENIZER, 4, append_eod=False)),
        ("shuffle_buffer", TokenStream(path, TOKENIZER, 4, shuffle_buffer=2)),
    ]
    for part, stream in others:
        with pytest.raises(PlanMismatch, match=f"  {part}: saved"):
            TokenStreamDataLoader(stream).load_state_dict(state)


def test_a_text_is_read_for_its_checksum_when_a_state_is_asked_for(paths, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "nanoset_ref.streaming.token_stream.checksum",
        lambda path: calls.append(path) or "a checksum",
    )
    loader = TokenStreamDataLoader(TokenStream(paths, TOKENIZER, 4))
    assert len(list(itertools.islice(loader, 3))) == 3 and calls == []
    assert loader.state_dict() == loader.state_dict()
    assert calls == [str(path) for path in paths]


def test_foreign_and_damaged_states_are_refused(paths):
    stream = TokenStream(paths, TOKENIZER, 4, shuffle_buffer=4)
    loader = TokenStreamDataLoader(stream)
    next(iter(loader))
    for own in (stream, loader):
        state = own.state_dict()
        wrong = [{**state, "consumed_train_samples": number} for number in ("1", 2**63)]
        cursor = loader.state_dict()["cursors"]["0"]
        wrong += [
            {**state, "cursors": {"0": {**cursor, field: -1}}}
            for field in ("row", "offset", "document")
        ]
        for foreign in ({}, None, [], 1.5, *wrong):
            with pytest.raises(ValueError, match="not a state of this kind"):
                own.load_state_dict(foreign)
    for other, saved, difference in (
        (
            TokenStream(paths, TOKENIZER, 5, shuffle_buffer=4),
            stream,
            "sequence_length: saved 4, now 5",
        ),
        (
            TokenStream(paths, TOKENIZER, 4, shuffle_buffer=4, dp_rank=0, dp_size=2),
            stream,
            "dp_size: saved 1, now 2",
        ),
        (
            TokenStreamDataLoader(TokenStream(paths, OTHER, 4, shuffle_buffer=4)),
            loader,
            "tokenizer",
        ),
    ):
        with pytest.raises(PlanMismatch, match=difference):
            other.load_state_dict(saved.state_dict())
    loader.load_state_dict({**loader.state_dict(), "cursors": {"0": {"epoch": None}}})
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        next(iter(loader))


def test_a_cursor_that_lost_its_row_only_costs_time(paths):
    stream = TokenStream(paths, TOKENIZER, 6, micro_batch_size=2, shards=2, repeat=True)
    loader = TokenStreamDataLoader(stream)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [next(batches)["input_ids"].tolist() for _ in range(4)]
    for cursor in state["cursors"].values():
        cursor.clear()
        cursor["epoch"] = state["epoch"]
    loader.load_state_dict(state)
    again = [next(it)["input_ids"].tolist() for it in [iter(loader)] for _ in range(4)]
    assert again == expected


def test_a_cursor_that_became_a_list_is_named_as_one(paths):
    stream = TokenStream(paths, TOKENIZER, 6, shards=2, repeat=True)
    loader = TokenStreamDataLoader(stream)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state | {"cursors": {"0": {}, "1": [{}, {}]}})
    with pytest.raises(TypeError, match="must be a mapping, not list"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_cursors_of_shards_go_on_after_every_resume(paths, workers):
    """A worker reads some of the shards, and knows of the others what it started with."""
    options = {"micro_batch_size": 2, "shards": 4, "repeat": True}
    state, before = None, {}
    for batches in (8, 12, 9):
        stream = TokenStream(paths, TOKENIZER, 6, **options)
        loader = TokenStreamDataLoader(stream, num_workers=workers)
        if state:
            loader.load_state_dict(state)
        for _ in itertools.islice(loader, batches):
            pass
        state = json.loads(json.dumps(loader.state_dict()))
        rows = {shard: cursor["row"] for shard, cursor in state["cursors"].items()}
        # the next row of each shard, or the one before
        read = state["consumed_train_samples"] // 4
        assert sorted(rows) == ["0", "1", "2", "3"]
        assert all(row >= read - 2 for row in rows.values())
        assert all(row > before.get(shard, -1) for shard, row in rows.items())
        before = rows


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


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_has_one_iteration_at_a_time(paths, workers):
    """A new one goes on after what was delivered; a loaded state ends the one under way."""
    stream = TokenStream(paths, TOKENIZER, 6, micro_batch_size=2)
    expected = [batch["input_ids"].tolist() for batch in TokenStreamDataLoader(stream)]
    loader = TokenStreamDataLoader(stream, num_workers=workers)
    first = iter(loader)
    found = [next(first)]
    second = iter(loader)
    assert list(first) == []
    found += [next(second), next(second)]
    assert [batch["input_ids"].tolist() for batch in found] == expected[:3]
    assert loader.state_dict()["consumed_train_samples"] == 6
    loader.load_state_dict(
        {**loader.state_dict(), "consumed_train_samples": 2, "cursors": {}}
    )
    assert list(second) == []
    assert loader.state_dict()["consumed_train_samples"] == 2
    assert [batch["input_ids"].tolist() for batch in loader] == expected[1:]


@pytest.mark.parametrize("duplicate", [copy, deepcopy])
def test_a_copy_of_a_loader_counts_for_itself(paths, duplicate):
    loader = TokenStreamDataLoader(
        TokenStream(paths, TOKENIZER, 6, micro_batch_size=2), ids
    )
    expected = list(loader)
    loader = TokenStreamDataLoader(loader.stream, ids)
    batches = iter(loader)
    assert [next(batches), next(batches)] == expected[:2]
    other = duplicate(loader)
    assert list(itertools.islice(other, 2)) == expected[2:4]
    assert next(batches) == expected[2]
    assert loader.state_dict()["consumed_train_samples"] == 6
    assert other.state_dict()["consumed_train_samples"] == 8
    for one in (loader, other):
        assert one.cursors["0"]["row"] == one.state_dict()["consumed_train_samples"] - 1


def test_loaders_of_one_stream_keep_their_own_cursors(paths):
    stream = TokenStream(paths, TOKENIZER, 6, shuffle_buffer=4)
    loader = TokenStreamDataLoader(stream, ids)
    list(loader)
    expected = list(loader)  # of the second epoch
    ahead = TokenStreamDataLoader(stream, ids)
    behind = TokenStreamDataLoader(stream, ids)
    list(ahead)
    batches = iter(ahead)
    assert next(batches) == expected[0]
    first_epoch = list(itertools.islice(behind, 6))
    assert list(itertools.islice(batches, 9)) == expected[1:10]
    state = ahead.state_dict()
    again = TokenStreamDataLoader(stream, ids)
    again.load_state_dict(state)
    assert list(again) == expected[10:]
    assert behind.state_dict()["consumed_train_samples"] == len(first_epoch)
    # states of earlier versions may hold another loader's cursors
    again.load_state_dict({**state, "cursors": behind.cursors})
    assert list(again) == expected[10:]
