"""Downloading, against a local server that breaks connections."""

import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import types
from typing import ClassVar

import huggingface_hub
import numpy as np
import pytest

from nanoset_ref.chunks import downloads as module
from nanoset_ref.chunks.downloads import DownloadError, download_hub, download_urls


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` {path: bytes} with ranges; `break_after` bytes each connection ends; keeps a log of requests."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.log, self.break_after, self.ranges, self.tag = files, [], None, True, '"v1"'
        self.fail_with = {}
        self.base = f"http://127.0.0.1:{self.server_address[1]}/corpus/v1.0.0"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        server, path = self.server, self.path
        server.log.append((self.command, path.rpartition("/")[2], self.headers["Range"]))
        if path in server.fail_with or path not in server.files:
            self.send_response(server.fail_with.get(path, 404))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content, begin = server.files[path], 0
        if self.headers["Range"] and server.ranges and self.headers["If-Range"] == server.tag:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if server.tag:
            self.send_header("ETag", server.tag)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        if body:
            end = len(content) if server.break_after is None else begin + server.break_after
            self.wfile.write(content[begin:end])
            if end < len(content):
                self.close_connection = True


CONTENT = {
    name: np.random.RandomState(i).bytes(3000 + i)
    for i, name in enumerate(["arxiv/a b.jsonl", "c4/x.jsonl", "common_crawl/2019/y.jsonl"])
}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    with Server({f"/corpus/v1.0.0/{name.replace(' ', '%20')}": content for name, content in CONTENT.items()}) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def urls_of(server):
    return [f"{server.base}/{name.replace(' ', '%20')}" for name in CONTENT]


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.jsonl")}


def test_a_list_of_urls_becomes_folders_by_subset(server, tmp_path):
    (tmp_path / "urls.txt").write_text("# RedPajama\n" + "\n".join(urls_of(server)) + "\n\n")
    found = download_urls(tmp_path / "urls.txt", tmp_path / "out", num_workers=2)
    assert files_in(tmp_path / "out") == CONTENT
    assert [(file.path, file.bytes, file.present) for file in found] == [
        (name, len(content), False) for name, content in CONTENT.items()
    ]
    listed = json.loads((tmp_path / "out/_download.json").read_text())
    assert listed["c4/x.jsonl"] == {"url": f"{server.base}/c4/x.jsonl", "bytes": 3001}


def test_filters_choose_what_is_fetched(server, tmp_path):
    download_urls(urls_of(server), tmp_path / "a", exclude=["common_crawl"])
    assert set(files_in(tmp_path / "a")) == {"arxiv/a b.jsonl", "c4/x.jsonl"}
    download_urls(urls_of(server), tmp_path / "b", include=["c*"], exclude=["*/2019/*"])
    assert set(files_in(tmp_path / "b")) == {"c4/x.jsonl"}
    with pytest.raises(ValueError, match="none of 3 URLs is left"):
        download_urls(urls_of(server), tmp_path / "c", include=["books"])


def test_broken_connections_go_on_where_they_broke(server, tmp_path):
    server.break_after = 700
    found = download_urls(urls_of(server), tmp_path / "out", attempts=1)
    assert files_in(tmp_path / "out") == CONTENT and not found[0].present
    ranges = [asked for method, name, asked in server.log if (method, name) == ("GET", "x.jsonl")]
    assert ranges == [None, "bytes=700-", "bytes=1400-", "bytes=2100-", "bytes=2800-"]


def test_a_later_call_goes_on_and_what_is_there_is_not_fetched_again(server, tmp_path):
    server.break_after = 0
    with pytest.raises(DownloadError, match=r"3 of 3 files are missing.*after 0 of 3,000 bytes"):
        download_urls(urls_of(server), tmp_path / "out", attempts=2)
    assert files_in(tmp_path / "out") == {}
    server.break_after = 1000
    with one_attempt(), pytest.raises(DownloadError, match="killed"):
        download_urls(urls_of(server)[1:2], tmp_path / "out", base=server.base)
    server.break_after, server.log = None, []
    download_urls(urls_of(server), tmp_path / "out")
    assert ("GET", "x.jsonl", "bytes=1000-") in server.log
    assert files_in(tmp_path / "out") == CONTENT
    server.log = []
    assert all(file.present for file in download_urls(urls_of(server), tmp_path / "out"))
    assert {method for method, _, _ in server.log} == {"HEAD"}


@contextlib.contextmanager
def one_attempt():
    """The process ends after its first attempt, instead of pausing."""

    def end(seconds):
        raise DownloadError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", types.SimpleNamespace(sleep=end))
        yield


def test_a_file_that_changed_at_the_server_begins_again(server, tmp_path):
    server.break_after = 1000
    with one_attempt(), pytest.raises(DownloadError):
        download_urls(urls_of(server)[1:2], tmp_path / "out", base=server.base)
    server.files["/corpus/v1.0.0/c4/x.jsonl"] = bytes(3001)
    server.tag, server.break_after = '"v2"', None
    download_urls(urls_of(server)[1:2], tmp_path / "out", base=server.base)
    assert files_in(tmp_path / "out") == {"c4/x.jsonl": bytes(3001)}
    assert not list((tmp_path / "out/c4").glob(".*.part"))


@pytest.mark.parametrize(("ranges", "tag"), [(False, '"v1"'), (True, None), (True, 'W/"v1"')])
def test_servers_without_ranges_or_without_a_validator_begin_again(server, tmp_path, ranges, tag):
    server.break_after, server.ranges, server.tag = 2000, ranges, tag
    with pytest.raises(DownloadError, match=r"after 2,000 of 3,000 bytes"):
        download_urls(urls_of(server), tmp_path / "out", attempts=3)
    server.break_after = None
    download_urls(urls_of(server), tmp_path / "out")
    assert files_in(tmp_path / "out") == CONTENT


def test_a_whole_file_of_another_size_is_fetched_again(server, tmp_path):
    download_urls(urls_of(server), tmp_path / "out")
    (tmp_path / "out/c4/x.jsonl").write_bytes(b"half")
    found = download_urls(urls_of(server), tmp_path / "out")
    assert [file.present for file in found] == [True, False, True]
    assert files_in(tmp_path / "out") == CONTENT


def test_one_missing_file_does_not_stop_the_others(server, tmp_path):
    urls = [f"{server.base}/c4/gone.jsonl", *urls_of(server)]
    with pytest.raises(DownloadError, match=r"1 of 4 files are missing.*gone.jsonl.*404"):
        download_urls(urls, tmp_path / "out")
    assert files_in(tmp_path / "out") == CONTENT
    server.fail_with["/corpus/v1.0.0/c4/x.jsonl"] = 503
    with pytest.raises(DownloadError, match="503"):
        download_urls(urls_of(server)[1:], tmp_path / "again", attempts=2)


def test_another_process_at_the_same_file_is_named(server, tmp_path):
    server.break_after = 1000
    with one_attempt(), pytest.raises(DownloadError):
        download_urls(urls_of(server)[1:2], tmp_path / "out", base=server.base)
    [partial] = (tmp_path / "out/c4").glob(".x.jsonl.*.part")
    with open(partial, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another process"):
            download_urls(urls_of(server)[1:2], tmp_path / "out", base=server.base)


def test_a_list_can_be_fetched_too(server, tmp_path):
    server.files["/corpus/v1.0.0/urls.txt"] = "\n".join(urls_of(server)[:1]).encode()
    download_urls(f"{server.base}/urls.txt", tmp_path / "out")
    assert set(files_in(tmp_path / "out")) == {"arxiv/a b.jsonl"}


def test_paths_follow_the_base():
    redpajama = "https://data.together.xyz/redpajama-data-1T/v1.0.0/arxiv/a.jsonl"
    assert module._paths([redpajama], None) == {"arxiv/a.jsonl": redpajama}
    assert list(module._paths(["http://h/x/a.txt", "http://h/y/b.txt?token=1"], None)) == ["x/a.txt", "y/b.txt"]
    assert list(module._paths(["http://h/x/a.txt"], "http://h/")) == ["x/a.txt"]
    for urls, base in (
        (["ftp://h/a"], None),
        (["http://h/a"], "http://other/"),
        (["http://h/../../a"], "http://h"),
        (["http://h/a?x=1", "http://h/a?x=2"], None),
    ):
        with pytest.raises(ValueError, match="give another base"):
            module._paths(urls, base)


def test_names_of_corpora_stand_for_datasets_of_the_hub(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **options: calls.append((*args, options)))
    assert download_hub("refinedweb", tmp_path) == tmp_path / "falcon-refinedweb"
    download_hub("starcoderdata", tmp_path, include=["python"], exclude=["*.md"], revision="v1", num_workers=2)
    options = {
        "repo_type": "dataset",
        "revision": None,
        "allow_patterns": None,
        "ignore_patterns": None,
        "max_workers": 8,
    }
    assert calls[0] == ("tiiuae/falcon-refinedweb", options | {"local_dir": tmp_path / "falcon-refinedweb"})
    options |= {"allow_patterns": ["python/*"], "ignore_patterns": ["*.md"], "revision": "v1", "max_workers": 2}
    assert calls[1] == ("bigcode/starcoderdata", options | {"local_dir": tmp_path / "starcoderdata"})


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hub does for one dataset, me/corpus."""

    protocol_version = "HTTP/1.1"
    files: ClassVar = {
        "README.md": b"words",
        "data/a.jsonl": b'{"text": "a"}\n' * 99,
        "data/b.jsonl": b'{"text": "b"}\n',
    }

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        path, headers = self.path.partition("?")[0], {}
        if "/resolve/" in path:
            self.content = self.files[path.partition("/resolve/")[2].partition("/")[2]]
            headers = {"ETag": f'"{hashlib.sha1(self.content).hexdigest()}"', "X-Repo-Commit": "c" * 40}
        elif "/tree/" in path:
            entry = {"type": "file", "oid": "0" * 40}
            self.content = json.dumps([entry | {"path": name, "size": len(data)} for name, data in self.files.items()])
        else:
            siblings = [{"rfilename": name} for name in self.files]
            self.content = json.dumps({"id": "me/corpus", "sha": "c" * 40, "siblings": siblings})
        self.content = self.content.encode() if isinstance(self.content, str) else self.content
        self.send_response(200)
        for key, value in (headers | {"Content-Length": str(len(self.content))}).items():
            self.send_header(key, value)
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(self.content)


def test_a_dataset_comes_through_the_real_snapshot_download(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        env = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}", "HF_HUB_OFFLINE": "0"}
        env |= {"no_proxy": "127.0.0.1", "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        command = f"{sys.executable} -m nanoset_ref.chunks download --repo me/corpus --include data --out_root out"
        result = subprocess.run(command.split(), cwd=tmp_path, env=env, capture_output=True, text=True)
        hub.shutdown()
        thread.join()
    assert result.returncode == 0, result.stderr
    assert files_in(tmp_path / "out") == {f"corpus/{name}": data for name, data in Hub.files.items() if "data/" in name}
