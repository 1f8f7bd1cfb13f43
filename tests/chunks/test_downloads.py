"""Downloading, against a local server that breaks connections."""

import http.server
import socket
import threading
import time

import huggingface_hub
import numpy as np
import pytest

from nanoset_ref.chunks import downloads as module
from nanoset_ref.chunks.__main__ import main
from nanoset_ref.chunks.downloads import DownloadError, download
from nanoset_ref.tokenise.encode import TokenizerError, load_tokenizer


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` {path: bytes} with ranges; `break_after` bytes each connection ends; keeps a log of requests."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.log, self.break_after, self.ranges = files, [], None, True
        self.base = f"http://127.0.0.1:{self.server_address[1]}/corpus/v1.0.0"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        server, path = self.server, self.path
        server.log.append((path.rpartition("/")[2], self.headers["Range"]))
        if path not in server.files:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content, begin = server.files[path], 0
        if self.headers["Range"] and server.ranges:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = len(content) if server.break_after is None else begin + server.break_after
        self.wfile.write(content[begin:end])
        self.close_connection = end < len(content)


CONTENT = {
    name: np.random.RandomState(i).bytes(3000 + i)
    for i, name in enumerate(["arxiv/a b.jsonl", "c4/x.jsonl", "common_crawl/2019/y.jsonl"])
}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with Server({f"/corpus/v1.0.0/{name.replace(' ', '%20')}": content for name, content in CONTENT.items()}) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def listed(server, tmp_path):
    """A file with the URLs, and comments and blank lines."""
    path = tmp_path / "urls.txt"
    urls = [f"{server.base}/{name.replace(' ', '%20')}" for name in CONTENT]
    path.write_text("# RedPajama\n" + "\n".join(urls) + "\n\n")
    return path


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("[!.]*.jsonl")}


def test_a_list_of_urls_becomes_folders_by_subset_and_what_is_there_is_not_fetched_again(server, listed, tmp_path):
    for _ in range(2):
        files = download(urls=str(listed), out_root=tmp_path / "out", num_workers=2)
        assert files_in(tmp_path / "out") == CONTENT
        assert files == [tmp_path / "out" / name for name in CONTENT]
    assert len(server.log) == 3


def test_filters_choose_what_is_fetched_from_a_list_that_may_be_fetched_too(server, listed, tmp_path):
    server.files["/corpus/v1.0.0/urls.txt"] = listed.read_bytes()
    download(urls=f"{server.base}/urls.txt", out_root=tmp_path / "a", exclude="common_crawl")  # no list of letters
    assert set(files_in(tmp_path / "a")) == {"arxiv/a b.jsonl", "c4/x.jsonl"}
    download(urls=str(listed), out_root=tmp_path / "b", include=["c*"], exclude=["*/2019/*"])
    assert set(files_in(tmp_path / "b")) == {"c4/x.jsonl"}
    with pytest.raises(ValueError, match="none of 3 URLs is left"):
        download(urls=str(listed), out_root=tmp_path / "c", include=["books"])


def test_broken_connections_go_on_where_they_broke(server, listed, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 100)
    server.break_after = 1700
    download(urls=str(listed), out_root=tmp_path / "out")
    assert files_in(tmp_path / "out") == CONTENT
    ranges = [asked for name, asked in server.log if name == "x.jsonl"]
    assert ranges == [None, "bytes=1700-"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_later_call_goes_on_with_a_part_that_a_killed_one_left(server, listed, tmp_path, ranges):
    (tmp_path / "out/c4").mkdir(parents=True)
    (tmp_path / "out/c4/.x.jsonl.part").write_bytes(CONTENT["c4/x.jsonl"][:1000])
    server.ranges = ranges
    download(urls=str(listed), out_root=tmp_path / "out")
    assert ("x.jsonl", "bytes=1000-") in server.log
    assert files_in(tmp_path / "out") == CONTENT
    assert not list((tmp_path / "out").rglob("*.part"))


def test_one_missing_file_does_not_stop_the_others(server, listed, tmp_path):
    listed.write_text(f"{server.base}/c4/gone.jsonl\n" + listed.read_text())
    with pytest.raises(DownloadError, match=r"1 of 4 files are missing.*gone.jsonl.*404"):
        download(urls=str(listed), out_root=tmp_path / "out")
    assert files_in(tmp_path / "out") == CONTENT


def test_a_dead_host_is_named(tmp_path, monkeypatch):
    """A port that nobody listens at; a host without a name ends as early."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", dead)
    monkeypatch.setattr(module, "ENDPOINT", dead)
    monkeypatch.setattr(module, "HfApi", lambda: huggingface_hub.HfApi(endpoint=dead))
    (tmp_path / "out" / "b").mkdir(parents=True)  # what an earlier run has begun is no success
    with pytest.raises(DownloadError, match=f"a/b: cannot be fetched from {dead}"):
        download(repo="a/b", out_root=tmp_path / "out")
    with pytest.raises(DownloadError, match=f"{dead}/urls.txt: .*refused"):
        download(urls=f"{dead}/urls.txt", out_root=tmp_path / "out")
    begun = time.monotonic()
    with pytest.raises(TokenizerError, match=f"a/b: no tokenizer to load.*{dead} cannot be reached"):
        load_tokenizer("a/b")
    assert time.monotonic() - begun < 15


def test_paths_follow_what_the_urls_share(tmp_path):
    def paths_of(*urls):
        (tmp_path / "urls.txt").write_text("\n".join(urls))
        return module._targets(str(tmp_path / "urls.txt"))

    redpajama = "https://data.together.xyz/redpajama-data-1T/v1.0.0/arxiv/a.jsonl"
    assert paths_of(redpajama) == {"arxiv/a.jsonl": redpajama}
    assert list(paths_of("http://h/x/a.txt", "http://h/xy/b.txt?token=1")) == ["x/a.txt", "xy/b.txt"]
    for urls in (["http://h/../../a"], ["http://h/a?x=1", "http://h/a?x=2"], ["# nothing"]):
        with pytest.raises(ValueError, match="path"):
            paths_of(*urls)


def test_a_dataset_of_the_hub(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(module.HfApi, "dataset_info", lambda *arguments, **options: None)
    monkeypatch.setattr(module, "snapshot_download", lambda name, **options: calls.append((name, options)))
    words = (
        f"download --repo tiiuae/falcon-refinedweb --include data --exclude *.md --num_workers 2 --out_root {tmp_path}"
    )
    assert main(words.split()) == 0
    options = {"repo_type": "dataset", "local_dir": tmp_path / "falcon-refinedweb", "max_workers": 2}
    options |= {"allow_patterns": ["data/*"], "ignore_patterns": ["*.md"]}
    assert calls == [("tiiuae/falcon-refinedweb", options)]
    assert str(tmp_path) in capsys.readouterr().out
