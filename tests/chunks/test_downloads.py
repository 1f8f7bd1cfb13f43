"""Downloading, against a local server that breaks connections."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import huggingface_hub
import numpy as np
import pytest
from bucket_server import BucketServer
from huggingface_hub import constants, file_download

from nanoset_ref.chunks import downloads as module
from nanoset_ref.chunks.commands import main
from nanoset_ref.chunks.downloads import DownloadError, download
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.tokenizer import TokenizerError, load_tokenizer

NAMES = ["arxiv/a b.jsonl", "c4/x.jsonl", "common_crawl/2019/y.jsonl"]
CONTENT = {name: np.random.RandomState(i).bytes(3000) for i, name in enumerate(NAMES)}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server = BucketServer().started()
    server.base = f"http://127.0.0.1:{server.port}/corpus/v1.0.0"
    for name, content in CONTENT.items():
        server.keep(f"/corpus/v1.0.0/{name}", content)
    return server


@pytest.fixture
def listed(server, tmp_path):
    """A file with the URLs, and comments and blank lines."""
    path = tmp_path / "urls.txt"
    urls = [f"{server.base}/{name.replace(' ', '%20')}" for name in CONTENT]
    path.write_text("# RedPajama\n" + "\n".join(urls) + "\n\n")
    return path


def files_in(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("[!.]*.jsonl")
    }


def test_a_list_of_urls_becomes_folders_by_subset_and_what_is_there_is_not_fetched_again(
    server, listed, tmp_path
):
    for _ in range(2):
        files = download(urls=str(listed), out_root=tmp_path / "out", num_workers=2)
        assert files_in(tmp_path / "out") == CONTENT
        assert files == [tmp_path / "out" / name for name in CONTENT]
    assert len(server.log) == 3


def test_filters_choose_what_is_fetched(server, listed, tmp_path):
    download(
        urls=str(listed), out_root=tmp_path / "a", exclude="common_crawl"
    )  # which is no list of letters
    assert set(files_in(tmp_path / "a")) == {"arxiv/a b.jsonl", "c4/x.jsonl"}
    download(
        urls=str(listed), out_root=tmp_path / "b", include=["c*"], exclude=["*/2019/*"]
    )
    assert set(files_in(tmp_path / "b")) == {"c4/x.jsonl"}
    with pytest.raises(ValueError, match="none of 3 URLs is left"):
        download(urls=str(listed), out_root=tmp_path / "c", include=["books"])


def test_broken_connections_go_on_where_they_broke(
    server, listed, tmp_path, monkeypatch
):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100)
    server.faults = ["cut"] * 3
    download(urls=str(listed), out_root=tmp_path / "out")
    assert files_in(tmp_path / "out") == CONTENT
    assert (len(server.log), server.sent) == (6, 9000)


@pytest.mark.parametrize(("faults", "sent"), [([], 2000), (["whole"], 3000)])
def test_a_later_call_goes_on_with_a_part_that_a_killed_one_left(
    server, listed, tmp_path, faults, sent
):
    (tmp_path / "out/c4").mkdir(parents=True)
    (tmp_path / "out/c4/.x.jsonl.part").write_bytes(CONTENT["c4/x.jsonl"][:1000])
    server.faults = faults
    download(urls=str(listed), out_root=tmp_path / "out", include="c4")
    assert server.sent == sent
    assert (tmp_path / "out/c4/x.jsonl").read_bytes() == CONTENT["c4/x.jsonl"]
    assert not list((tmp_path / "out").rglob("*.part"))


def test_two_calls_at_once_download_a_file_once(server, listed, tmp_path, monkeypatch):
    real = file_download.http_get
    calls = []

    def meets_another(*args, **options):
        if not calls:
            calls.append(None)  # the other call begins while this one writes
            monkeypatch.setattr(file_download, "http_get", real)
            calls.append(thread.submit(download, **call))
            time.sleep(0.5)
        return real(*args, **options)

    call = {"urls": str(listed), "out_root": tmp_path / "out", "include": "c4"}
    monkeypatch.setattr(file_download, "http_get", meets_another)
    with ThreadPoolExecutor(1) as thread:
        download(**call)
        calls[1].result()
    assert server.sent == 3000
    assert (tmp_path / "out/c4/x.jsonl").read_bytes() == CONTENT["c4/x.jsonl"]


def test_one_missing_file_does_not_stop_the_others(server, listed, tmp_path):
    listed.write_text(f"{server.base}/c4/gone.jsonl\n" + listed.read_text())
    with pytest.raises(
        DownloadError, match=r"1 of 4 files are missing.*gone.jsonl.*404"
    ):
        download(urls=str(listed), out_root=tmp_path / "out")
    assert files_in(tmp_path / "out") == CONTENT


def test_a_dead_host_is_named(tmp_path, monkeypatch):
    """A port that nobody listens at; a host without a name ends as early."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", dead)
    (tmp_path / "out" / "b").mkdir(
        parents=True
    )  # what an earlier run has begun is no success
    with pytest.raises(DownloadError, match=f"a/b: cannot be fetched from {dead}"):
        download(repo="a/b", out_root=tmp_path / "out")
    with pytest.raises(
        TokenizerError, match=f"a/b: no tokenizer to load.*{dead} cannot be reached"
    ):
        load_tokenizer("a/b")
    with pytest.raises(
        InputError,
        match=f"a/b: neither a file nor a folder, and {dead} cannot be reached",
    ):
        open_text("a/b")


