"""docs/buckets.md: its numbers follow from prices and published runs; an opening takes six requests."""

import math
from collections import OrderedDict
from pathlib import Path

import numpy as np

from course.pages.page_15 import consumed, under_way
from nanoset_ref import Nanoset
from nanoset_ref.tokens.npy_writer import TokenFileWriter

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/buckets.md").read_text(encoding="utf-8")
DOLLARS, A_SECOND = 0.0004 / 1000, 5_500  # of a GET; of a prefix
ROWS, DAYS, NODES, BYTES = 2.72e9, 24, 48, 24e12  # of SmolLM3


def test_requests_cost_what_it_says() -> None:
    shards = BYTES / 64e6
    for line in (
        f"| 2.72 billion | {ROWS * DOLLARS:,.0f} | {ROWS / DAYS / 86_400:,.0f} |",
        f"| {shards:,.0f} | {shards * DOLLARS:.2f} | |",
        f"| {NODES * shards / 1e6:.0f} million | {NODES * shards * DOLLARS:.2f} | |",
        f"the GETs of all rows take {ROWS / A_SECOND / 86_400:.1f} days",
        f"would ask {ROWS / DAYS / 86_400:,.0f} times a second",
        f"{1024 * 1000 * 6 / A_SECOND / 60:.0f} minutes at the 5,500",
    ):
        assert line in PAGE, line
    assert f"[{ROWS / 1e9:.2f} billion rows](real_runs.md)" in PAGE
    page_15 = (ROOT / "notebooks/15_reading_fast.ipynb").read_text(encoding="utf-8")
    assert f"would cost ${ROWS * DOLLARS:,.0f} in S3 requests" in page_15
    cents = f"{100 * shards * DOLLARS:.0f} cents a node"
    assert f"in pieces of 64 MB, its 24 TB of token files cost {cents}" in page_15


def test_a_bucket_needs_as_many_requests_as_it_says() -> None:
    wanted = consumed(124e6, 8)
    fast, slow, near = (-(-wanted // under_way(1, it)) for it in (0.1, 0.2, 0.05))
    assert f"so rows of 2,048 tokens need {fast:.0f} to {slow:.0f} requests" in PAGE
    assert f"measures, {near:.0f}." in PAGE
    assert f"consume {wanted / 1e6:.1f} million tokens a second" in PAGE
    assert round(under_way(1, 0.001) / wanted, 1) == 0.5  # a file system, 1 ms


def test_a_cache_answers_the_share_of_reads_that_it_says() -> None:
    """Counted over epochs of a shuffle, from the second on."""
    rng, rows, epochs = np.random.default_rng(0), 2000, 6
    for share, name in (
        (0.25, "a quarter of the corpus"),
        (0.5, "half"),
        (0.75, "three quarters"),
    ):
        kept = set(rng.permutation(rows)[: round(share * rows)].tolist())
        recent, stays, answered = OrderedDict(), 0, 0
        for epoch in range(epochs):
            for row in rng.permutation(rows).tolist():
                stays += row in kept and epoch > 0
                answered += row in recent and epoch > 0
                recent[row] = None
                recent.move_to_end(row)
                if len(recent) > share * rows:
                    recent.popitem(last=False)
        assert stays == (epochs - 1) * len(kept)
        rule = share + (1 - share) * math.log(1 - share)
        assert abs(answered / (epochs - 1) / rows - rule) < 0.02
        assert f"| {name} | {share:.0%} | {rule:.0%} |" in PAGE


def test_a_file_in_a_bucket_takes_six_requests_to_open(
    tmp_path: Path, monkeypatch
) -> None:
    """Of a file with a manifest."""
    from bucket_server import server_of_process

    server = server_of_process()
    server.reset()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    for name in "abc":
        with TokenFileWriter(
            tmp_path / f"{name}.npy", dtype="uint16", vocab_size=300, eos_token_id=0
        ) as writer:
            writer.write_document(list(range(1, 101)))
    for file in tmp_path.iterdir():
        server.keep(f"/opened/{file.name}", file.read_bytes())
    server.log.clear()
    Nanoset([f"s3://opened/{name}.npy" for name in "abc"], None, 32, 9)
    assert len(server.log) == 3 * 6
