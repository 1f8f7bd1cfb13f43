"""Many questions at once get the answers that each of them gets alone."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_card import FACTS, toy
from token_files import write_range

from nanoset_ref import Card, Nanoset, Schedule, SkippingOrder, TokenFileWriter
from nanoset_ref.load.best_fit import PackedNanoset
from nanoset_ref.orders import StatelessOrder, build_order
from nanoset_ref.orders.inverse import find_each
from nanoset_ref.provenance import (
    RunSegment,
    answer_queries,
    card_of_segments,
    passage_search,
    readers_of_card,
    readers_of_segments,
    rows_to_skip,
    when,
)

ORDERS = [
    "identity",
    "nanotron",
    "stateless",
    "grain",
    "olmo_core:chunk_size=2",
    "llm_c",
    "nanotron_main",
    "levanter",
    "maxtext:hosts=2",
    "py1e:canonical_nodes=2,block_size=4",
]


@pytest.mark.parametrize("name", ORDERS)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(
        lambda sizes: sum(sizes) > 2
    ),
    st.integers(0, 2**31),
    st.floats(0.2, 3),
    st.data(),
)
def test_each_sample_is_found_where_it_is_read(name, sizes, seed, epochs, data):
    if name in ("llm_c", "nanotron", "maxtext:hosts=2"):  # which refuse empty files
        sizes = [size + 1 for size in sizes]
    if name == "olmo_core:chunk_size=2":  # which refuses files without a chunk
        sizes = [size + 1 for size in sizes]
    if name == "nanotron_main":  # which refuses a file that runs out
        sizes = [max(sizes)] * len(sizes)
        epochs = min(epochs, 1)
    order = build_order(name, sizes, None, int(sum(sizes) * epochs), seed)
    every = [
        (dataset, sample)
        for dataset, size in enumerate(sizes)
        for sample in range(size)
    ]
    pairs = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=20))
    until = data.draw(st.integers(0, len(order)))
    found = find_each(
        order, *np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy(), until
    )
    expected = [
        [number, position]
        for number, pair in enumerate(pairs)
        for position in order.positions(*pair, until).tolist()
    ]
    assert np.stack(found, axis=1).tolist() == expected


def test_a_stateless_order_of_many_epochs_and_unequal_weights_is_searched_at_once():
    order = build_order("stateless", [1000, 7, 300], [1, 0.1, 2], 20_000, 5)
    datasets = np.repeat([0, 1, 2], [1000, 7, 300])
    samples = np.concatenate([np.arange(1000), np.arange(7), np.arange(300)])
    numbers, positions = find_each(order, datasets, samples, 20_000)
    assert np.array_equal(np.sort(positions), np.arange(20_000))
    read = order[positions]
    assert np.array_equal(read[0], datasets[numbers])
    assert np.array_equal(read[1], samples[numbers])


def test_grain_with_its_defect_is_read_through():
    order = build_order("grain:accept_repeat=1", [65537], None, 65537 * 2, 7)
    wanted = np.array([order[0][1], 65536, 5])
    numbers, positions = find_each(
        order, np.zeros(3, dtype=np.int64), wanted, 65537 * 2
    )
    for n, sample in enumerate(wanted.tolist()):
        assert positions[numbers == n].tolist() == order.positions(0, sample).tolist()


def table(readers, parser, lines):
    rows = [
        line.split("\t")
        for part in answer_queries(readers, parser, lines)
        for line in part
    ]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


@pytest.mark.parametrize("order", ["identity", "stateless", "olmo_core"])
def test_bytes_are_answered_as_one_by_one(order):
    facts = toy(orders=[FACTS["orders"][0] | {"name": order}])
    card = Card(facts | {"window": {"row_length": 5, "stride": 4}})
    lines = ["0-2", "1:6-8", "  0:12-30 ", "", "38-40", "1:20-21"]
    readers, parser = readers_of_card(card, 0)
    found = table(readers, parser, lines)
    expected = []
    for line in filter(None, map(str.strip, lines)):
        source, _, span = line.rpartition(":")
        first, stop = map(int, span.split("-"))
        for row in card.when(source=int(source or 0), byte_range=(first, stop)):
            rank = "" if row.dp_rank is None else str(row.dp_rank)
            expected.append(
                (line, str(row.step), str(row.position), rank, str(row.sample))
            )
    names = ("query", "step", "position", "rank", "sample")
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(
        expected
    )
    assert len(expected) > 8


def test_a_file_that_is_listed_twice_is_found_at_both_places_in_bulk():
    twice = Card(toy(sources=[{"name": "a", "bytes": 40}] * 2))
    for line in ("0-2", "1:0-2"):
        found = table(*readers_of_card(twice, 0), [line])
        assert [int(row["position"]) for row in found] == [0, 5, 10, 15]


@pytest.fixture
def run(tmp_path):
    """Two stages over files with documents of 7 tokens, the first one on the first file alone."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path in paths:
        with TokenFileWriter(path, dtype="uint16") as writer:
            for document in range(30):
                writer.write_document(np.arange(7) + document)
    rows = [
        Nanoset(paths[:1], None, 8, 24, order="stateless"),
        Nanoset(paths[::-1], None, 8, 60, order="nanotron"),
    ]
    later = {"first_step": 7, "dp_size": 2, "micro_batch_size": 2}
    return [
        RunSegment("one", rows[0], Schedule(micro_batch_size=4), 6),
        RunSegment("two", rows[1], Schedule(**later), 15),
    ]


