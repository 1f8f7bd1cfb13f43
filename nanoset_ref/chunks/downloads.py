"""Download corpora: a list of URLs into folders by subset, or a dataset of the Hub.

A list has one URL per line, as RedPajama's urls.txt has it; what follows the base of all URLs is the path in the output
folder, so that <base>/arxiv/a.jsonl goes to <out_root>/arxiv/a.jsonl.

1. A file that is there with the size the server states is done.
2. Else it is fetched into a hidden partial file. When the connection breaks, or the process is killed, the next attempt
   asks for the rest (`Range`), provided that the server's file is still the same (`If-Range` with its validator);
   otherwise it begins again.
3. A partial file of the stated size is flushed and renamed; any other size is one more attempt, then an error.

Several files are fetched at once, by threads: they wait for the network, not for the interpreter. The rejected
alternative, a call of wget per line, stops at the first broken connection and takes a half file for a whole one.
"""

from __future__ import annotations

import dataclasses
import fcntl
import fnmatch
import glob
import http.client
import json
import logging
import os
import posixpath
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import xxhash
from tqdm import tqdm

from nanoset_ref.files import atomic_write

logger = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds
MANIFEST = "_download.json"  # a leading underscore: it is no data
REDPAJAMA_BASE = "https://data.together.xyz/redpajama-data-1T/v1.0.0/"
HUB_DATASETS = {"refinedweb": "tiiuae/falcon-refinedweb", "starcoderdata": "bigcode/starcoderdata"}


