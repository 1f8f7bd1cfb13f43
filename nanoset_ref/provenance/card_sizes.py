"""The sizes of files that a card only says where to find: asked of their public place, once."""

import hashlib
import re
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nanoset_ref.provenance.card import Card

AT_ONCE = 16
PATIENCE = 60  # seconds for an answer


def fetch_sizes(
    card: Card, names: Path | None = None, mirror: str | None = None
) -> list[tuple[str, int]]:
    """(address, bytes) of each of a card's files, in the order of the run; no file is read.

    1. the list of names is fetched, and its sha256 compared with the card's
    2. each file is asked for its size, by a HEAD request

    Args:
        names: a copy of the list, instead of step 1.
        mirror: an address to ask instead of the files' own server: "http://localhost:8000".

    Raises:
        ValueError: the card lists no files, or their names are not public; another list.
        OSError: a server does not answer, or does not say a size; the message names the file.
    """
    listed = card.facts.get("listed")
    if listed is None or listed["pattern"] is None:
        raise ValueError(f"the card {card.name} lists no files whose sizes could be asked for")
    # 1.
    content = names.read_bytes() if names else _asked(listed["url"], "GET", lambda it: it.read())
    found = hashlib.sha256(content).hexdigest()
    if listed["sha256"] not in (None, found):
        raise ValueError(
            f"{names or listed['url']} has the sha256 {found}, the card says {listed['sha256']}"
        )
    addresses = addresses_in(content.decode(), listed)
    # 2.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        sizes = pool.map(_size_of, [mirrored(address, mirror) for address in addresses])
        return [*zip(addresses, sizes, strict=True)]


def addresses_in(text: str, listed: dict[str, Any]) -> list[str]:
    """The addresses of the files that a list names."""
    _, _, names_and_more = text.partition(listed["after"]) if listed["after"] else ("", "", text)
    names = re.findall(listed["pattern"], names_and_more)
    if len(names) != listed["files"]:
        raise ValueError(f"the list names {len(names)} files, the card says {listed['files']}")
    tokenizer = listed.get("tokenizer", "")
    return [listed["address"].format(name.replace("{TOKENIZER}", tokenizer)) for name in names]


def mirrored(address: str, mirror: str | None) -> str:
    """The address on another server, if there is one."""
    if mirror is None:
        return address
    return re.sub(r"^https?://[^/]+", mirror.rstrip("/"), address)


def _size_of(address: str) -> int:
    def length(answer: Any) -> int:
        said = answer.headers["Content-Length"]
        if said is None:
            raise OSError(f"{address}: the server does not say its size")
        return int(said)

    size: int = _asked(address, "HEAD", length)
    return size


def _asked(address: str, method: str, read: Callable[[Any], Any]) -> Any:
    request = urllib.request.Request(address, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return read(answer)
    except OSError as error:
        raise OSError(f"{address}: {error}") from error
