"""Runs that others have published, OLMo's and Pythia's: the same rows on the same ranks at the same steps."""

import itertools
import json
import logging
import os
import pickle
import struct
from collections import defaultdict

import numpy as np
import pytest

from nanoset_ref import (
    IdentityOrder,
    Nanoset,
    PublishedOrder,
    Schedule,
    TokenFile,
    open_tokens,
    plain,
    when,
)
from nanoset_ref.cli import main
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.orders import build_order
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder

LENGTHS = [5, 0, 9, 1]  # samples of four datasets


@pytest.fixture
def olmo(golden):
    """(what ai2-olmo-core says, the arrays that it returned, the Nanoset of its files and its order)."""
    said = json.loads((golden / "olmo/olmo.json").read_text())
    files = [TokenFile(path) for path in sorted((golden / "olmo").glob("part-*.npy"))]
    order = str(golden / "olmo/global_indices.npy")
    rows = Nanoset(
        files,
        None,
        said["sequence_length"] - 1,
        said["instances"],
        order=order,
        disjoint=True,
    )
    return said, np.load(golden / "olmo/olmo.npz"), rows


@pytest.fixture
def pythia(tmp_path):
    """(the path of a .bin/.idx in Pythia's layout, its rows as they lie): 40 sequences of 17 tokens."""
    rows = np.random.default_rng(3).integers(0, 50277, (40, 17)).astype(np.uint16)
    rows.tofile(tmp_path / "document.bin")
    header = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, 40, 1)
    lengths, pointers = (
        np.full(40, 17, dtype="<i4"),
        np.arange(0, 40 * 34, 34, dtype="<i8"),
    )
    closed = np.zeros(
        1, dtype="<i8"
    )  # no document is: the real file has 34 + 12 * 146,432,000 + 8 bytes
    (tmp_path / "document.idx").write_bytes(
        header + lengths.tobytes() + pointers.tobytes() + closed.tobytes()
    )
    return tmp_path / "document.bin", np.fromfile(
        tmp_path / "document.bin", "<u2"
    ).reshape(-1, 17)


@pytest.fixture
def numbers(tmp_path):
    """(a PublishedOrder of 13 instances, one of them twice, and its numbers)."""
    numbers = np.random.default_rng(1).permutation(15)[:12].astype(np.uint32)
    numbers = np.append(numbers, numbers[3])
    numbers.tofile(tmp_path / "global_indices.npy")
    return PublishedOrder(
        LENGTHS, None, 13, path=tmp_path / "global_indices.npy"
    ), numbers.tolist()


# ---- equal to what was run


def test_instances_are_those_of_olmo_core(olmo):
    _, arrays, rows = olmo
    assert rows.dataset_lengths == [
        33,
        0,
        12,
        1,
        25,
    ]  # a file shorter than an instance has none
    identity = Nanoset(rows.files, None, 15, len(rows), order="identity", disjoint=True)
    assert np.array_equal(identity.read(np.arange(len(rows))), arrays["instances"])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_rank_reads_what_olmo_core_gives_it(olmo, ranks):
    said, arrays, rows = olmo
    firsts = np.cumsum([0, *rows.dataset_lengths])
    for rank in range(ranks):
        theirs = arrays[f"rank{rank}of{ranks}/input_ids"]
        sampler = ResumableBatchSampler(len(rows), said["batch"] // ranks, rank, ranks)
        batches = list(itertools.islice(sampler, len(theirs)))
        assert np.array_equal([rows.read(np.array(batch)) for batch in batches], theirs)
        datasets, samples = rows.order[np.array(batches)]
        assert np.array_equal(
            firsts[datasets] + samples, arrays[f"rank{rank}of{ranks}/index"]
        )


def test_a_step_of_pythia_reads_the_sequences_in_line(pythia):
    path, lines = pythia
    rows = Nanoset(open_tokens(path), None, 16, 40, order="identity", disjoint=True)
    schedule = Schedule(dp_size=2, micro_batch_size=2, batch_accumulation_per_replica=2)
    for t in range(5):
        assert np.array_equal(
            rows.read(np.array(schedule.positions(t + 1))), lines[8 * t : 8 * (t + 1)]
        )
    assert [slot.position for slot in when(rows, schedule, 13)] == [
        13
    ]  # each sequence counts as a document


# ---- orders


@pytest.mark.parametrize("until", [0, 1, 7, 13, 31])
def test_orders_are_those_of_plain_and_counts_and_the_way_back_agree_with_a_search(
    numbers, until
):
    by_file, given = numbers
    for order, instances in (
        (by_file, given),
        (IdentityOrder(LENGTHS, None, 31), [k % 15 for k in range(31)]),
    ):
        pairs = [plain.pair_of(number, LENGTHS) for number in instances[:until]]
        assert [order[k] for k in range(len(pairs))] == pairs
        assert order.counts(until).tolist() == [
            sum(dataset == d for d, _ in pairs) for dataset in range(4)
        ]
        for dataset, length in enumerate(LENGTHS):
            places = [
                [k for k, pair in enumerate(pairs) if pair == (dataset, sample)]
                for sample in range(length)
            ]
            reads = [len(found) for found in places]
            assert order.coverage(len(pairs))[dataset] == (
                np.count_nonzero(reads),
                max(reads, default=0),
            )
            assert [
                order.positions(dataset, sample, until).tolist()
                for sample in range(length)
            ] == places


def test_a_file_of_numbers_may_have_a_header_and_any_width(numbers, tmp_path):
    raw, given = numbers
    for dtype in (np.uint8, np.int32, np.int64, np.uint64):
        np.save(tmp_path / "with_header.npy", np.array(given, dtype=dtype))
        order = build_order(str(tmp_path / "with_header.npy"), LENGTHS, None, 13)
        assert [order[k] for k in range(13)] == [raw[k] for k in range(13)]
        assert pickle.loads(pickle.dumps(order))[5] == raw[5]


def test_numbers_of_either_byte_order_are_read(numbers, tmp_path):
    order, given = numbers
    for dtype in (">u4", ">i8", "<u2"):
        np.save(tmp_path / "order.npy", np.array(given, dtype=dtype))
        other = build_order(str(tmp_path / "order.npy"), LENGTHS, None, 13)
        assert np.array_equal(other[:], order[:])
        assert (
            other.positions(*order[3]).tolist() == order.positions(*order[3]).tolist()
        )
        assert other.fingerprint == order.fingerprint


@pytest.mark.parametrize("number", [15, 10**6, 2**32 - 1])
def test_an_order_file_overwritten_in_place_never_names_what_is_no_instance(
    numbers, tmp_path, number
):
    order, given = numbers
    whole = order[:]
    with open(tmp_path / "global_indices.npy", "r+b") as file:
        np.array([*given[:7], number, *given[8:]], dtype=np.uint32).tofile(file)
    assert np.array_equal(order[:7], np.array(whole)[:, :7])
    for positions in (7, slice(0, 13), np.array([7])):
        with pytest.raises(
            ValueError,
            match=f"names instance {number:,}, but these files have 15 in all",
        ):
            order[positions]


@pytest.mark.parametrize("name", ["pipe.npy", "folder.npy", "/dev/zero"])
def test_an_order_is_read_from_a_regular_file_only(tmp_path, name):
    """From a pipe or a device one would wait for ever."""
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValueError, match="is not a regular file"):
        PublishedOrder(LENGTHS, None, 3, path=tmp_path / name)