def test_documents_are_answered_as_one_by_one(run):
    found = table(*readers_of_segments(run, 1), [f"{d}" for d in range(30)] + ["0:4"])
    for document in range(30):
        slots = when(
            run[1].dataset, run[1].schedule, document, source=0
        )  # b.npy comes first there
        rows = [row for row in found if row["query"] == str(document)]
        assert [int(row["position"]) for row in rows] == [
            slot.position for slot in slots
        ]
        assert [int(row["rank"]) for row in rows] == [slot.dp_rank for slot in slots]
        assert {row["source"] for row in rows} == {"1"}
    named = [row for row in found if row["query"] == "0:4"]
    first = when(run[0].dataset, run[0].schedule, 4)
    assert [row["step"] for row in named if row["stage"] == "one"] == [
        str(s.step) for s in first
    ]


def test_rows_of_whole_documents_are_refused_in_bulk_and_by_cards(run):
    """A document of theirs does not lie where rows cut one after another would have it."""
    path = run[0].dataset.dataset_paths[0]
    packed = PackedNanoset([path], None, 8, pad_id=0)
    segments = [run[0], RunSegment("packed", packed, Schedule(), 5)]
    message = "packed: cards and bulk queries .* not rows of PackedNanoset"
    with pytest.raises(ValueError, match=message):
        readers_of_segments(segments, 0)
    with pytest.raises(ValueError, match=message):
        card_of_segments(segments, "packed", "2026-11")
    rows = packed.read(np.arange(len(packed)))
    for document in range(3):
        for slot in when(packed, Schedule(), document):
            assert document in rows[slot.position]


class Bytes:
    """A token per byte of ASCII."""

    def encode(self, text, **options):
        return list(text.encode())

    def decode(self, ids, **options):
        return bytes(ids).decode()


def write_documents(path, documents):
    with TokenFileWriter(path, dtype="uint16") as writer:
        for document in documents:
            writer.write_document(document)
    return path


def naive_rows(segments, ids):
    """(stage, position) of the rows with a token of `ids`, wherever they lie within a document."""
    rows = set()
    for segment in segments:
        dataset = segment.dataset
        for source, file in enumerate(dataset.files):
            offsets = file.document_offsets
            for document, (start, stop) in enumerate(itertools.pairwise(offsets)):
                tokens = file.tokens[start:stop]
                for first in range(len(tokens) - len(ids) + 1):
                    if not np.array_equal(tokens[first : first + len(ids)], ids):
                        continue
                    for slot in when(
                        dataset,
                        segment.schedule,
                        document,
                        source=source,
                        tokens=(first, first + len(ids)),
                        until=segment.stop,
                    ):
                        rows.add((segment.name, slot.position))
    return rows


