"""The rows of a card straight from where its data are public, by ranges: no file is downloaded."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.bucket_ids import bytes_of, fetch
from nanoset_ref.io.paths import as_path
from nanoset_ref.provenance.card import Card, CardRow
from nanoset_ref.provenance.card_sizes import AT_ONCE, mirrored


def fetch_rows(card: Card, rows: Sequence[CardRow], mirror: str | None = None) -> NDArray[Any]:
    """The ids of rows, integers [rows, row_length] of the card's dtype.

    Args:
        mirror: an address to ask instead of the files' own server, such as "http://localhost:8000".

    Raises:
        ValueError: the card does not say where a file is public.
        StorageError, FileNotFoundError: a server does not answer, or has no such file.
    """
    pieces = []
    for row in rows:
        found = card.published(row.source, row.first_byte, row.end_byte)
        if not found and "://" in row.path:
            found = [(row.path, row.first_byte, row.end_byte)]
        if not found:
            raise ValueError(
                f"this needs the token files of {card.name}, which does not say where {row.path} is "
                f"public: give them with --data"
            )
        pieces += found
    addresses = list({address for address, _, _ in pieces})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        opened: Any = pool.map(bytes_of, [as_path(mirrored(it, mirror)) for it in addresses])
        objects = dict(zip(addresses, opened, strict=True))
    content = fetch([(objects[address], first, last) for address, first, last in pieces])
    ids = np.frombuffer(b"".join(content), card.facts["dtype"])
    return ids.reshape(len(rows), card.facts["window"]["row_length"])
