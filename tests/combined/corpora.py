"""The files of a run: in every format, in any folder, or in a bucket that the suite's own server keeps."""

import contextlib
import functools
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from bucket_server import BucketServer

from combined.axes import Draw
from combined.expected import (
    DOCUMENTS,
    EOS,
    Reads,
    published_numbers,
    texts,
    token_files,
)
from nanoset_ref.tokens import TokenFileWriter, convert, open_tokens

SUFFIXES = {"bin": [".bin"] * 3, "ds": [".ds"] * 3, "mixed": [".npy", ".bin", ".ds"]}


@functools.cache
def bucket_server() -> BucketServer:
    """One of this process."""
    return BucketServer().started()


class Corpora:
    """Writes files when they are first asked for, and the same ones in any folder.

    Args:
        root: the folder for all of them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def sources(self, draw: Draw, where: str = "here") -> list[Any]:
        """What a dataset is given: paths, URLs or open files; `where` is "here", "moved" or "renamed"."""
        kind = draw["files"]
        folder = self._folder(draw["dtype"], draw.get("content", 0), where)
        names = file_names(where)
        if kind == "bucket":
            return [self._kept(folder / f"{name}.npy") for name in names]
        if kind in ("raw", "raw with eos"):
            paths = [folder / "raw" / f"{name}.npy" for name in names]
            if kind == "raw":
                return paths
            return [
                open_tokens(path, draw["dtype"], eos_token_id=EOS) for path in paths
            ]
        suffixes = SUFFIXES.get(kind, [".npy"] * 3)
        return [
            folder / f"{name}{suffix}"
            for name, suffix in zip(names, suffixes, strict=True)
        ]

    def text(self, draw: Draw, where: str = "here") -> Path:
        """The file of documents that a stream tokenizes."""
        path = (
            self.root
            / f"text-{draw.get('content', 0)}-{where}"
            / f"{file_names(where)[0]}.jsonl"
        )
        if not path.exists():
            path.parent.mkdir(parents=True)
            lines = [
                json.dumps({"text": text}) for text in texts(draw.get("content", 0))
            ]
            path.write_text("\n".join(lines) + "\n")
        return path

    def published(self, draw: Draw, reads: Reads, where: str = "here") -> Path:
        """The file of a published order."""
        numbers = published_numbers(reads)
        digest = hashlib.blake2b(numbers.tobytes(), digest_size=8).hexdigest()
        path = (
            self.root
            / f"orders-{where}"
            / f"{draw['order'].replace(' ', '-')}-{digest}.npy"
        )
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            if draw["order"] == "published raw":
                numbers.tofile(path)
            else:
                np.save(path, numbers)
        return path

    def _folder(self, dtype: str, content: int, where: str) -> Path:
        folder = self.root / f"{dtype}-{content}-{where}"
        if folder.exists():
            return folder
        (folder / "raw").mkdir(parents=True)
        files = zip(
            file_names(where), DOCUMENTS, token_files(dtype, content), strict=True
        )
        for name, lengths, ids in files:
            path = folder / f"{name}.npy"
            with TokenFileWriter(
                path, dtype=dtype, eos_token_id=EOS, appended_eod=True
            ) as writer:
                writer.write(ids, lengths)
            for suffix in (".bin", ".ds"):
                convert([open_tokens(path)], path.with_suffix(suffix))
            shutil.copyfile(path, folder / "raw" / path.name)
        return folder

    def _kept(self, path: Path) -> str:
        """The URL of a file of the bucket, with what stands beside it."""
        server = bucket_server()
        key = f"/{path.parent.name}/{path.name}"
        if key not in server.objects:
            for file in path.parent.glob(f"{path.stem}.*"):
                server.keep(f"/{file.parent.name}/{file.name}", file.read_bytes())
        return f"http://127.0.0.1:{server.port}{key}"


def file_names(where: str) -> list[str]:
    return ["x", "y", "z"] if where == "renamed" else ["a", "b", "c"]


# ---- what surrounds a run


@contextlib.contextmanager
def surroundings(draw: Draw, folder: Path) -> Iterator[None]:
    """The environment of a run. Whatever else lies in `folder`, which the run may write to, must stay as it is."""
    variables = {"NANOSET_REF_TIMEOUT": "120", "HF_HUB_OFFLINE": "1"}
    if draw["direct"] is not None:
        variables["NANOSET_REF_DIRECT"] = draw["direct"]
    if draw["cache"] is not None:
        variables["NANOSET_REF_CACHE"] = str(folder)
        variables["NANOSET_REF_CACHE_GB"] = "1e-7" if draw["cache"] == "tight" else "1"
    foreign = plant(draw["foreign"], folder)
    before = described(foreign)
    with mock.patch.dict(os.environ, variables):
        yield
    assert described(foreign) == before, "something that is not ours was touched"


def plant(kind: str | None, folder: Path) -> list[Path]:
    """Put something foreign and old into a folder that a run keeps files in."""
    outside = folder.parent / "outside.txt"
    outside.write_text("the only copy")
    folder.mkdir(exist_ok=True)
    if kind == "file":
        foreign = [folder / "thesis.tex", folder / "model-00001.safetensors"]
        for path in foreign:
            path.write_bytes(b"years of work" * 1000)
    elif kind == "folder":
        (folder / "notes").mkdir()
        (folder / "notes" / "a.txt").write_text("mine")
        foreign = [folder / "notes", folder / "notes" / "a.txt"]
    elif kind == "symlink":
        (folder / "link").symlink_to(outside)
        (folder / "nowhere").symlink_to(folder / "gone")
        foreign = [folder / "link", folder / "nowhere"]
    else:
        foreign = []
    for path in foreign:
        os.utime(path, (1, 1), follow_symlinks=False)
    return [outside, *foreign]


def described(paths: list[Path]) -> list[tuple[Any, ...]]:
    """For each path its type, rights, time of change and content; a path that is gone has none."""
    found: list[tuple[Any, ...]] = []
    for path in paths:
        if not os.path.lexists(path):
            found.append((path, None))
            continue
        status = path.lstat()
        content: Any = None
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        found.append((path, status.st_mode, status.st_mtime_ns, content))
    return found