@pytest.mark.parametrize("few", [0, 16])
@given(data=st.data())
def test_passages_are_found_wherever_they_lie_within_a_document(
    tmp_path_factory, few, data
):
    """The oracle: each beginning is compared, document by document. Few ids, so that much repeats."""
    tokens = st.lists(st.sampled_from([97, 98, 32]), max_size=12)
    files = data.draw(st.lists(st.lists(tokens, max_size=6), min_size=1, max_size=2))
    folder = tmp_path_factory.mktemp("passages")
    long_enough = [[97] * 9]
    paths = [
        write_documents(folder / f"{number}.npy", documents + long_enough)
        for number, documents in enumerate(files)
    ]
    segments = [
        RunSegment("one", Nanoset(paths, None, 3, 20), Schedule(), 12),
        RunSegment(
            "two", Nanoset(paths[:1], None, 3, 9, order="stateless"), Schedule(), 9
        ),
    ]
    ids = data.draw(st.lists(tokens.filter(bool), min_size=1, max_size=4))
    words = st.text("ab", min_size=1, max_size=3)
    texts = data.draw(st.lists(st.lists(words, min_size=3, max_size=5), max_size=3))
    passages = [*ids, *map(" ".join, texts), [65_536 + 97], [97, -1]]
    readers, parser = readers_of_segments(segments, 0)
    parser = parser._replace(tokenizer_of=lambda file: Bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passage_search, "FEW_SEQUENCES", few)
        patch.setattr("nanoset_ref.tokens.document_blocks.BLOCK_IDS", 16)
        found = table(readers, parser, map(json.dumps, passages))
    for passage in passages:
        rows = [row for row in found if row["query"] == json.dumps(passage)]
        read = [(row["stage"], int(row["position"])) for row in rows]
        wanted = passage
        if isinstance(passage, str):
            wanted = Bytes().encode(passage)
        assert {*read} == naive_rows(segments, wanted)
        times = sum(json.dumps(other) == json.dumps(passage) for other in passages)
        assert len(read) == times * len({*read}), "each row once for each line"


def test_texts_of_one_and_two_words_are_found_as_one_by_one(tmp_path):
    documents = [b"no cat", b"cat no cat no", b"the cat", b"dog"]
    path = write_documents(tmp_path / "a.npy", [*map(list, documents)])
    segment = RunSegment("run", Nanoset(path, None, 4, 7), Schedule(), 7)
    readers, parser = readers_of_segments([segment], 0)
    with pytest.raises(ValueError, match="the text .* needs a tokenizer"):
        parser.spans(['"cat"'])
    reports = []
    parser = parser._replace(tokenizer_of=lambda file: Bytes(), progress=reports.append)
    for text in ("cat", "cat no", "cow"):
        hits = passage_search.find_text(segment.dataset.files[0], Bytes(), text)
        positions = {
            slot.position
            for document, start, stop in hits
            for slot in when(
                segment.dataset, Schedule(), document, tokens=(start, stop)
            )
        }
        found = table(readers, parser, [json.dumps(text)])
        assert {int(row["position"]) for row in found} == positions
        assert bool(found) == (text != "cow")
    assert reports == ["file 0: 4 documents searched"] * 3


def test_a_run_without_a_passage_reads_none_of_its_rows(run):
    ids = [12, 13, 14]
    rows = rows_to_skip(*readers_of_segments(run, 0), [f"[12,\t{ids[1]}, 14]"])
    expected = naive_rows(run, ids)
    for stage in rows:
        ranges = [range(*bounds) for bounds in stage["ranges"]]
        positions = {position for span in ranges for position in span}
        assert positions == {k for name, k in expected if name == stage["stage"]}


def test_ids_keep_their_line_in_the_table(run):
    found = table(*readers_of_segments(run, 0), ["3", "[12,\t13]", "0-2"])
    assert {row["query"] for row in found} == {"3", "[12, 13]", "0-2"}


def test_passages_need_the_files():
    readers, parser = readers_of_card(Card(toy()), 0)
    for line in ('"a text"', "[1, 2]"):
        with pytest.raises(ValueError, match="passages need the token files: .*--data"):
            table(readers, parser, [line])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x", "a line is .*a text as a JSON string, or ids as a JSON list, got 'x'"),
        ("[1, 2", "a line is .*got '.1, 2'"),
        ('{"a": 1}', "a line is"),
        ("[]", r"ids as a JSON list, got '\[\]'"),
        ('""', "ids as a JSON list, got '\"\"'"),
        ('" "', "a text of at least one word, got none"),
        ("[1, 2.5]", r"ids as a JSON list, got '\[1, 2.5\]'"),
        ("[true]", r"ids as a JSON list, got '\[true\]'"),
        ("[[1]]", r"ids as a JSON list, got '\[\[1\]\]'"),
        ("-3", "a line is"),
        ("2:0", "2:0: there are 2 files"),
        ("30", "30: there are 30 documents, counted from 0"),
        ("3-3", "3-3: the ids are bytes 0-420 of the file"),
        ("0-421", "0-421: the ids are"),
    ],
)
def test_a_line_that_names_nothing_is_quoted(run, line, message):
    readers, parser = readers_of_segments(run, 0)
    with pytest.raises(ValueError, match=message):
        table(readers, parser, ["1", line])


