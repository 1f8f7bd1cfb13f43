"""docs/planner.html computes what the package computes, and writes what the package accepts.

Its script runs in the V8 that comes with the test requirements; in a browser, where one is installed.
"""

import json
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pages
import pytest
from py_mini_racer import MiniRacer

from figures.draw import COLOURS
from nanoset_ref import Card, IdentityOrder, Schedule, StatelessOrder
from nanoset_ref.megatron import plan_epochs
from nanoset_ref.orders.base import normalize_weights
from nanoset_ref.provenance.card_audit import audit_card
from nanoset_ref.provenance.card_of_run import probes_of
from nanoset_ref.train import load_config

PAGE = (Path(__file__).parent.parent / "docs" / "planner.html").read_text(
    encoding="utf-8"
)
SCRIPTS = dict(re.findall(r'<script id="(\w+)">\n(.*?)</script>', PAGE, re.DOTALL))
FORMS = dict(
    re.findall(
        r'<script type="text/plain" id="(\w+)-form">(.*?)</script>', PAGE, re.DOTALL
    )
)
PRESETS = [json.loads(unescape(plan)) for plan in re.findall(r"href='#({.*?})'", PAGE)]
POSITIONS = 200_000  # of each order

# lengths, weights, seed, the end of the run; short windows, ties of weights, eight columns of sums.
# The two short runs are read whole, the six long ones at a sixth of the positions each.
STATELESS = [
    ([3, 2], None, 0, 10**4),
    ([1], None, 2**32 - 1, 10**3),
    ([2_319_335_937, 219_726_562, 48_828_124], [0.85, 0.12, 0.03], 6, 2_718_720_000),
    ([2**47 + 1, 65_537, 57, 56], None, 7, 2**47 + 65_651),
    ([922, 1364, 1298], [0.1, 0.1, 0.1], 1234, 2**48 - 1),
    (list(range(1000, 1013)), [0.1 * (k + 1) / 3 for k in range(13)], 5, 10**12),
    ([10**9] * 40, None, 99, 4 * 10**10),
    ([10, 10**6], [1e-16, 1.0], 3, 10**9),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[MiniRacer]:
    engine = MiniRacer()
    engine.eval(SCRIPTS["arithmetic"])
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def script(engine: MiniRacer):
    """Call a function of the page."""
    return lambda call, *given: json.loads(
        engine.eval(f"JSON.stringify(({call})(...{json.dumps(given)}))")
    )


def plan(**changes) -> dict:
    """The smallest preset, changed."""
    return PRESETS[-1] | changes


def named(lengths, weights, S: int = 256) -> list[dict]:
    """Sources with so many samples."""
    given = weights or [None] * len(lengths)
    return [
        {"name": f"{k}.npy", "tokens": length * S + 1, "weight": weight}
        for k, (length, weight) in enumerate(zip(lengths, given, strict=True))
    ]


def test_it_is_small_and_needs_no_network() -> None:
    assert sum(script.count("\n") for script in SCRIPTS.values()) <= 300
    assert not re.search(
        r"https?:|@import|url\(|\bfetch\b|\bimport\b", "".join(SCRIPTS.values())
    )
    assert not re.search(r"<(link|img|iframe)|src=|https?:", PAGE)


def pairs_of(engine: MiniRacer, made: str, positions: np.ndarray) -> np.ndarray:
    """What an order of the page reads at positions: int64 [n, 2]."""
    engine.eval(f"globalThis.made = {made}")
    found = []
    for chunk in np.array_split(positions, -(-len(positions) // 50_000)):
        text = ",".join(map(str, chunk.tolist()))
        told = engine.eval(f"'{text}'.split(',').map((k) => made.at(Number(k))).join()")
        found.append(np.fromstring(told, dtype=np.int64, sep=","))
    return np.concatenate(found).reshape(-1, 2)


@pytest.mark.parametrize("case", range(len(STATELESS)))
def test_stateless_is_the_package_s_at_many_positions(
    case: int, script, engine
) -> None:
    lengths, weights, seed, stop = STATELESS[case]
    order = StatelessOrder(lengths, weights, stop, seed)
    positions = np.arange(min(stop, 10**4))
    if stop > 10**4:
        positions = np.random.default_rng(case).integers(0, stop, POSITIONS // 6)
    positions[-1] = stop - 1
    made = f"statelessOrder({lengths}, {json.dumps(weights)}, {seed})"
    expected = np.stack(order.lookup(positions), axis=1)
    assert np.array_equal(pairs_of(engine, made, positions), expected)
    until = sorted({0, 1, stop // 3, stop - stop % 64, stop})
    counts = script("(ks) => ks.map(made.reads)", until)
    assert counts == [order.counts(k).tolist() for k in until]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 31, 128])
def test_weights_are_normalized_as_numpy_does_it(count: int, script) -> None:
    for weights in np.random.default_rng(count).random((20, count)).tolist():
        assert (
            script("normalize", weights) == normalize_weights(weights, count).tolist()
        )


def test_identity_is_the_package_s_at_many_positions(script, engine) -> None:
    lengths = [7812, 1, 1953, 10**9]
    stop = 5 * 10**9
    order = IdentityOrder(lengths, None, stop)
    positions = np.random.default_rng(0).integers(0, stop, POSITIONS)
    positions[:4] = 7811, 7812, 7813, stop - 1
    expected = np.stack(order.lookup(positions), axis=1)
    assert np.array_equal(
        pairs_of(engine, f"identityOrder({lengths})", positions), expected
    )
    small = IdentityOrder([7812, 1, 1953], None, 40_000)
    until = [0, 7812, 7813, 7814, 9766, 30_000, 40_000]
    counts = script("(ks) => ks.map(identityOrder([7812, 1, 1953]).reads)", until)
    assert counts == [small.counts(k).tolist() for k in until]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda it: it["name"])
def test_a_rank_reads_the_positions_of_the_schedule(preset: dict, script) -> None:
    schedule = Schedule(
        dp_size=preset["dp"],
        micro_batch_size=preset["B"],
        batch_accumulation_per_replica=preset["G"] // preset["B"] // preset["dp"],
    )
    rows = schedule.samples_per_rank_and_step
    for rank in {0, 1, preset["dp"] - 1}:
        found = script(
            "(p, rank, rows) => Array.from({ length: rows }, (_, row) => positionOf(p, rank, row))",
            preset, rank, rows,
        )  # fmt: skip
        slots = [schedule.slot(k) for k in found]
        assert {slot.step for slot in slots} == {preset["step"]}
        assert {slot.dp_rank for slot in slots} == {rank}
        places = [(slot.micro_batch, slot.row) for slot in slots]
        assert places == [divmod(row, preset["B"]) for row in range(rows)]


@pytest.mark.parametrize("weights", [None, [0.6, 0.4]])
def test_figures_are_those_of_estimate(weights, script) -> None:
    p = plan(sources=named([6430, 1953], weights))
    found = script("figuresOf", p)
    N = p["steps"] * p["G"]
    assert (found["N"], found["consumed"]) == (N, (p["step"] - 1) * p["G"])
    reads = StatelessOrder([6430, 1953], weights, N).counts()
    assert found["epochs"] == (reads / [6430, 1953]).tolist()
    assert found["seconds"] == N * p["S"] / (p["dp"] * p["rate"])
    assert found["disk"] == 2 * sum(source["tokens"] for source in p["sources"])
    epochs = [1, 1]
    wanted = [6430, 1953]
    if weights:
        wanted = [-(-N * 3 // 5), -(-N * 2 // 5)]
        wanted = [-(-count * 1005 // 1000) for count in wanted]
    plans = [
        plan_epochs(source["tokens"], count, p["S"])
        for source, count in zip(p["sources"], wanted, strict=True)
    ]
    epochs = [it.num_epochs for it in plans]
    documents = [-(-source["tokens"] // p["document"]) for source in p["sources"]]
    size = sum(4 * e * d for e, d in zip(epochs, documents, strict=True))
    size += sum(8 * (it.num_samples + 1) + 4 * it.num_samples for it in plans)
    assert found["megatron"] == size + 10 * N
    assert (found["nanosets"], found["index"]) == (16 * N, 300)


@pytest.mark.parametrize("samples", [2**32 - 3, 2**32 - 2])
def test_megatron_numbers_many_samples_and_documents_in_64_bits(
    samples: int, script
) -> None:
    """As `build_mappings` does, whose arrays of such a size no test can hold."""
    documents, tokens = samples // 2, samples * 256 + 1
    p = plan(
        sources=[{"name": "0.npy", "tokens": tokens, "weight": None}], steps=2**27 - 1
    )
    for key, length in (("document", 512), ("document", 256)):
        p[key] = length
        documents = -(-tokens // length)
        pair = 8 if documents <= np.iinfo(np.int32).max else 16
        number = 4 if samples < np.iinfo(np.uint32).max - 1 else 8
        expected = 4 * documents + pair * (samples + 1) + number * samples
        assert script("figuresOf", p)["megatron"] == expected


def test_tokens_never_read_are_counted_exactly(script) -> None:
    p = plan(sources=named([7812, 100_000], None), steps=100)
    p["sources"][1]["tokens"] += 17  # a tail that fills no sample
    found = script("figuresOf", p)
    order = StatelessOrder([7812, 100_000], None, 3200)
    unread = [
        length - distinct
        for length, (distinct, _) in zip(
            [7812, 100_000], order.coverage(3200), strict=True
        )
    ]
    assert found["unread"] == unread
    assert found["unreadTokens"] == [unread[0] * 256, unread[1] * 256 + 17]


def test_each_problem_is_said(script) -> None:
    problems = {
        "G: must be a whole number": plan(G=1.5),
        "global batch: 33 is no multiple of micro batch x DP ranks = 8; 32 or 40 would be": plan(
            G=33
        ),
        "no weights: clear them": plan(order="identity"),
        "a weight above 0, or none": plan(sources=named([9, 9], [1, None])),
        "257 tokens or more": plan(
            sources=[{"name": "a", "tokens": 256, "weight": None}]
        ),
        "name each file, once": plan(sources=named([9], None) * 2),
        "at most 281,474,976,710,656": plan(steps=2**48),
        "the run has 1000 steps": plan(step=1001),
        "lower-case letters": plan(name="My run"),
    }
    for words, p in problems.items():
        assert words in "\n".join(script("problemsOf", p))
    assert [script("problemsOf", preset) for preset in PRESETS] == [[]] * len(PRESETS)


def test_tokens_are_written_and_read_in_short_and_in_full(script) -> None:
    said = {
        "9.5T": 9_500_000_000_000,
        "200B": 200_000_000_000,
        "2M": 2_000_000,
        "500k": 500_000,
        "9,500,000,000,017": 9_500_000_000_017,
        "65,537": 65_537,
        "7": 7,
    }
    for words, tokens in said.items():
        assert script("spell", tokens) == words
        assert script("tokensIn", words) == tokens
    assert script("tokensIn", "9500000000000") == 9_500_000_000_000
    # a decimal comma is no number: 1,5T would be 15T without it
    for words in ("9.5X", "many", "T", "1,5T", "1,50"):
        assert script(
            "(text) => Number.isNaN(tokensIn(text)) || tokensIn(text) === 0", words
        )
    for preset in PRESETS:
        for source in preset["sources"]:
            assert (
                script("(n) => tokensIn(spell(n))", source["tokens"])
                == source["tokens"]
            )


def test_ranks_agree_before_the_strip_of_another_world_begins(script) -> None:
    for dp, ranks in ((192, 96), (2, 4), (64, 64)):
        p = plan(dp=dp, B=1, G=192, ranks=ranks)
        begin = script("figuresOf", p)["begin"]
        assert begin == max(0, min(dp, ranks) - 16)
        assert all(k % dp == k % ranks for k in range(begin))


# ---- what it writes


@pytest.fixture(params=[50_257, 128_256], ids=["uint16", "int32"])
def small(request, tmp_path, monkeypatch) -> dict:
    """A plan whose token files exist."""
    monkeypatch.chdir(tmp_path)
    p = plan(vocab=request.param, S=16, G=8, B=2, steps=4, step=2, dp=1, name="planned")
    p["sources"] = named([40, 21], [0.7, 0.3], S=16)
    p["sources"][0]["name"] = "a file's name.npy"
    for source in p["sources"]:
        dtype = "uint16" if p["vocab"] < 2**16 else "int32"
        ids = (
            np.random.default_rng(1)
            .integers(0, p["vocab"], source["tokens"])
            .astype(dtype)
        )
        ids.tofile(source["name"])
    return p


def form(script, name: str, p: dict) -> str:
    values = script("figuresOf", p) | {"date": "2026-11"}
    return script("fill", FORMS[name], values)


def test_the_python_runs_and_has_ten_lines(small, script) -> None:
    code = form(script, "python", small)
    assert code.count("\n") <= 11
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    pair = script("(p) => orderOf(p).at((p.step - 1) * p.G)", small)
    assert said.stdout.startswith("(2, 16)")
    assert said.stdout.strip().endswith(str(tuple(pair)))


def test_train_accepts_the_yaml_and_reads_as_many_samples(small, script) -> None:
    Path("run.yaml").write_text(form(script, "yaml", small), encoding="utf-8")
    config = load_config("run.yaml")
    assert config.global_batch_size == small["G"]
    if small["vocab"] > 2**16:
        return  # a step with so many logits takes long
    command = [sys.executable, "-m", "nanoset_ref.train", "--config", "run.yaml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path("checkpoints/planned").is_dir()


@pytest.mark.parametrize("name", ["2026-11-29", "13", "1.5", "0x1f", "true", "null"])
def test_train_accepts_every_name_that_the_planner_accepts(
    small, name: str, script
) -> None:
    p = small | {"name": name}
    assert script("problemsOf", p) == []
    Path("run.yaml").write_text(form(script, "yaml", p), encoding="utf-8")
    config = load_config("run.yaml")
    assert [stage.name for stage in config.data_stages] == [name]
    assert config.checkpoints.checkpoints_path == f"checkpoints/{name}"


def test_train_accepts_the_ranks_of_every_preset(script, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for preset in PRESETS:
        p = preset | {"S": 8, "sources": named([10 * preset["G"]], None, S=8)}
        dtype = "uint16" if p["vocab"] < 2**16 else "int32"
        np.zeros(p["sources"][0]["tokens"], dtype).tofile("0.npy")
        Path("run.yaml").write_text(form(script, "yaml", p), encoding="utf-8")
        ranks = load_config("run.yaml").parallelism
        assert (ranks.dp, ranks.pp, ranks.tp) == (p["dp"], p["pp"], p["tp"])


@pytest.mark.parametrize("preset", PRESETS, ids=lambda it: it["name"])
def test_the_card_is_consistent_and_its_probes_are_the_order_s(
    preset: dict, script
) -> None:
    card = Card(json.loads(form(script, "card", preset)))
    assert [check["holds"] for check in audit_card(card)] == [True, True]
    probes = card.facts["orders"][0]["probes"]
    lengths = [(source["tokens"] - 1) // preset["S"] for source in preset["sources"]]
    weights = [source["weight"] for source in preset["sources"]]
    N = preset["steps"] * preset["G"]
    order = StatelessOrder(
        lengths, None if None in weights else weights, N, preset["seed"]
    )
    assert probes == probes_of(order, N)
    assert len(json.dumps(card.facts)) < 10_000


# ---- the page itself


def test_its_colors_are_those_of_the_course() -> None:
    assert tuple(re.findall(r"--color-\d: (#\w{6});", PAGE)) == COLOURS


if pages.BROWSER:  # else it is not collected

    def test_the_page_follows_its_address_and_its_address_follows_the_page() -> None:
        browser = pages.Chrome()
        path = Path(__file__).parent.parent / "docs" / "planner.html"

        def opened(p: dict) -> None:
            fragment = urllib.parse.quote(json.dumps(p))
            browser._ask("Page.navigate", url="about:blank")
            browser._ask("Page.navigate", url=f"{path.as_uri()}#{fragment}")
            browser.wait_for(
                "typeof fromFragment + document.readyState", "functioncomplete"
            )

        try:
            p = plan(step=5)
            opened(p)
            boxes = "[...document.querySelectorAll('#strip button')].map((it) => Number(it.innerText))"
            order = StatelessOrder([7812, 1953], [0.7, 0.3], 32_000, 1234)
            first = (p["step"] - 1) * p["G"]
            ranks = [[first + rank + 2 * row for row in range(12)] for rank in range(2)]
            assert browser._evaluate(boxes) == [
                order[k][1] for k in [*ranks[0], *ranks[1]]
            ]
            browser._evaluate(
                "const slider = document.getElementById('slider'); slider.value = 1000;"
                "slider.dispatchEvent(new Event('input', { bubbles: true })); 0"
            )
            assert browser._evaluate(boxes)[0] == order[999 * 32][1]
            assert (
                browser._evaluate("fromFragment(location.hash.slice(1)).step") == 1000
            )
            browser._evaluate("document.getElementById('add').click()")
            assert (
                browser._evaluate("fromFragment(location.hash.slice(1)).sources.length")
                == 3
            )
            said = browser._evaluate("document.getElementById('problems').innerText")
            assert "a weight above 0" in said
            evil = {
                "name": "<img id=x>",
                "tokens": '"><img id=x>',
                "weight": "<img id=x>",
            }
            opened(p | {"sources": [evil], "name": "<img id=x>", "S": "<img id=x>"})
            assert browser._evaluate("document.querySelectorAll('img').length") == 0
        finally:
            browser.close()