def test_paths_follow_what_the_urls_share(tmp_path):
    def paths_of(*urls):
        (tmp_path / "urls.txt").write_text("\n".join(urls), encoding="utf-8-sig")
        return module._targets(str(tmp_path / "urls.txt"))

    redpajama = "https://data.together.xyz/redpajama-data-1T/v1.0.0/arxiv/a.jsonl"
    assert paths_of(redpajama) == {"arxiv/a.jsonl": redpajama}
    assert list(paths_of("http://h/x/a.txt", "http://h/xy/b.txt?token=1")) == [
        "x/a.txt",
        "xy/b.txt",
    ]
    for urls in (
        ["http://h/../../a"],
        ["http://h/a?x=1", "http://h/a?x=2"],
        ["# nothing"],
    ):
        with pytest.raises(ValueError, match="path"):
            paths_of(*urls)


def test_a_dataset_of_the_hub(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(
        huggingface_hub.HfApi, "dataset_info", lambda *arguments, **options: None
    )
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda name, **options: calls.append((name, options)),
    )
    words = "download --repo tiiuae/falcon-refinedweb --include data --exclude *.md --num_workers 2"
    words += f" --out_root {tmp_path}"
    assert main(words.split()) == 0
    options = {
        "repo_type": "dataset",
        "local_dir": tmp_path / "falcon-refinedweb",
        "max_workers": 2,
    }
    options |= {"allow_patterns": ["data/*"], "ignore_patterns": ["*.md"]}
    assert calls == [("tiiuae/falcon-refinedweb", options)]
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"urls": "a", "repo": "b"}])
def test_a_download_has_one_source(tmp_path, options):
    with pytest.raises(ValueError, match=r"^give either urls or repo$"):
        download(out_root=tmp_path, **options)


def test_a_file_gets_its_name_when_all_of_it_is_on_the_disk(
    server, listed, tmp_path, monkeypatch
):
    """A process that is killed, or a disk that is full, then leaves no half of a file that looks complete."""
    found = {}

    def replace(partial, target):
        found[target.relative_to(tmp_path / "out").as_posix()] = partial.read_bytes()
        os.rename(partial, target)

    monkeypatch.setattr(module.os, "replace", replace)
    download(urls=str(listed), out_root=tmp_path / "out")
    assert found == CONTENT