def test_a_run_without_documents_is_that_of_a_skipping_order(run):
    one, two = rows_to_skip(*readers_of_segments(run, 0), ["3", "1:5", "1:6"])
    for segment, found in zip(run, (one, two), strict=True):
        order = segment.dataset.order
        unwanted = {
            position
            for source, documents in ((0, [3]), (1, [5, 6]))
            for number, path in enumerate(segment.dataset.dataset_paths)
            if path.endswith("ab"[source] + ".npy")
            for document in documents
            for position in segment.dataset.positions_of(number, document).tolist()
            if position < segment.stop
        }
        skipping = SkippingOrder(order, found["ranges"])
        kept = [order[k] for k in range(len(order)) if k not in unwanted]
        assert [skipping[k] for k in range(len(skipping))] == kept
        size = segment.schedule.global_batch_size
        steps = sorted({k // size + segment.schedule.first_step for k in unwanted})
        assert (found["rows"], found["steps"]) == (len(unwanted), len(steps))
        assert found["first_step"] == steps[0]
    assert one["before"] == two["before"] == 0, "each stage has an order of its own"


def test_stages_of_one_order_move_up_together(tmp_path):
    path = write_range(tmp_path / "c.npy", 401)
    rows = Nanoset(path, None, 4, 100, order="identity")
    later = Schedule(micro_batch_size=5, consumed_train_samples=50, first_step=11)
    equal = Nanoset(path, None, 4, 100, order="identity")  # as a stage of a config has
    for second in (rows, equal):
        stages = [
            RunSegment("one", rows, Schedule(micro_batch_size=5), 10),
            RunSegment("two", second, later, 10),
        ]
        readers, parser = readers_of_segments(stages, 0)
        one, two = rows_to_skip(readers, parser, ["80-90"])  # tokens 40 to 44
        assert one["ranges"] == [[9, 12]] and one["first_step"] == 2
        assert two["ranges"] == [] and (two["first_step"], two["before"]) == (11, 3)


@pytest.mark.parametrize("names", ["aab", "aba", "ab"])
def test_a_file_that_is_named_twice_has_the_numbers_that_when_and_where_print(
    tmp_path, names
):
    paths = {name: write_range(tmp_path / f"{name}.npy", 41) for name in "ab"}
    files = [paths[name] for name in names]
    rows = Nanoset(files, None, 4, 30)
    segment = RunSegment("run", rows, Schedule(micro_batch_size=5), 6)
    readers, parser = readers_of_segments([segment], 0)
    for number, name in enumerate(names):
        lines = [*answer_queries(readers, parser, [f"{number}:8-10"])][1]
        found = {int(line.split("\t")[3]) for line in lines}
        same = [other for other, it in enumerate(names) if it == name]
        pairs = [rows.order[k] for k in range(30)]
        # token 4 is the last of sample 0 and the first of sample 1
        assert found == {
            k for k, (file, sample) in enumerate(pairs) if file in same and sample < 2
        }
    with pytest.raises(
        ValueError, match=f"there are {len(names)} files, counted from 0"
    ):
        parser.spans([f"{len(names)}:8-10"])


def test_a_stage_whose_ledger_counts_skipped_rows_changes_as_a_whole(tmp_path):
    path = write_range(tmp_path / "c.npy", 401)
    first = Nanoset(path, None, 4, 60, order="stateless")
    ledger = first.order.ledger(50)
    order = StatelessOrder([100], None, 100, first.order.random_seed, start=ledger)
    later = Schedule(micro_batch_size=5, consumed_train_samples=50, first_step=11)
    second = Nanoset(path, None, 4, 100, order=order)
    segments = [
        RunSegment("one", first, Schedule(micro_batch_size=5), 10),
        RunSegment("two", second, later, 10),
    ]
    readers, parser = readers_of_segments(segments, 0)
    read = first.order[3][1]  # by the first stage alone
    one, two = rows_to_skip(readers, parser, [f"{read * 8 + 2}-{read * 8 + 4}"])
    assert (one["ranges"], one["ledger_changes"]) == ([[3, 4]], False)
    assert (two["ranges"], two["ledger_changes"], two["first_step"]) == ([], True, 11)
    unread = second.order[60][1]
    one, two = rows_to_skip(readers, parser, [f"{unread * 8 + 2}-{unread * 8 + 4}"])
    assert one["ranges"] == [] and not two["ledger_changes"]
    assert two["ranges"] == [[60, 61]]
