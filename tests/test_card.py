"""Run cards: every shipped one is right, every wrong field is named, and every question goes both ways."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from nanoset_ref import Card
from nanoset_ref.orders.others import nanotron_stages
from nanoset_ref.provenance import shipped_cards, uneven_in_card
from nanoset_ref.provenance.card_comparison import compare_two_cards
from nanoset_ref.provenance.card_of_run import probes_of
from nanoset_ref.provenance.card_validation import MAX_CARD_BYTES, problems_of_card

FACTS = {
    "card": 1,
    "name": "toy",
    "date": "2026-11",
    "links": ["https://example.org/toy"],
    "loader": {"name": "OLMo-core", "version": "3.0.0"},
    "tokenizer": {"name": None, "hash": None},
    "dtype": "uint16",
    "window": {"row_length": 4, "stride": 4},
    "sources": [
        {"name": "a", "bytes": 40},
        {"name": "b", "bytes": 38, "first_byte": 6},
    ],
    "orders": [{"name": "identity", "seed": 0, "samples": 24, "probes": {}}],
    "stages": [
        {
            "name": "ramp",
            "first_step": 1,
            "steps": 2,
            "order": 0,
            "first_position": 0,
            "batch_size": 2,
            "layout": "strided",
            "dp_size": 2,
            "micro_batch_size": 1,
        },
        {
            "name": "run",
            "first_step": 3,
            "steps": 4,
            "order": 0,
            "first_position": 4,
            "batch_size": 4,
            "layout": None,
            "dp_size": None,
            "micro_batch_size": None,
        },
    ],
    "known": [],
    "inferred": [],
    "unknown": [],
}


def toy(**changes):
    return copy.deepcopy(FACTS) | changes


def test_a_step_names_files_samples_and_bytes():
    rows = Card(toy()).where(3)  # positions 4 to 7; the files have 5 and 4 rows
    found = [(row.path, row.sample, row.first_byte, row.end_byte) for row in rows]
    assert found == [
        ("a", 4, 32, 40),
        ("b", 0, 6, 14),
        ("b", 1, 14, 22),
        ("b", 2, 22, 30),
    ]
    assert [row.position for row in rows] == [4, 5, 6, 7]
    assert {row.dp_rank for row in rows} == {None}, (
        "the card does not know this stage's ranks"
    )
    assert [row.dp_rank for row in Card(toy()).where(1)] == [0, 1]


@pytest.mark.parametrize(
    "order",
    [
        {"name": "identity"},
        {"name": "olmo_core", "options": {"chunk_size": 2, "batch_size": 2}},
        {"name": "nanotron", "weights": [1, 3]},
        {"name": "stateless"},
        {"name": "grain"},
        {"name": "llm_c", "options": {"micro_batch_size": 1, "dp_size": 2}},
    ],
    ids=lambda order: order["name"],
)
def test_when_is_the_inverse_of_where(order):
    card = Card(toy(orders=[{"seed": 7, "samples": 24, "probes": {}} | order]))
    read = [row for step in range(1, 7) for row in card.where(step)]
    assert len(read) == 20
    for source, length in enumerate([5, 4]):
        for sample in range(length):
            asked = card.when(sample, source=source)
            assert asked == [
                row for row in read if (row.source, row.sample) == (source, sample)
            ]


def test_bytes_are_read_by_the_rows_that_hold_them():
    overlapping = toy(window={"row_length": 5, "stride": 4})
    card = Card(overlapping)  # rows a: 0:5 4:9 8:13 12:17, tokens
    rows = card.when(byte_range=(8, 10))
    assert [row.sample for row in rows if row.epoch == 0] == [0, 1], (
        "token 4 is in both"
    )
    with pytest.raises(
        IndexError, match="no tokens at bytes 0:8 of b, which has 38 bytes, 6 of"
    ):
        card.when(source=1, byte_range=(0, 8))


def test_bytes_of_any_kind_of_integer_are_the_same():
    card = Card(toy())
    for dtype in (np.uint8, np.int16, np.uint64):
        asked = card.when(byte_range=(dtype(8), dtype(10)))
        assert asked == card.when(byte_range=(8, 10)) != []


def test_bytes_behind_the_last_row_are_never_read():
    card = Card(toy(sources=[{"name": "a", "bytes": 46}]))  # 5 rows and 3 tokens
    assert card.when(byte_range=(42, 46)) == []
    assert [row.sample for row in card.when(byte_range=(38, 46))][:1] == [4]


def test_a_sample_that_does_not_exist_is_refused_even_of_a_file_that_no_stage_reads():
    card = Card(toy(orders=[FACTS["orders"][0] | {"sources": [0]}]))
    assert card.when(3, source=1) == []
    with pytest.raises(IndexError, match="there is no sample 4: there are 4, counted"):
        card.when(4, source=1)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda card: pickle.loads(pickle.dumps(card))]
)
def test_a_copy_of_a_card_has_the_orders_of_its_own_facts(copied):
    card = Card(toy())
    rows = card.where(1)
    other = copied(card)
    assert other.where(1) == rows
    other = copied(card)
    other.facts["orders"][0]["name"] = "stateless"
    expected = Card(copy.deepcopy(other.facts)).where(1)
    assert other.where(1) == expected != rows
    assert card.where(1) == rows


def test_a_card_with_wrong_probes_answers_nothing():
    right = Card(toy())
    probes = probes_of(right.order(0), 24)
    assert len(probes) == 24 and probes["5"] == [1, 0]
    wrong = toy(orders=[FACTS["orders"][0] | {"probes": probes | {"5": [1, 1]}}])
    with pytest.raises(
        ValueError,
        match="order 0 of toy disagrees with its probe at position 5 and 0 others",
    ):
        Card(wrong).where(1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("dtype",), "float", "dtype: must be the dtype of the ids; got 'float'"),
        (("date",), "April", "date: must be the year and month"),
        (("window", "stride"), 0, "window.stride: must be tokens from the start"),
        (("window", "stride"), True, "window.stride: must be"),
        (("stages", 1, "steps"), "4", "stages[1].steps: must be a whole number from 1 on; got '4'"),
        (("stages", 1, "first_step"), 4, "stages[1].first_step: must be 3, the step after"),
        (("stages", 1, "steps"), 6, "stages[1].steps: they read positions up to 28; the order has 24"),
        (("stages", 0, "layout"), None, "stages[0].layout: give layout, dp_size and micro_batch_size"),
        (("stages", 0, "batch_size"), 3, "stages[0].batch_size: must be a multiple of dp_size"),
        (("stages", 0, "order"), 1, "stages[0].order: there is no order 1: there are 1"),
        (("orders", 0, "probes"), {"30": [0, 0]}, "orders[0].probes: positions are whole numbers"),
        (("orders", 0, "probes"), {"3": [0, 0]}, "orders[0].probes: must be 24 pairs, or none; got 1"),
        (("orders", 0, "weights"), [0.5], "orders[0].weights: must be 2, one for each source or folder; got 1"),
        (("orders", 0, "sources"), [2], "orders[0].sources: there is no source 2: there are 2"),
        (("orders", 0, "sources"), [], "orders[0].sources: must be the numbers of the sources"),
        (("orders", 0, "seed"), 10**30, "orders[0].seed: must be a whole number from 0 on; got 1000"),
        (("sources",), [], "sources: name the files here or where they are listed"),
        (("sources", 0, "bites"), 3, "sources[0].bites: unknown key, did you mean 'bytes'?"),
    ],
)  # fmt: skip
def test_every_wrong_field_is_named_with_its_rule(path, value, message):
    facts = toy()
    holder = facts
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    assert any(problem.startswith(message) for problem in problems_of_card(facts))


LISTED = {
    "url": "https://example.org/list",
    "sha256": None,
    "files": 2,
    "after": "",
    "pattern": "(.+)",
    "address": "https://example.org/{}",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pattern", "("),
        ("pattern", "(a)(b)"),
        ("address", "{}{}"),
        ("address", "{x}/{}"),
        ("address", "{0.x}"),
    ],
)
def test_a_listed_pattern_and_address_can_be_used(name, value):
    assert problems_of_card(toy(sources=[], listed=LISTED)) == []
    [problem] = problems_of_card(toy(sources=[], listed=LISTED | {name: value}))
    assert problem.startswith(f"listed.{name}: must be a")


@pytest.mark.parametrize("end", ["{:05}{}", "{x}{:05}", "{:05}{", "{:0999999999}"])
def test_the_address_of_a_part_has_one_number(end):
    parts = {"url": f"https://example.org/{end}", "bytes": 40}
    sources = [FACTS["sources"][0] | {"parts": parts}, FACTS["sources"][1]]
    [problem] = problems_of_card(toy(sources=sources))
    assert problem.startswith(
        "sources[0].parts.url: must be an address that begins with"
    )


def test_all_wrong_fields_are_reported_at_once():
    facts = toy(card=2, links="x")
    del facts["known"]
    with pytest.raises(ValueError, match="known: is missing") as caught:
        Card(facts)
    assert all(
        text in str(caught.value)
        for text in ("card: must be 1", "links: must be a list")
    )


def test_a_question_that_lacks_sizes_says_where_they_are(tmp_path):
    card = Card.load("olmo-1b")
    with pytest.raises(
        ValueError, match=r"the sizes of 249 files, named in https://raw.*card complete"
    ):
        card.where(1)
    sizes = [(f"part-{k}", (2048 + k) * 4096) for k in range(249)]
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps(sizes))
    rows = Card.load("olmo-1b", path).where(2)
    assert len(rows) == 2048 and len({(row.path, row.sample) for row in rows}) == 2048
    path.write_text(json.dumps([["one", 1]]))
    with pytest.raises(ValueError, match="sizes are 249 pairs"):
        Card.load("olmo-1b", path)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("olmo-2-32b", r"`nanoset-ref card complete` fetches sizes .*--sizes.*--data"),
        ("polypythias-seed2", r"size of pile_20B_\S+: give the files \(--data\)$"),
        ("smollm3-3b", "nobody has published enough to compute its order"),
        ("olmo-3-7b-stage3", "packed from whole documents: give the files"),
    ],
)
def test_a_sample_of_a_card_without_sizes_is_answered_with_a_way_out(name, advice):
    with pytest.raises(ValueError, match=advice):
        Card.load(name).when(5)


@pytest.mark.parametrize(
    "sizes", [7, [7] * 249, {"a": 1}, [["a", "b", "c"]] * 249, [["a", -1]] * 249]
)
def test_sizes_that_are_no_table_are_refused(sizes):
    with pytest.raises(ValueError, match=r"249 pairs \[name, bytes\]|at least 0"):
        Card(Card.load("olmo-1b").facts, sizes)


def test_an_order_that_cannot_be_built_says_why():
    order = FACTS["orders"][0] | {"name": "grain", "options": {"depth": 1}}
    with pytest.raises(ValueError, match="toy: order 0: .*depth: unknown key"):
        Card(toy(orders=[order])).where(1)
    with pytest.raises(ValueError, match="toy: the files of order 0 hold no sample"):
        Card(toy(sources=[{"name": "a", "bytes": 6}])).where(1)
    with pytest.raises(ValueError, match="the card: must be an object"):
        Card([])


def test_a_folder_does_not_hide_the_card_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "other"):
        (tmp_path / name).mkdir()
    assert Card.load("demo").facts["name"] == "demo"
    with pytest.raises(FileNotFoundError, match="no card other: .* a folder of checkp"):
        Card.load("other")


def test_an_unknown_card_is_answered_with_the_shipped_ones(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"there is no card pythia: .*pythia-1.4b, "
    ):
        Card.load("pythia")
    large = tmp_path / "large.json"
    large.write_text(json.dumps(toy(known=["x" * MAX_CARD_BYTES])))
    with pytest.raises(ValueError, match="a card has at most 10,000"):
        Card.load(large)


@pytest.mark.parametrize("name", shipped_cards())
def test_a_shipped_card_has_its_sources_and_its_probes_are_what_its_order_gives(name):
    card = Card.load(name)
    assert card.name == name and card.facts["links"]
    for number, order in enumerate(card.facts["orders"]):
        computable = order["name"] not in ("megatron", "unknown") and card.sources
        if computable:
            assert len(order["probes"]) == min(64, order["samples"])
            assert card.wrong_probes(number, card.unchecked_order(number)) == []
        elif not order["probes"]:
            unknown = " ".join(card.facts["unknown"])
            assert "sizes" in unknown or "no probes" in unknown


def test_olmo_3_has_a_card_for_each_of_its_stages():
    names = [name for name in shipped_cards() if name.startswith("olmo-3")]
    assert len(names) == 7
    for name in names:
        order, listed = (
            Card.load(name).facts["orders"][0],
            Card.load(name).facts["listed"],
        )
        assert order["name"] == (
            "olmo_core_packed" if name.endswith("stage3") else "olmo_core"
        )
        assert listed["tokenizer"] == "allenai/dolma3-tokenizer"
    sizes = [(f"{file}", 4 * 8192 * 9) for file in range(950)]
    rows = Card(Card.load("olmo-3-32b-stage1").facts, sizes).where(1)
    assert len(rows) == 1024
    assert rows[0].end_byte - rows[0].first_byte == 4 * 8192


def test_pythia_reads_the_rows_that_its_own_viewer_shows():
    # utils/batch_viewer.py of EleutherAI/pythia: dataset[iteration * 1024: (iteration + 1) * 1024]
    card = Card.load("pythia-1.4b")
    rows = card.where(41_007)
    iteration = 41_007 - 1
    assert [row.sample for row in rows] == [
        *range(iteration * 1024, (iteration + 1) * 1024)
    ]
    assert rows[0].first_byte == iteration * 1024 * 2049 * 2 == 172_075_610_112
    assert rows[-1].end_byte - rows[0].first_byte == 1024 * 2049 * 2
    assert [row.dp_rank for row in rows[:17]] == [0] * 16 + [1]
    assert card.when(rows[5].sample) == [rows[5]]
    assert card.when(byte_range=(rows[5].first_byte, rows[6].first_byte)) == [rows[5]]
    with pytest.raises(
        IndexError, match="step 143001 is not one of the steps 1 to 143000"
    ):
        card.where(143_001)


def test_a_row_of_pythia_may_lie_in_two_published_parts():
    card = Card.load("pythia-12b-deduped")
    parts = card.published(0, 29_999_999_000, 30_000_000_100)
    assert [(url.rpartition("/")[2], first, last) for url, first, last in parts] == [
        ("document-00000-of-00020.bin", 29_999_999_000, 30_000_000_000),
        ("document-00001-of-00020.bin", 0, 100),
    ]
    last = card.sources[0]["bytes"]
    assert card.published(0, last - 4098, last)[0][0].endswith(
        "document-00020-of-00020.bin"
    )


def test_the_speedrun_reads_its_shards_as_its_own_loader_does():
    batch, shard = 524_288, 100_000_000
    expected = []
    file = 0
    pos = 0
    for _ in range(1393):  # distributed_data_generator of the record's log
        if pos + batch + 1 >= shard:
            file += 1
            pos = 0
        expected += [(file, pos + rank * (batch // 8)) for rank in range(8)]
        pos += batch
    card = Card.load("modded-nanogpt-sub3min")
    rows = [row for step in range(1, card.last_step + 1) for row in card.where(step)]
    assert [(row.source, (row.first_byte - 1024) // 2) for row in rows] == expected
    assert {row.end_byte - row.first_byte for row in rows} == {(batch // 8 + 1) * 2}


def test_a_file_that_is_listed_twice_is_found_at_both_places():
    twice = toy(sources=[{"name": "a", "bytes": 40}, {"name": "a", "bytes": 40}])
    rows = Card(twice).when(2)
    assert [(row.source, row.position) for row in rows] == [
        (0, 2),
        (1, 7),
        (0, 12),
        (1, 17),
    ]


def test_olmo_2_32b_reads_pairs_of_rows():
    card = Card(
        Card.load("olmo-2-32b").facts, [(f"{k}", 4 * 4096 * 9) for k in range(1122)]
    )
    rows = card.where(1)
    assert len(rows) == 2048
    neighbors = [
        (first.path, first.sample + 1) == (second.path, second.sample)
        for first, second in zip(rows[::2], rows[1::2], strict=True)
    ]
    assert all(neighbors), "each file has 9 rows, of which 8 are in whole pairs"
    assert max(row.sample for row in rows) == 7


def test_a_card_answers_without_torch_and_numba():
    code = (
        "import sys, nanoset_ref; card = nanoset_ref.Card.load('pythia-1.4b'); card.where(41_007); "
        "card.when(5); print([name for name in ('torch', 'numba') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == "[]"


def test_the_audit_names_what_nanotrons_ledger_skips_and_repeats():
    rows = {"a": [400], "b": [300], "c": [300]}
    mixes = [
        (1, "abc", [0.3, 0.5, 0.2]),
        (3, "ca", [3, 1]),
        (13, "bac", [0.05, 0.2, 0.75]),
    ]
    stages = []
    for start, names, weights in mixes:
        dataset = {"dataset_folder": [*names], "dataset_weights": weights}
        stages.append(
            {"name": "x", "start_training_step": start, "data": {"dataset": dataset}}
        )
    tokens = {
        "micro_batch_size": 1,
        "batch_accumulation_per_replica": 1,
        "train_steps": 40,
    }
    config = {"tokens": tokens, "parallelism": {"dp": 7}, "data_stages": stages}
    orders = nanotron_stages(config, rows)
    read = [0] * 400, [0] * 300, [0] * 300
    facts = []
    cards = []
    for number, (order, (start, names, weights)) in enumerate(
        zip(orders, mixes, strict=True)
    ):
        sources = ["abc".index(name) for name in names]
        for position in range(len(order)):
            file, sample = order[position]
            read[sources[file]][sample] += 1
        facts.append(
            {
                "name": "nanotron_main",
                "seed": 0,
                "samples": len(order),
                "weights": weights,
                "options": order.options,
                "sources": sources,
                "probes": {},
            }
        )
        stage = FACTS["stages"][1] | {"first_step": start, "steps": len(order) // 7}
        cards.append(stage | {"order": number, "first_position": 0, "batch_size": 7})
    sizes = [{"name": name, "bytes": 8 * count} for name, (count,) in rows.items()]
    found = uneven_in_card(Card(toy(sources=sizes, orders=facts, stages=cards)))
    skipped = [
        (file, sample, 0)
        for file, counts in enumerate(read)
        for sample, count in enumerate(counts)
        if not count and any(counts[sample:])
    ]
    repeated = [
        (file, sample, count)
        for file, counts in enumerate(read)
        for sample, count in enumerate(counts)
        if count > 1
    ]
    assert skipped == [(2, 55, 0)] and repeated == [(0, 21, 2)], (
        "the ledger is not what was read"
    )
    expected = {"less often": skipped, "more often": repeated}
    assert {it.how: it.first for it in found} == {
        how: samples[:10] for how, samples in expected.items() if samples
    }
    assert sum(it.count for it in found) == len(skipped) + len(repeated)


def test_a_copy_of_a_file_has_the_rows_of_the_file():
    size = {"bytes": 160, "checksum": f"xxh3_128:{0:032x}"}
    order = FACTS["orders"][0] | {"samples": 20, "sources": [0]}
    once = [{"name": "/disk/a", **size}]
    twice = [{"name": "/copy/a", **size}, *once]
    moved = [order | {"sources": [1]}, order]
    stages = [stage | {"order": k} for k, stage in enumerate(FACTS["stages"])]
    one = Card(toy(sources=once, orders=[order]))
    two = Card(toy(sources=twice, orders=moved, stages=stages))
    for pair in ((one, two), (two, one)):
        assert compare_two_cards(*pair)["step"] is None
    later = [order, order]
    stages[1]["first_position"] = 3
    other = Card(toy(sources=twice, orders=later, stages=stages))
    assert compare_two_cards(one, other)["step"] == 3
