"""The sizes of files that a card only lists: each file's server is asked once."""

import hashlib
import re
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from nanoset_ref.io.threads import thread_map
from nanoset_ref.io.types import Json
from nanoset_ref.orders.plans import fingerprint_of
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_of_run import add_probes

TIMEOUT = 60  # seconds
PAUSES = 1, 3, 9  # seconds until a failed request is sent again
BUSY = 429, 500, 502, 503, 504  # status codes after which it may succeed


def fetch_sizes(
    card: Card,
    names: Path | None = None,
    mirror: str | None = None,
) -> list[tuple[str, int]]:
    """Fetch (address, bytes) of each of a card's files, in the order of the run; no file is read.

    1. Fetch the list of names, and compare its sha256 with the card's.
    2. Ask for the size of each file, by a HEAD request.

    Args:
        card: a card with "listed".
        names: a copy of the list, instead of step 1.
        mirror: a server to ask instead of the files' own, such as "http://localhost:8000".

    Raises:
        ValueError: the card lists no files, or their names are not public; this is another list.
        OSError: a server does not answer, or does not report a size; the message names the file.
    """
    listed = card.facts.get("listed")
    if listed is None or listed["pattern"] is None:
        raise ValueError(
            f"the card {card.name} lists no files whose sizes could be asked for: give its files, "
            "or the .idx of a .bin/.idx pair wherever it lies, to where, when or audit (--data)"
        )
    # 1.
    try:
        content = names.read_bytes() if names else _request(listed["url"], "GET")[1]
    except OSError as error:
        raise OSError(f"{error}; give a copy of this list (--names)") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if listed["sha256"] not in (None, sha256):
        raise ValueError(
            f"{names or listed['url']} has the sha256 {sha256}, but the card says "
            f"{listed['sha256']}"
        )
    addresses = addresses_in(content.decode(), listed)
    # 2.
    asked = [replace_server(address, mirror) for address in addresses]
    return list(zip(addresses, thread_map(_size_of, asked), strict=True))


def record_sizes(card: Card, sizes: Sequence[Sequence[Any]]) -> None:
    """Add a hash of the files' sizes, and probes, to the facts of their card."""
    card.facts["listed"]["fingerprint"] = fingerprint_of([size for _, size in sizes])
    add_probes(Card(card.facts, sizes))


def addresses_in(text: str, listed: Json) -> list[str]:
    """The addresses of the files that a list names after the text `listed["after"]`."""
    text = text.replace("\r\n", "\n")
    if listed["after"]:
        text = text.partition(listed["after"])[2]
    names = re.findall(listed["pattern"], text)
    if len(names) != listed["files"]:
        raise ValueError(
            f"the list names {len(names)} files, but the card says {listed['files']}"
        )
    tokenizer = listed.get("tokenizer", "")
    return [
        listed["address"].format(name.replace("{TOKENIZER}", tokenizer))
        for name in names
    ]


def replace_server(address: str, mirror: str | None) -> str:
    """Replace the server of an address by the mirror, if there is one."""
    if mirror is None:
        return address
    if "://" not in mirror:
        raise ValueError(
            f"a mirror is an address such as http://localhost:8000, got {mirror!r}"
        )
    return re.sub(r"^https?://[^/]+", mirror.rstrip("/"), address)


def _size_of(address: str) -> int:
    """The size of a file in bytes, from its headers."""
    headers, _ = _request(address, "HEAD")
    size = headers["Content-Length"]
    if size is None or headers["Content-Encoding"] == "gzip":
        raise OSError(
            f"{address}: the server does not report its size, or only that of a compressed copy; "
            "give the files (--data)"
        )
    return int(size)


def _request(address: str, method: str) -> tuple[Any, bytes]:
    """The headers and the content of a server's response; a request that fails is sent again."""
    request = urllib.request.Request(address, method=method)
    pauses = iter(PAUSES)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                return response.headers, response.read()
        except Exception as error:  # those of http.client are no OSErrors
            pause = next(pauses, None)
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
                if error.code not in BUSY:
                    pause = None
            if pause is None:
                raise OSError(f"{address}: {error}") from error
        time.sleep(pause)