def test_an_empty_order_file_is_named(tmp_path):
    np.save(tmp_path / "header.npy", np.empty(0, dtype=np.uint32))
    for name, content in (("empty.npy", b""), ("odd.npy", bytes(7))):
        (tmp_path / name).write_bytes(content)
    for name, message in (
        (
            "header.npy",
            r"header.npy must hold instance numbers \[n\], got uint32 \[0\]",
        ),
        ("empty.npy", "empty.npy must hold instance numbers .* it has 0 bytes"),
        ("odd.npy", "odd.npy must hold instance numbers .* it has 7 bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            PublishedOrder(LENGTHS, None, 0, path=tmp_path / name)


def test_the_fingerprint_is_that_of_the_numbers(numbers, tmp_path):
    order, given = numbers
    np.array(given, dtype=np.uint32).tofile(tmp_path / "moved.npy")
    assert (
        PublishedOrder(LENGTHS, None, 5, path=tmp_path / "moved.npy").fingerprint
        == order.fingerprint
    )
    np.array(given[::-1], dtype=np.uint32).tofile(tmp_path / "turned.npy")
    assert (
        PublishedOrder(LENGTHS, None, 5, path=tmp_path / "turned.npy").fingerprint
        != order.fingerprint
    )


@pytest.mark.parametrize(
    ("numbers", "weights", "message"),
    [
        ([0, 15, 3], None, "names instance 15, but these files have 15"),
        ([0, -1, 3], None, "names instance -1"),
        ([0, 1], None, "lists 2 samples, but 3 are requested"),
        ([0.5, 1, 2], None, r"must hold instance numbers \[n\], got float64 \[3\]"),
        ([[0, 1, 2]], None, r"got int64 \[1, 3\]"),
        ([0, 1, 2], [1, 1, 1, 1], "leave the weights out"),
    ],
)
def test_a_file_that_orders_something_else_is_refused(
    tmp_path, numbers, weights, message
):
    np.save(tmp_path / "order.npy", np.array(numbers))
    with pytest.raises(ValueError, match=message):
        PublishedOrder(LENGTHS, weights, 3, path=tmp_path / "order.npy")


def test_an_order_of_fewer_instances_than_there_are_is_pointed_out(tmp_path, caplog):
    """As with rows of half the length, of which there are twice as many."""
    np.arange(100).astype(np.uint32).tofile(tmp_path / "order.npy")
    with caplog.at_level(logging.WARNING):
        PublishedOrder([60, 40], None, 100, path=tmp_path / "order.npy")
        assert not caplog.records
        PublishedOrder([120, 80], None, 100, path=tmp_path / "order.npy")
    assert "names no instance above 99 of 200" in caplog.text


def test_ids_that_samples_cannot_be_read_from_are_refused(tmp_path):
    with MMapIndexedDatasetBuilder(
        tmp_path / "wide.bin", np.dtype(np.int64)
    ) as builder:
        builder.add_document(np.arange(20), [20])
    with pytest.raises(ValueError, match="has ids of int64; convert it"):
        Nanoset(
            open_tokens(tmp_path / "wide"), None, 4, 4, order="identity", disjoint=True
        )


def test_uint32_is_read_as_int32(tmp_path):
    np.arange(100_000, 100_020, dtype=np.uint32).tofile(tmp_path / "olmo2.npy")
    rows = Nanoset(
        TokenFile(tmp_path / "olmo2.npy", "uint32"),
        None,
        4,
        4,
        order="identity",
        disjoint=True,
    )
    assert rows[3]["input_ids"].tolist() == [
        100_015,
        100_016,
        100_017,
        100_018,
        100_019,
    ]


# ---- the command line


@pytest.fixture
def run(capsys):
    """Call the command; what it says as JSON."""

    def call(*arguments):
        code = main([*map(str, arguments), "--json"])
        output = capsys.readouterr()
        assert (code, output.err) == (0, "")
        return json.loads(output.out)

    return call


@pytest.fixture(params=["olmo", "pythia"])
def public(request, golden, pythia):
    """(the options of a run that reads 8 rows a step on 2 ranks, the token files, all rows in the order of the run)."""
    layout = ["--dp-size", 2, "--micro-batch-size", 4]
    if request.param == "pythia":
        return (
            ["--data", pythia[0], "--row-length", 17, "--order", "identity", *layout],
            [pythia[0]],
            pythia[1],
        )
    files = sorted((golden / "olmo").glob("part-*.npy"))
    order = golden / "olmo/global_indices.npy"
    options = [
        "--data",
        *files,
        "--row-length",
        16,
        "--order",
        order,
        "--eos-token-id",
        0,
        *layout,
    ]
    instances = np.load(golden / "olmo/olmo.npz")["instances"]
    return options, files, instances[np.fromfile(order, "<u4")]


def test_where_names_the_bytes_of_the_rows_and_when_finds_them_by_their_documents(
    run, public
):
    options, _, rows = public
    seen, steps = defaultdict(set), range(1, 6)
    for step in steps:
        found = run("where", *options, "--step", step)
        assert sorted(row["slot"]["position"] for row in found) == list(
            range(8 * step - 8, 8 * step)
        )
        for row in found:
            ids, position = np.fromfile(row["path"], "<u2"), row["slot"]["position"]
            parts = [
                ids[part["first_byte"] // 2 : part["end_byte"] // 2]
                for part in row["parts"]
            ]
            assert np.array_equal(np.concatenate(parts), rows[position])
            for part in row["parts"]:
                seen[row["source"], part["document"]].add(position)
    for source, document in [*seen][::5]:
        found = run("when", *options, "--source", source, "--document", document)
        assert {slot["position"] for slot in found if slot["step"] in steps} == seen[
            source, document
        ]


def test_show_and_when_find_a_text(run, public, corpus_tokenizer, tmp_path):
    """The layout, filled with words: what a step shows is where `when` finds it."""
    options, files, rows = public
    text = " ".join(f"word{number} and" for number in range(200))
    ids = np.resize(
        corpus_tokenizer.encode(text, add_special_tokens=False), rows.size + 600
    ).astype(np.uint16)
    for file in files:
        size, ids = file.stat().st_size // 2, np.roll(ids, -31)
        (tmp_path / file.name).write_bytes(ids[:size].tobytes())
    here = [tmp_path / option.name if option in files else option for option in options]
    tokenizer = ["--tokenizer", corpus_tokenizer.name_or_path]
    shown = run("show", *here, *tokenizer, "--step", 2)
    assert len(shown) == 8
    piece = " ".join(shown[0]["text"].split(" ")[1:4])
    found = run("when", *here, *tokenizer, "--text", piece)
    assert 8 in [slot["position"] for slot in found]
    sample = run("show", *here, *tokenizer, "--sample", 3, "--source", 0)
    assert sample[0]["text"] == corpus_tokenizer.decode(
        np.fromfile(here[1], "<u2")[3 * rows.shape[1] : 4 * rows.shape[1]].tolist()
    )


@pytest.fixture(scope="session")
def corpus_tokenizer(tmp_path_factory):
    from nanoset_ref import load_tokenizer, prepare_corpus

    return load_tokenizer(prepare_corpus(tmp_path_factory.mktemp("words")).tokenizer)


def test_audit_proves_a_published_run(run, public):
    options, files, rows = public
    report = run("audit", *options)
    assert report["ok"]
    (segment,) = report["segments"]
    assert segment["num_steps"] == len(rows) // 8
    assert "shares are the weights" not in [
        check["rule"] for check in segment["checks"]
    ]
    assert len(segment["sources"]) == len(files)
    assert (
        sum(source["distinct"] for source in segment["sources"]) == len(rows) // 8 * 8
    )
    assert max(source["most_reads"] for source in segment["sources"]) == 1
