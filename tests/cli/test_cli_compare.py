"""nanoset-ref compare: the first step at which two runs read different rows."""

import json

import pytest
from token_files import write_range

from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.provenance import Card, RunSegment, card_of_segments


def test_two_cards_are_compared_by_the_rows_they_read(run, ask, tmp_path):
    code, text, _ = run("compare", "pythia-1.4b", "pythia-6.9b")
    assert code == 0 and "read the same rows in all 143,000 steps" in text, (
        "on other ranks"
    )
    facts = Card.load("demo").facts
    path = tmp_path / "other.json"
    orders = [facts["orders"][0], facts["orders"][1] | {"seed": 7, "probes": {}}]
    path.write_text(json.dumps(facts | {"orders": orders}))
    code, text, _ = run("compare", "demo", path)
    assert code == 1
    assert "orders[1] (stateless).seed: first 1234, second 7" in text
    assert "from step 11 on they read different rows: 4 of that step differ" in text
    sources = [source | {"name": "moved.npy"} for source in facts["sources"]]
    sources[0]["checksum"] = None
    path.write_text(json.dumps(facts | {"sources": sources}))
    code, text, _ = run("compare", "demo", path)
    assert code == 0 and "read the same rows in all" in text
    doubled = Card.load("pythia-1.4b").facts
    stage = doubled["stages"][0] | {"batch_size": 2048, "steps": 71_500}
    stage |= {"layout": None, "dp_size": None, "micro_batch_size": None}
    path.write_text(json.dumps(doubled | {"stages": [stage]}))
    for pair in (("pythia-1.4b", path), (path, "pythia-1.4b")):
        text = run("compare", *pair)[1]
        assert (
            "from step 1 on they read different rows: 1,024 of that step differ" in text
        )
    path.write_text(json.dumps(doubled | {"stages": [stage | {"first_step": 5}]}))
    text = run("compare", path, "pythia-1.4b-deduped")[1]
    assert "from step 5 on they read different rows: 2,048 of that step differ" in text
    path.write_text(json.dumps(doubled | {"stages": [stage | {"first_step": 200_000}]}))
    code, text, _ = run("compare", path, "pythia-1.4b")
    assert code == 1 and "cannot be computed: they have no step in common" in text
    shorter = doubled | {"window": {"row_length": 1025, "stride": 1024}}
    path.write_text(json.dumps(shorter))
    assert "from step 1 on they" in run("compare", path, "pythia-1.4b")[1]
    code, text, _ = run("compare", "pythia-1.4b", "pythia-1.4b-deduped")
    assert code == 1 and "from step 1 on they read different rows" in text
    code, text, _ = run("compare", "polypythias-seed1", "polypythias-seed2")
    assert (
        code == 1
        and "the first step that differs cannot be computed: polypythias-seed1" in text
    )


@pytest.mark.parametrize(
    ("sources", "longer", "expected"),
    [
        ("ab", False, "read the same rows in all 10 steps"),
        ("ba", False, "from step 1 on they read different rows: 2 of that step differ"),
        ("ac", False, "read the same rows in all 10 steps\n    if b.npy and c.npy are"),
        ("abc", True, "read the same rows in all 10 steps"),
    ],
)
def test_files_without_checksums_are_told_apart_by_their_names(
    run, tmp_path, sources, longer, expected
):
    """Files of one size; a longer run may read another file after the steps of the shorter one."""
    for name in "abc":
        write_range(tmp_path / f"{name}.npy", 41)

    def card(name, letters, stages):
        rows = Nanoset([tmp_path / f"{it}.npy" for it in letters[:2]], None, 4, 20)
        made = [RunSegment("one", rows, Schedule(micro_batch_size=2), 10)]
        if stages:
            more = Nanoset(tmp_path / f"{letters[2]}.npy", None, 4, 10)
            after = Schedule(micro_batch_size=2, first_step=11)
            made.append(RunSegment("two", more, after, 5))
        facts = card_of_segments(made, name=name, date="2026-11").facts
        (tmp_path / f"{name}.json").write_text(json.dumps(facts))
        return tmp_path / f"{name}.json"

    one, two = card("one", "ab", False), card("two", sources, longer)
    for pair in ((one, two), (two, one)):
        code, text, error = run("compare", *pair)
        if pair == (two, one):
            expected = expected.replace("b.npy and c.npy", "c.npy and b.npy")
        assert expected in text, error
        assert code == ("different" in text)


def test_cards_whose_orders_differ_in_name_alone_do_not_read_the_same_rows(
    run, tmp_path
):
    write_range(tmp_path / "a.npy", 401)
    paths = []
    for name in ("nanotron", "stateless"):
        rows = Nanoset(tmp_path / "a.npy", None, 4, 100, order=name)
        segment = RunSegment("run", rows, Schedule(micro_batch_size=4), 25)
        facts = card_of_segments([segment], name="toy", date="2026-11").facts
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(facts))
    code, text, _ = run("compare", *paths)
    assert code == 1
    assert ".kind: first 'nanotron', second 'stateless'" in text
    assert "from step 1 on they read different rows: 4 of that step differ" in text
