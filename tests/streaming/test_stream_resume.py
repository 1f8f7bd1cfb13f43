"""TokenStream, resumed in the middle of documents and of buffers; each loader has its own cursors and count."""

import itertools
import json
from copy import copy, deepcopy

import pytest
from resume_contract import check_resume_contract
from stream_helpers import LENGTHS, TOKENIZER, TokenStream, ids, read_resumed, tokens_of
from torchdata.stateful_dataloader import StatefulDataLoader

from nanoset_ref.load.dataloader import NanosetDataLoader
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.preprocess.encoder import Encoder
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.streaming import TokenStreamDataLoader


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
