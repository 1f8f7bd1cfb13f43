"""nanoset-ref with the published files of a run: rows are read by ranges, sizes are asked of the servers."""

import hashlib
import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from cli_helpers import FILES

from nanoset_ref.orders.others import OLMoCoreOrder
from nanoset_ref.preprocess import load_tokenizer
from nanoset_ref.provenance import Card, card_sizes, fetch_rows, fetch_sizes


@pytest.mark.parametrize(("part", "expected"), [(3, 30_000_000_000), (20, 78_336_000)])
@pytest.mark.parametrize("difference", [-4098, 4098])
def test_a_published_file_of_another_size_is_refused(
    public, part, expected, difference
):
    """Cut elsewhere, or another file: its bytes would be other rows."""
    server, serve = public
    sample = part * 30_000_000_000 // 4098 + 1
    card = Card.load("pythia-1.4b")
    url = card.sources[0]["parts"]["url"].format(part)
    size = expected + difference
    serve(url.removeprefix("https://huggingface.co"), size, {})
    mirror = f"http://127.0.0.1:{server.port}"
    with pytest.raises(
        ValueError, match=f"{size:,} bytes, but the card pythia-1.4b says {expected:,}"
    ):
        fetch_rows(card, card.when(sample), mirror)


def test_a_step_of_pythia_is_shown_where_it_is_public(run, ask, demo, corpus, public):
    server, serve = public
    card = Card.load("pythia-1.4b")
    rows = card.where(7150)  # which begins in one part of the file and ends in the next
    ids = np.arange(1024 * 2049).astype(np.uint16).reshape(1024, 2049) % 900
    parts = card.published(0, rows[0].first_byte, rows[-1].end_byte)
    assert len(parts) == 2 and parts[1][1] == 0
    content = ids.tobytes()
    for url, first, last in parts:
        here, content = content[: last - first], content[last - first :]
        serve(url.removeprefix("https://huggingface.co"), 30_000_000_000, {first: here})
    mirror = f"http://127.0.0.1:{server.port}"
    assert np.array_equal(fetch_rows(card, rows, mirror), ids)
    assert np.array_equal(next(card.replay(7150, mirror=mirror)), ids)
    words = "replay", "--run", "pythia-1.4b", "--mirror", mirror, "--step", 7150
    code, said, _ = run(*words, "--output", corpus / "rows.npy", "--overwrite")
    assert code == 0 and "1,024 rows of 2,049 ids, steps 7150 to 7150" in said
    assert np.array_equal(np.load(corpus / "rows.npy"), ids)
    words = (
        "show",
        "--run",
        "pythia-1.4b",
        "--mirror",
        mirror,
        "--tokenizer",
        corpus / "tokenizer",
    )
    server.sent = 0
    found = ask(*words, "--step", 7150)
    assert server.sent < 1.1 * ids.nbytes
    tokenizer = load_tokenizer(str(corpus / "tokenizer"))
    assert [row["text"] for row in found] == [
        tokenizer.decode(row.tolist()) for row in ids
    ]
    text = run(*words, "--sample", rows[5].sample)[1]
    assert (
        text
        == f"--- rank 0 micro-batch 0 row 5: position {rows[5].position}, epoch 0, "
        + (
            f"document.bin sample {rows[5].sample}, bytes {rows[5].first_byte}:{rows[5].end_byte}\n"
            f"{found[5]['text']}\n"
        )
    )
    error = run(*words, "--step", 19000)[2]
    assert error.count("\n") == 1 and "does not exist" in error
    assert (
        "does not say where stories_input_ids.npy is public"
        in run("show", "--run", "demo", "--step", 3)[2]
    )