class DownloadError(OSError):
    """A file could not be fetched; the message names its URL, the reason and how much is there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Downloaded:
    """One file: its URL, its path below the output folder, its size in bytes, and whether it was there already."""

    url: str
    path: str
    bytes: int
    present: bool


def download_urls(
    urls: str | os.PathLike[str] | Sequence[str],
    out_root: str | os.PathLike[str],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    base: str | None = None,
    num_workers: int = 8,
    attempts: int = 10,
    timeout: float = 30.0,
    progress: bool = False,
) -> list[Downloaded]:
    """Fetch a list of URLs into `out_root`, several at once, going on where an earlier call stopped.

    Args:
        urls: a file with one URL per line, the URL of such a file, or the URLs; blank lines and # lines are left out.
        out_root: made if needed. The files lie below it as their paths say.
        include, exclude: patterns of paths ("arxiv/*", "common_crawl/*"); a name without a wildcard means the folder
            of that name. Of what `include` matches (all, if empty), what `exclude` matches is left out.
        base: the part of the URLs that is not part of the paths; None: the folder that all URLs share, or the folder
            of `urls` if that is a URL.
        num_workers: files at once. attempts: how often one file is tried without a byte coming in, with growing pauses.
        timeout: seconds that a connection may be silent.
        progress: whether to draw a bar on stderr.

    Returns:
        What is there now, in the order of the list. `_download.json` in `out_root` lists it too.

    Raises:
        ValueError: no URL remains, two URLs for one path, a path that leaves `out_root`.
        DownloadError: a file could not be fetched, after all others were; another call goes on with it.
    """
    if num_workers < 1 or attempts < 1:
        raise ValueError(f"num_workers and attempts must be at least 1, got {num_workers} and {attempts}")
    lines, listed_base = _read_list(urls, timeout)
    paths = _paths(lines, base or listed_base)
    chosen = {
        path: url for path, url in paths.items() if _matches(path, include or ["*"]) and not _matches(path, exclude)
    }
    if not chosen:
        raise ValueError(f"none of {len(lines)} URLs is left with include={list(include)} and exclude={list(exclude)}")
    found: list[Downloaded] = []
    errors: list[DownloadError] = []
    with tqdm(unit="B", unit_scale=True, total=0, disable=not progress) as bar, ThreadPoolExecutor(num_workers) as pool:
        fetches = [
            pool.submit(_fetch, url, Path(out_root) / path, path, attempts, timeout, bar)
            for path, url in chosen.items()
        ]
        for fetch in fetches:
            try:
                found.append(fetch.result())
            except DownloadError as error:
                logger.warning("%s", error)
                errors.append(error)
    if found:
        _record(Path(out_root), found)
    if errors:
        raise DownloadError(f"{len(errors)} of {len(chosen)} files are missing; the first: {errors[0]}")
    return found


def download_hub(
    repo_id: str,
    out_root: str | os.PathLike[str],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    revision: str | None = None,
    num_workers: int = 8,
) -> Path:
    """Fetch a dataset of the Hugging Face Hub into out_root/<its name>, through huggingface_hub's snapshot download.

    Args:
        repo_id: "tiiuae/falcon-refinedweb", or "refinedweb" and "starcoderdata" for those two.
        include, exclude: as in `download_urls`. revision: branch, tag or commit; None: the newest.
        num_workers: files at once.

    Returns:
        The folder. Interrupted, the same call goes on; sizes and hashes are verified by huggingface_hub.
    """
    import huggingface_hub

    repo_id = HUB_DATASETS.get(repo_id, repo_id)
    folder = Path(out_root) / repo_id.rpartition("/")[2]
    huggingface_hub.snapshot_download(
        repo_id,
        repo_type="dataset",
        revision=revision,
        local_dir=folder,
        allow_patterns=[_pattern(name) for name in include] or None,
        ignore_patterns=[_pattern(name) for name in exclude] or None,
        max_workers=num_workers,
    )
    return folder


def _record(out_root: Path, found: list[Downloaded]) -> None:
    """Add what is there to the list of what came from where."""
    path = out_root / MANIFEST
    files = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    files |= {file.path: {"url": file.url, "bytes": file.bytes} for file in found}
    with atomic_write(path, "w") as manifest:
        manifest.write(json.dumps(dict(sorted(files.items())), indent=1) + "\n")


def _read_list(urls: str | os.PathLike[str] | Sequence[str], timeout: float) -> tuple[list[str], str | None]:
    """The URLs, and the base that a list fetched from a URL implies."""
    listed_base = None
    if isinstance(urls, str) and urlsplit(urls).scheme in ("http", "https"):
        with urllib.request.urlopen(urls, timeout=timeout) as response:
            lines, listed_base = response.read().decode().splitlines(), posixpath.dirname(urls)
    elif isinstance(urls, (str, os.PathLike)):
        lines = Path(urls).read_text(encoding="utf-8").splitlines()
    else:
        lines = list(urls)
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")], listed_base


def _paths(urls: list[str], base: str | None) -> dict[str, str]:
    """{path below the output folder: URL}."""
    if base is None:
        folders = [url.split("/")[:-1] for url in urls]
        shared = takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
        in_redpajama = all(url.startswith(REDPAJAMA_BASE) for url in urls)
        base = REDPAJAMA_BASE if in_redpajama else "/".join(names[0] for names in shared)
    base = base.rstrip("/") + "/"
    paths: dict[str, str] = {}
    for url in dict.fromkeys(urls):
        if not url.startswith(("http://", "https://")) or not url.startswith(base):
            raise ValueError(f"{url!r} is not an http(s) URL below {base!r}; give another base")
        path = unquote(urlsplit(url.removeprefix(base)).path)
        if path in paths or path.startswith("/") or ".." in path.split("/") or not posixpath.basename(path):
            raise ValueError(f"{url} has no path of its own below {base} (it would be {path!r}); give another base")
        paths[path] = url
    return paths


def _pattern(name: str) -> str:
    """A name without a wildcard means everything in the folder of that name."""
    return name if any(mark in name for mark in "*?[") else f"{name.rstrip('/')}/*"


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, _pattern(pattern)) for pattern in patterns)


def _fetch(url: str, target: Path, path: str, attempts: int, timeout: float, bar: tqdm) -> Downloaded:
    """Try until the file is whole; what an attempt brought counts, so only attempts without a byte run out."""
    failures, had = 0, -1
    while True:
        partial = None
        try:
            size, validator = _stat(url, timeout)
            if target.is_file() and target.stat().st_size == (size if size is not None else target.stat().st_size):
                return Downloaded(url=url, path=path, bytes=target.stat().st_size, present=True)
            identity = f"{url} {size} {validator}".encode()
            partial = target.with_name(f".{target.name}.{xxhash.xxh3_64_hexdigest(identity)}.part")
            target.parent.mkdir(parents=True, exist_ok=True)
            _attempt(url, target, partial, size, validator, timeout, bar)
            return Downloaded(url=url, path=path, bytes=target.stat().st_size, present=False)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            have = partial.stat().st_size if partial is not None and partial.is_file() else 0
            failures = 0 if have > had else failures + 1
            had = max(have, had)
            refused = (
                isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 416, 429)
            )
            if refused or isinstance(error, DownloadError) or failures >= attempts:
                raise DownloadError(
                    f"{url}: {error or type(error).__name__}; {have:,} bytes of it are there"
                ) from error
            logger.info("%s: %s; trying again from byte %d", url, error or type(error).__name__, have)
            time.sleep(min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE))


def _stat(url: str, timeout: float) -> tuple[int | None, str | None]:
    """The size of the file at the server, and what identifies this version of it (a strong ETag, or its date)."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout) as response:
        length, etag = response.headers["Content-Length"], response.headers["ETag"]
        strong = etag if etag and not etag.startswith("W/") else None
        return (None if length is None else int(length)), strong or response.headers["Last-Modified"]


def _attempt(
    url: str, target: Path, partial: Path, size: int | None, validator: str | None, timeout: float, bar: tqdm
) -> None:
    """One connection: go on after what `partial` holds, and turn it into `target` if it is whole."""
    with open(partial, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadError("another process is fetching it") from None
        have = file.tell() if validator is not None else 0
        if size is None or have < size:
            headers = {"Range": f"bytes={have}-", "If-Range": validator} if have and validator else {}
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
                if response.status != 206 or not response.headers["Content-Range"].startswith(f"bytes {have}-"):
                    file.truncate(0)
                    have = 0
                bar.total = (bar.total or 0) + (0 if size is None else size - have)
                bar.refresh()
                while block := response.read(BLOCK_BYTES):
                    file.write(block)
                    bar.update(len(block))
        file.flush()
        found = os.fstat(file.fileno()).st_size
        if size is not None and found != size:
            if found > size:
                file.truncate(0)
            raise OSError(f"the connection ended after {found:,} of {size:,} bytes")
        os.fsync(file.fileno())
        os.replace(partial, target)
    for stale in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        stale.unlink(missing_ok=True)
