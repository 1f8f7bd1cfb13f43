"""Download corpora: a list of URLs into folders by subset, or a dataset of the Hub.

A list has one URL per line, like RedPajama's urls.txt. All URLs share a base folder (or
RedPajama's). The rest of a URL is the path in the output folder: <base>/arxiv/a.jsonl becomes
<out_root>/arxiv/a.jsonl. A file that exists is complete. Other files are downloaded into a hidden
partial file, which is renamed when it is complete.

huggingface_hub downloads both: it retries broken connections, requests only the missing rest
(`Range`), and checks the size. The partial file of a killed run is resumed, as with `wget -c`. If a
server replaces files under the same URL, delete the partial file first. wget alone does the same,
one file at a time: `wget -c -x -nH --cut-dirs=2 -P redpajama_v1 -i urls.txt`.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import make_folder
from nanoset_ref.io.locks import locked
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.io.urls import local_path

REDPAJAMA = PurePosixPath("https://data.together.xyz/redpajama-data-1T/v1.0.0")


class DownloadError(OSError):
    """Files could not be downloaded; the message names the first, and the reason."""


def download(
    *,
    out_root: PathLike,
    urls: str | None = None,
    repo: str | None = None,
    include: Sequence[str] | str = (),
    exclude: Sequence[str] | str = (),
    num_workers: int = 8,
) -> list[Path]:
    """Download a list of URLs, or a dataset of the Hub, into folders by subset; can be resumed.

    Args:
        out_root: the parent of these folders; a dataset of the Hub gets a folder with its name.
        urls: file with one URL per line, such as RedPajama's
            https://data.together.xyz/redpajama-data-1T/v1.0.0/urls.txt; blank and # lines are
            skipped.
        repo: dataset of the Hub, such as tiiuae/falcon-refinedweb or bigcode/starcoderdata.
        include: folders or patterns of paths to download (default: all).
        exclude: folders or patterns of paths to skip, e.g. common_crawl.
        num_workers: files that are downloaded at once.

    Returns:
        The files of the list in its order, or the folder of the dataset.

    Raises:
        ValueError: both or neither of urls and repo are given, no URL remains, or two URLs have the
            same path.
        DownloadError: a file could not be downloaded; all others were, and another call resumes.
    """
    with extra("text", "downloading a corpus"):  # --help needs no extra
        from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
        from tqdm.contrib.concurrent import thread_map
    chosen: dict[str, Any] = {
        "allow_patterns": _patterns(include) or None,
        "ignore_patterns": _patterns(exclude),
    }
    out_root = local_path(out_root, "out_root")
    if bool(repo) == bool(urls):
        raise ValueError("give either urls or repo")
    if repo:
        return [_download_dataset(repo, out_root, max_workers=num_workers, **chosen)]
    targets = _targets(str(urls))
    paths = list(filter_repo_objects(targets, **chosen))
    if not paths:
        raise ValueError(
            f"none of {len(targets)} URLs is left with include={include} and exclude={exclude}"
        )
    chosen_urls = [targets[path] for path in paths]
    files = [Path(out_root, path) for path in paths]
    results = thread_map(
        _fetch, chosen_urls, files, max_workers=num_workers, disable=None
    )
    problems = [problem for problem in results if problem]
    if problems:
        raise DownloadError(
            f"{len(problems)} of {len(files)} files are missing; the first: {problems[0]}"
        )
    return files


def _download_dataset(repo: str, out_root: Path, **options: Any) -> Path:
    """Download a dataset of the Hub into a folder of its name; return the folder."""
    with extra("text", "downloading a corpus"):
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.constants import ENDPOINT
    folder = out_root / os.path.basename(repo)
    try:
        # without a connection snapshot_download returns an existing folder and no error
        HfApi().dataset_info(repo, timeout=30)
        snapshot_download(repo, repo_type="dataset", local_dir=folder, **options)
    # huggingface_hub and its HTTP library raise other errors
    except Exception as error:
        raise DownloadError(
            f"{repo}: cannot be fetched from {ENDPOINT}: {error}"
        ) from error
    return folder


def _patterns(names: Sequence[str] | str) -> list[str]:
    """Convert names to patterns; a name without a wildcard is a folder, with everything in it."""
    return [name if set("*?[") & set(name) else f"{name}/*" for name in as_list(names)]


def _targets(source: str) -> dict[str, str]:
    """Read a file of URLs: {path below the output folder: URL}."""
    text = Path(source).read_text(encoding="utf-8-sig")
    lines = map(str.strip, text.splitlines())
    urls = dict.fromkeys(line for line in lines if line and line[0] != "#")
    paths = {PurePosixPath(unquote(url.partition("?")[0])): url for url in urls}
    if not paths or len(paths) < len(urls) or any(".." in path.parts for path in paths):
        raise ValueError(
            f"{source} must be a list of URLs with different paths, without .."
        )
    folder = PurePosixPath(os.path.commonpath([path.parent for path in paths]))
    if folder.is_relative_to(REDPAJAMA):
        folder = REDPAJAMA
    return {path.relative_to(folder).as_posix(): url for path, url in paths.items()}


def _fetch(url: str, target: Path) -> str | None:
    """Download a file unless it exists; return an error message or None.

    If another process is downloading it, this one waits until that is done.
    """
    with extra("text", "downloading a corpus"):
        from huggingface_hub.file_download import http_get
    partial = target.with_name(f".{target.name}.part")
    make_folder(target.parent)
    try:
        if not target.is_file():
            with open(partial, "ab") as file, locked(file):
                # another process may have completed it meanwhile
                if not target.is_file():
                    http_get(url, file, resume_size=os.path.getsize(partial))
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(partial, target)
        return None
    # huggingface_hub and its HTTP library raise other errors
    except Exception as error:
        return f"{url}: {error}"
