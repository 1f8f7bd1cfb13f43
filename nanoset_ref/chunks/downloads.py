"""Download corpora: a list of URLs into folders by subset, or a dataset of the Hub.

A list has one URL per line, as RedPajama's urls.txt has it. What follows the base, the folder that all URLs share (or
RedPajama's), is the path in the output folder: <base>/arxiv/a.jsonl goes to <out_root>/arxiv/a.jsonl. A file that is
there is complete. Others are fetched into a hidden partial file, which is renamed when it is whole. huggingface_hub
carries the load on both roads: it tries again when a connection breaks, asks for the rest only (`Range`), and checks
the size. A partial file that a killed run left is gone on with, as `wget -c` does: where a server replaces files under
the same URL, remove it first. One file at a time, wget alone does the same:
`wget -c -x -nH --cut-dirs=2 -P redpajama_v1 -i urls.txt`.

Files are fetched by several threads: they wait for the network, not for the interpreter.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from nanoset_ref.cli.command import UsageError
from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import PathLike, listed

with extra("text", "downloading a corpus"):
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
    from tqdm.contrib.concurrent import thread_map

REDPAJAMA = PurePosixPath("https://data.together.xyz/redpajama-data-1T/v1.0.0")


class DownloadError(OSError):
    """Files could not be fetched; the message names the first, and the reason."""


def download(
    *,
    out_root: PathLike,
    urls: str | None = None,
    repo: str | None = None,
    include: Sequence[str] | str = (),
    exclude: Sequence[str] | str = (),
    num_workers: int = 8,
) -> list[Path]:
    """Fetch a list of URLs, or a dataset of the Hub, into folders by subset, going on where an earlier call stopped.

    Args:
        out_root: where the folders go; a dataset of the Hub gets one with its name.
        urls: file with one URL per line (RedPajama's urls.txt); blank and # lines are left out.
        repo: dataset of the Hub, such as tiiuae/falcon-refinedweb or bigcode/starcoderdata.
        include: folders or patterns of paths to take (default: all).
        exclude: folders or patterns to leave out of them, e.g. common_crawl.
        num_workers: files at once.

    Returns:
        The files of the list in its order, or the folder of the dataset.

    Raises:
        UsageError: not one of urls and repo. ValueError: no URL remains, or one has no path of its own.
        DownloadError: a file could not be fetched, after all others were; another call goes on with it.
    """
    chosen: dict[str, Any] = {
        "allow_patterns": _patterns(include) or None,
        "ignore_patterns": _patterns(exclude),
    }
    if repo and not urls:
        folder = Path(out_root, os.path.basename(repo))
        try:
            HfApi().dataset_info(repo, timeout=30)  # of a dead Hub snapshot_download says nothing
            snapshot_download(
                repo, repo_type="dataset", local_dir=folder, max_workers=num_workers, **chosen
            )
        except (
            Exception
        ) as error:  # huggingface_hub and the HTTP library under it each raise their own
            raise DownloadError(f"{repo}: cannot be fetched from {ENDPOINT}: {error}") from error
        return [folder]
    if repo or not urls:
        raise UsageError("give either --urls or --repo")
    targets = _targets(urls)
    paths = list(filter_repo_objects(targets, **chosen))
    if not paths:
        raise ValueError(
            f"none of {len(targets)} URLs is left with include={include} and exclude={exclude}"
        )
    files = [Path(out_root, path) for path in paths]
    said = thread_map(
        _fetch, [targets[path] for path in paths], files, max_workers=num_workers, disable=None
    )
    if problems := list(filter(None, said)):
        raise DownloadError(
            f"{len(problems)} of {len(files)} files are missing; the first: {problems[0]}"
        )
    return files


def _patterns(names: Sequence[str] | str) -> list[str]:
    """A name without a wildcard means everything in the folder of that name."""
    return [name if set("*?[") & set(name) else f"{name}/*" for name in listed(names)]


def _targets(source: str) -> dict[str, str]:
    """{path below the output folder: URL}, of the URLs in a file."""
    lines = map(str.strip, Path(source).read_text().splitlines())
    urls = dict.fromkeys(line for line in lines if line and line[0] != "#")
    paths = {PurePosixPath(unquote(url.partition("?")[0])): url for url in urls}
    if not paths or len(paths) < len(urls) or any(".." in path.parts for path in paths):
        raise ValueError(f"{source} must hold URLs, each with a path of its own without ..")
    folder = PurePosixPath(os.path.commonpath([path.parent for path in paths]))
    if folder.is_relative_to(REDPAJAMA):
        folder = REDPAJAMA
    return {path.relative_to(folder).as_posix(): url for path, url in paths.items()}


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
