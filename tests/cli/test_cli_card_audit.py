"""nanoset-ref audit of a run card: what it lacks, what is broken, and how evenly it reads its files."""

import json

from nanoset_ref.provenance import Card


def test_audit_says_what_a_card_lacks_and_what_is_broken(run, ask, tmp_path):
    code, text, _ = run("audit", "--run", "pythia-1.4b")
    assert (
        code == 0 and "64 of 64 probes agree" in text and "inferred: a part has" in text
    )
    code, text, _ = run("audit", "--run", "olmo-2-32b")
    assert (
        code == 1
        and "  LACKS   order 0 cannot be computed" in text
        and "1122 files" in text
    )
    facts = Card.load("pythia-1.4b").facts
    path = tmp_path / "wrong.json"
    probes = facts["orders"][0]["probes"] | {"0": [0, 1]}
    stages = [facts["stages"][0] | {"first_position": 5, "steps": 100}]
    orders = [facts["orders"][0] | {"probes": probes}]
    path.write_text(json.dumps(facts | {"orders": orders, "stages": stages}))
    code, text, _ = run("audit", "--run", path)
    assert code == 1 and "BROKEN  order 0 (identity): 63 of 64 probes agree" in text
    assert (
        "BROKEN  stage run reads positions 5 to 102,405 of order 0, which was read up to 0: rows"
        in text
    )


def test_audit_of_a_card_names_samples_and_draws_the_spread(ask, run):
    found = ask("audit", "--run", "demo")
    (twice,) = found["uneven"]
    assert twice["how"] == "more often" and twice["first"] == [[0, 466, 2]]
    assert len(Card.load("demo").when(466)) == 2
    assert [[it["file"] for it in stage] for stage in found["spread"]] == [[0], [0, 1]]
    text = run("audit", "--run", "demo")[1]
    assert "through its file: 1 sample: stories_input_ids.npy sample 466 (2x)" in text
    text = run("audit", "--run", "modded-nanogpt-sub3min")[1]
    shard = next(line for line in text.splitlines() if "000001.bin" in line)
    assert shard.endswith("|" + 9 * "\u2588" + 55 * " " + "|"), (
        "the first shard is read first"
    )
