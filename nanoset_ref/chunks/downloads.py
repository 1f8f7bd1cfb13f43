"""Download corpora: a list of URLs into folders by subset, or a dataset of the Hub.

A list has one URL per line, as RedPajama's urls.txt has it; what follows the base of all URLs is the path in the output
folder, so that <base>/arxiv/a.jsonl goes to <out_root>/arxiv/a.jsonl. A file that is there is complete. Others are
fetched into a hidden partial file, which is renamed when it is whole. huggingface_hub carries the load on both roads:
it tries again when a connection breaks, asks for the rest only (`Range`), and checks the size. A partial file that a
killed run left is gone on with, as `wget -c` does: where a server replaces files under the same URL, remove it first.

Files are fetched by several threads: they wait for the network, not for the interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

import huggingface_hub
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
from tqdm.contrib.concurrent import thread_map

from nanoset_ref.files import PathLike

REDPAJAMA_BASE = "https://data.together.xyz/redpajama-data-1T/v1.0.0/"
HUB_DATASETS = {"refinedweb": "tiiuae/falcon-refinedweb", "starcoderdata": "bigcode/starcoderdata"}


class DownloadError(OSError):
    """Files could not be fetched; the message names the first, and the reason."""


def download_urls(
    urls: PathLike,
    out_root: PathLike,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    base: str | None = None,
    num_workers: int = 8,
) -> list[Path]:
    """Fetch a list of URLs into `out_root`, several at once, going on where an earlier call stopped.

    Args:
        urls: a file with one URL per line, or the URL of such a file; blank lines and # lines are left out.
        out_root: made if needed. The files lie below it as their paths say.
        include, exclude: patterns of paths ("arxiv/*", "common_crawl/*"); a name without a wildcard means the folder
            of that name. Of what `include` matches (all, if empty), what `exclude` matches is left out.
        base: the part of the URLs that is not part of the paths; None: RedPajama's, or the folder that all share.
        num_workers: files at once.

    Returns:
        The files, in the order of the list.

    Raises:
        ValueError: no URL remains, or one is not below the base.
        DownloadError: a file could not be fetched, after all others were; another call goes on with it.
    """
    name = os.fspath(urls)
    with urlopen(name) if name.startswith("http") else open(name, "rb") as file:
        lines = [line.decode().strip() for line in file]
    targets = _targets([line for line in lines if line and line[0] != "#"], base)
    allow, ignore = _patterns(include) or None, _patterns(exclude)
    chosen = list(filter_repo_objects(targets, allow_patterns=allow, ignore_patterns=ignore))
    if not chosen:
        raise ValueError(f"none of {len(targets)} URLs is left with include={include} and exclude={exclude}")
    files = [Path(out_root, path) for path in chosen]
    said = thread_map(_fetch, [targets[path] for path in chosen], files, max_workers=num_workers, disable=None)
    if problems := list(filter(None, said)):
        raise DownloadError(f"{len(problems)} of {len(files)} files are missing; the first: {problems[0]}")
    return files


def download_hub(
    repo_id: str,
    out_root: PathLike,
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
    repo_id = HUB_DATASETS.get(repo_id, repo_id)
    folder = Path(out_root, os.path.basename(repo_id))
    huggingface_hub.snapshot_download(
        repo_id,
        repo_type="dataset",
        revision=revision,
        local_dir=folder,
        max_workers=num_workers,
        allow_patterns=_patterns(include) or None,
        ignore_patterns=_patterns(exclude),
    )
    return folder


def _patterns(names: Sequence[str]) -> list[str]:
    """A name without a wildcard means everything in the folder of that name."""
    return [name if set("*?[") & set(name) else f"{name}/*" for name in names]


def _targets(urls: list[str], base: str | None) -> dict[str, str]:
    """{path below the output folder: URL}."""
    if base is None:
        shared = os.path.commonprefix([os.path.dirname(url) + "/" for url in urls])  # noqa: RUF071 - cut at a slash below
        base = REDPAJAMA_BASE if shared.startswith(REDPAJAMA_BASE) else os.path.dirname(shared)
    targets: dict[str, str] = {}
    for url in dict.fromkeys(urls):
        before, _, path = unquote(url.partition("?")[0]).partition(base.rstrip("/") + "/")
        if before or not path or not url.startswith("http") or path in targets or ".." in path.split("/"):
            raise ValueError(f"{url} has no path of its own below {base} (it would be {path!r}); give another base")
        targets[path] = url
    return targets


def _fetch(url: str, target: Path) -> str | None:
    """Fetch a file that is not there; returns what went wrong."""
    partial = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not target.is_file():
            with open(partial, "ab") as file:
                http_get(url, file, resume_size=file.tell())
            os.replace(partial, target)
        return None
    except Exception as error:  # huggingface_hub and the HTTP library under it each raise their own
        return f"{url}: {error}"
