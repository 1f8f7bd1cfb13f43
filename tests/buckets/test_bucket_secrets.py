"""Passwords and signed queries in URLs are shown nowhere, and companions are asked for with them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from bucket_helpers import N, S, dataset, loader_of
from run_config import run_tree

from nanoset_ref.cli import main
from nanoset_ref.io.error_text import one_line
from nanoset_ref.io.urls import StorageError
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.tokens import open_tokens, verify


def test_no_password_and_no_signed_query_is_shown(bucket, server, monkeypatch, caplog):
    hidden = ("password", "signature", "somebody")

    def says_nothing(text):
        assert text and not [word for word in hidden if word in str(text)]

    place = f"http://somebody:password@127.0.0.1:{server.port}/tokens"
    query = "?X-Signature=signature"
    monkeypatch.setenv("NANOSET_REF_TIMEOUT", "0.3")
    rows = Nanoset([f"{place}/a.npy{query}"], None, S, N)
    rows.read(np.arange(9))
    loader = loader_of(rows)
    for shown in (
        rows,
        rows.files[0],
        rows.files[0].path,
        rows.plan,
        rows.summary(),
        loader.state_dict(),
        rows.usage(0, 9),
    ):
        says_nothing(repr(shown))
    for name, fault in (
        ("none.npy", None),
        ("a.npy", 500),
        ("a.npy", 403),
        ("a.npy", "cut"),
        ("a.npy", "whole"),
    ):
        server.faults += [fault] * 1000 if fault else []
        with pytest.raises(OSError, match="http://127.0.0.1:") as error:
            open_tokens(f"{place}/{name}{query}", "uint16")
        server.faults.clear()
        says_nothing(error.value)
        assert error.value.__cause__ is None and error.value.__context__ is None
    with pytest.raises(OSError, match="the server cannot be reached") as error:
        open_tokens(f"http://somebody:password@127.0.0.1:9/a.npy{query}")
    says_nothing(error.value), says_nothing(caplog.text)


def test_urls_in_a_message_are_redacted_and_the_rest_of_it_stays():
    said = "no (http://me:word@host/a?b=1), 'HTTP://host/a?b': s3://b/k?c, x?y; http://host/a?...: why"
    shown = "no (http://host/a?...), 'HTTP://host/a?...': s3://b/k?c, x?y; http://host/a?...: why"
    assert one_line(said) == one_line(shown) == shown


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("verify URL", 0),
        ("verify URL --json", 0),
        ("verify URL --vocab-size 3", 1),
        ("estimate --data URL", 0),
        ("estimate --data URL --json", 0),
        ("estimate --data PAIR --json", 0),
        ("where 1 --data URL", 0),
        ("where 1 --data URL URL=0.5", 1),
        ("where 1 --data URL=1-2", 1),
        ("preprocess --input URL --output-prefix x --tokenizer-name-or-path x", 1),
        ("split URL URL URL --held-out 5", 1),
        ("card TWICE --name x --date 2026-11", 1),
        ("card NUMBER --name x --date 2026-11", 1),
        ("card DUPLICATE --name x --date 2026-11", 1),
        ("card NOTHING --name x --date 2026-11", 1),
        ("card DTYPE --name x --date 2026-11", 1),
        ("card CONTINUED --name x --date 2026-11", 1),
        ("card MEGATRON --name x --date 2026-11", 1),
    ],
)
def test_commands_show_no_password_and_no_signed_query(
    bucket, server, tmp_path, monkeypatch, capsys, command, code
):
    monkeypatch.chdir(tmp_path)
    server_of_url = f"http://somebody:password@127.0.0.1:{server.port}/tokens"
    url = f"{server_of_url}/a.npy?sig=signature"
    configs = {
        "TWICE": {"dataset_path": [url, url]},
        "NUMBER": {"dataset_path": {url: "x"}},
        "NOTHING": url,
        "DUPLICATE": {"dataset_path": {url: 1, "again": 1}},
        "DTYPE": {"dataset_path": [url], "token_dtype": "int32"},
        "CONTINUED": {"dataset_path": [url], "order": "stateless"},
        "MEGATRON": {"data_path": {url: None}, "split": "1"},
    }
    words = command.split()
    for name in configs.keys() & {*words}:
        stages = [("one", 1, configs[name], {})]
        if name == "CONTINUED":
            later = configs[name] | {"token_dtype": "uint16"}
            stages.append(("two", 5, later, {}))
        tree = run_tree(tmp_path / "run", stages, steps=9, length=16, rows=4)
        Path(name).write_text(json.dumps(tree).replace("again", url))
    if "--data" in words:
        words += "--sequence-length 16 --num-samples 50".split()
    pair = url.replace(".npy", ".bin")
    words = [word.replace("URL", url).replace("PAIR", pair) for word in words]
    assert main(words) == code
    shown = "".join(capsys.readouterr())
    assert "?..." in shown
    assert not [word for word in ("somebody", "pass", "sig") if word in shown]


def test_a_signed_url_is_read_with_its_companions_or_says_why_not(
    bucket, folder, server
):
    url = f"http://127.0.0.1:{server.port}/tokens/raw.npy?sig=1%2F2"
    server.signed = {"GET /tokens/raw.npy?sig=1%2F2"}
    with pytest.raises(
        StorageError,
        match=r"raw.json\?...: access is denied: a signed query opens one object",
    ):
        open_tokens(url)
    rows = Nanoset([open_tokens(url, "uint16")], None, S, N)
    assert np.array_equal(
        rows.read(np.arange(9)), dataset(folder, ["raw"]).read(np.arange(9))
    )
    state = loader_of(rows).state_dict()
    assert state["plan"]["files"][0]["known_by"] == "probes"
    assert "checksum" not in verify(open_tokens(url, "uint16", 7))
    url = url.replace("raw", "a")
    server.signed = {
        f"GET /tokens/a{end}?sig=1%2F2"
        for end in (".npy", ".json", ".documents.npy", ".sources.npz")
    }
    signed, local = open_tokens(url), open_tokens(folder / "a.npy")
    assert signed.facts == local.facts and np.array_equal(
        signed.document_offsets, local.document_offsets
    )


@pytest.mark.parametrize("name", ["raw.npy", "a.bin"])
def test_companions_that_a_server_denies_are_taken_to_be_absent(bucket, server, name):
    """Without the right to list a bucket, a server denies absent objects, too."""
    for suffix in (".json", ".documents.npy", ".npy.seal", ".seal"):
        server.denied.add(f"HEAD /tokens/{name.partition('.')[0]}{suffix}")
    file = open_tokens(f"{bucket}/{name}", "uint16", 7)
    state = loader_of(Nanoset([file], None, S, N)).state_dict()
    assert state["plan"]["files"][0]["known_by"] == "probes"
    assert "checksum" not in verify(file)


@pytest.mark.parametrize("query", ["", "?sig=1%2F2"])
def test_a_seal_is_sought_with_the_password_and_query_of_its_file(
    bucket, server, query
):
    url = f"http://somebody:password@127.0.0.1:{server.port}/tokens/raw.npy"
    file = open_tokens(url + query)
    assert os.fspath(file.seal_path) == f"{url}.seal{query}"
    assert file.checksum is None
