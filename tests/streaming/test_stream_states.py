"""States of a TokenStream: accepted for the same text and tokenizer, refused for others and when damaged."""

import itertools
from copy import deepcopy

import pytest
from stream_helpers import TOKENIZER, TokenStream, number_tokenizer, write_text
from tokenizers import decoders, normalizers, pre_tokenizers

from nanoset_ref.orders.plans import PlanMismatch
from nanoset_ref.streaming import TokenStreamDataLoader

OTHER = number_tokenizer(100)


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