def test_a_step_of_olmo_is_read_from_its_files_by_ranges(public):
    server, serve = public
    facts = Card.load("olmo-2-32b").facts
    names = [f"https://olmo-data.org/part-{k}.npy" for k in range(3)]
    stages = [facts["stages"][0] | {"steps": 1, "batch_size": 8}]
    orders = [facts["orders"][0] | {"options": {"chunk_size": 2, "batch_size": 8}}]
    listed = facts["listed"] | {"files": 3}
    facts |= {"listed": listed, "stages": stages, "orders": orders}
    sizes = [(name, (5 + k) * 4096 * 4) for k, name in enumerate(names)]
    for number, (name, size) in enumerate(sizes):
        ids = np.arange(size // 4, dtype=np.uint32) + 100_000 * number
        serve(name.removeprefix("https://olmo-data.org"), size, {0: ids.tobytes()})
    card = Card(facts, sizes)
    rows = card.where(1)
    found = fetch_rows(card, rows, f"http://127.0.0.1:{server.port}")
    assert found.dtype == np.uint32
    firsts = [100_000 * row.source + 4096 * row.sample for row in rows]
    assert np.array_equal(found, np.add.outer(firsts, np.arange(4096)))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_sizes_are_asked_of_the_servers_and_complete_a_card(
    run, ask, tmp_path, monkeypatch, line_end
):
    monkeypatch.setattr(card_sizes, "PAUSES", ())  # tests/test_card_sizes.py has some
    facts = Card.load("olmo-2-32b").facts
    names = "".join(
        f"web,files/{{TOKENIZER}}/{k % 3}.npy{line_end}" for k in range(4)
    ).encode()  # one of them twice
    (tmp_path / "names.txt").write_bytes(names)
    digest = hashlib.sha256(names).hexdigest()
    card = tmp_path / "card.json"
    listed = facts["listed"] | {"files": 4, "sha256": digest}
    stages = [facts["stages"][0] | {"steps": 10}]
    card.write_text(json.dumps(facts | {"listed": listed, "stages": stages}))
    folder = tmp_path / "files" / "allenai" / "dolma2-tokenizer"
    folder.mkdir(parents=True)
    rows = [3001, 2000, 4001, 3001]  # of which whole pairs are read
    for k in range(3):
        with open(folder / f"{k}.npy", "wb") as file:
            file.truncate(rows[k] * 4096 * 4)

    class Handler(SimpleHTTPRequestHandler):
        def end_headers(self):
            if compressed:
                self.send_header("Content-Encoding", "gzip")
            super().end_headers()

    compressed = False
    handler = partial(Handler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}"
        words = (
            "card",
            "complete",
            card,
            "--names",
            tmp_path / "names.txt",
            "--mirror",
            mirror,
        )
        finished = tmp_path / "finished.json"
        both = (
            "--output",
            finished,
            "--card-output",
            tmp_path / "files/../finished.json",
        )
        error = run(*words, *both)[2]
        assert f"--output and --card-output are two files, got {finished} for" in error
        assert not finished.exists()
        code, text, _ = run(
            *words, "--output", tmp_path / "sizes.json", "--card-output", finished
        )
        assert code == 0 and "sizes.json: the sizes of 4 files" in text
        compressed = True
        error = run(*words, "--output", tmp_path / "other.json")[2]
        assert ".npy: the server does not report its size, or only that of" in error
        compressed = False
        (folder / "1.npy").unlink()
        error = run(*words, "--output", tmp_path / "other.json")[2]
        assert (
            "1.npy: HTTP Error 404" in error and not (tmp_path / "other.json").exists()
        )
        # an error held the connection until the interpreter collected garbage
        with pytest.raises(OSError, match="HTTP Error 404") as caught:
            fetch_sizes(Card.load(str(card)), tmp_path / "names.txt", mirror)
        assert caught.value.__cause__.fp.closed
        server.shutdown()
    asked = "--run", card, "--sizes", tmp_path / "sizes.json"
    first = ask("where", *asked, 1)
    assert first[0]["path"].startswith(
        "https://olmo-data.org/files/allenai/dolma2-tokenizer/"
    )
    order = OLMoCoreOrder(rows, None, 2048, 34521, chunk_size=2, batch_size=2048)
    expected = [
        [source, sample] for source, sample in map(order.__getitem__, range(2048))
    ]
    assert [[row["source"], row["sample"]] for row in first] == expected
    assert ask("where", "--run", finished, *asked[2:], 1) == first
    assert len(json.loads(finished.read_text())["orders"][0]["probes"]) == 64
    text = run("audit", "--run", finished, *asked[2:])[1]
    assert "64 of 64 probes agree; 20,480 positions" in text
    text = run("audit", *asked)[1]
    assert "order 0 (olmo_core): no probes confirm the sizes; 20,480 positions" in text
    sizes = json.loads((tmp_path / "sizes.json").read_text())
    sizes[1][1] -= 4096 * 4  # too small for a pair of rows: no row changes
    (tmp_path / "changed.json").write_text(json.dumps(sizes))
    changed = "--sizes", tmp_path / "changed.json"
    assert ask("where", "--run", card, *changed, 1)
    error = run("where", "--run", finished, *changed, 1)[2]
    assert "are not the sizes that the card olmo-2-32b was completed with" in error
    found = ask("when", *asked, "--sample", 7)
    assert {row["source"] for row in found} == {0, 3}, "the first file is listed twice"
    (tmp_path / "names.txt").write_bytes(names + b"#")
    assert "the card says " + digest in run(*words, "--output", tmp_path / "a.json")[2]
    error = run("card", "complete", "demo", "--output", tmp_path / "a.json")[2]
    assert "the card demo lists no files" in error
    listed = listed | {"url": "https://127.0.0.1:9/list.txt"}
    card.write_text(json.dumps(facts | {"listed": listed, "stages": stages}))
    error = run("card", "complete", card, "--output", tmp_path / "a.json")[2]
    assert "list.txt" in error and "give a copy of this list (--names)" in error
    # refused before anything is sent, by an error that is no OSError
    listed["url"] = "https://127.0.0.1/a list.txt"
    card.write_text(json.dumps(facts | {"listed": listed, "stages": stages}))
    error = run("card", "complete", card, "--output", tmp_path / "a.json")[2]
    assert "a list.txt: URL can't contain control characters" in error
    assert "give a copy of this list (--names)" in error


def test_a_mirror_is_an_address(run, corpus):
    words = "--run", "pythia-1.4b", "--mirror", "localhost:8000"
    named = "--tokenizer", corpus / "tokenizer"
    for command in (("show", "--sample", 3, *named), ("replay", 3)):
        error = run(*command, *words)[2]
        assert "a mirror is an address such as http://localhost:8000" in error
        assert "'localhost:8000'" in error


def test_a_pair_in_a_bucket_is_read_as_one_on_the_disk(run, ask, demo, public):
    server, _ = public
    run("convert", FILES[1], "stories.bin")
    for name in ("stories.bin", "stories.idx"):
        server.keep(f"/bucket/{name}", Path(name).read_bytes())
    url = f"http://127.0.0.1:{server.port}/bucket/stories.bin"
    for options in ((), ("--order", "stateless")):
        words = "--sequence-length", 128, "--step", 3, *options
        found = [ask("where", "--data", path, *words) for path in ("stories.bin", url)]
        samples = [[row["sample"] for row in rows] for rows in found]
        assert samples[0] == samples[1]
