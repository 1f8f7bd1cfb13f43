"""The rows of a card from its published files, by range requests: no file is downloaded."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.bucket_ranges import bytes_of, fetch
from nanoset_ref.io.paths import as_path
from nanoset_ref.io.threads import thread_map
from nanoset_ref.io.types import Array
from nanoset_ref.provenance.card import Card, CardRow
from nanoset_ref.provenance.card_sizes import replace_server


def fetch_rows(
    card: Card,
    rows: Sequence[CardRow],
    mirror: str | None = None,
) -> Array:
    """Fetch the ids of rows.

    Args:
        card: the card of the run.
        rows: some of its rows.
        mirror: a server to ask instead of the one in the card, such as "http://localhost:8000".

    Returns:
        integers [rows, row_length] of the card's dtype.

    Raises:
        ValueError: the card does not record where a file is published; or a server has a file of
            another size.
        StorageError, FileNotFoundError: a server does not answer, or has no such file.
    """
    parts = []
    sizes = {}  # of each address, by the card
    for row in rows:
        published = card.published(row.source, row.first_byte, row.end_byte)
        if not published:
            raise ValueError(
                f"this needs the token files of {card.name}, which does not say where {row.path} "
                "is public: give them with --data"
            )
        parts += published
        source = card.sources[row.source]
        part_bytes = source.get("parts", source)["bytes"]
        part_start = row.first_byte - published[0][1]  # in the file
        for address, _, _ in published:
            sizes[address] = min(part_bytes, source["bytes"] - part_start)
            part_start += part_bytes
    paths: dict[str, Any] = {
        address: as_path(replace_server(address, mirror)) for address, _, _ in parts
    }
    opened = thread_map(bytes_of, list(paths.values()))
    objects = dict(zip(paths, opened, strict=True))
    for address, file in objects.items():
        if file.size != sizes[address]:
            raise ValueError(
                f"{file.path} has {file.size:,} bytes, but the card {card.name} says "
                f"{sizes[address]:,}: this is another file"
            )
    extents = [(objects[address], first, last) for address, first, last in parts]
    content = b"".join(fetch(extents))
    ids = np.frombuffer(content, card.facts["dtype"])
    return ids.reshape(len(rows), card.facts["window"]["row_length"])
