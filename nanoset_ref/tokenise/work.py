"""One rank's share of the work: read and encode it, show how far it is, hand the ids over to rank 0."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanoset_ref.text import TextSource
from nanoset_ref.tokenise.backends import Ragged
from nanoset_ref.tokenise.encode import Encoder
from nanoset_ref.tokenise.processes import Workers
from nanoset_ref.tokenise.ranks import Ranks

HANDED_OVER = 1 << 14  # documents at a time


class Share:
    """The documents of one rank, in order, and a bar over their bytes with documents/s, tokens/s and the time left.

    `shown`: None shows the bar where standard error is a terminal. `skipped` counts the documents left out, by kind.
    """

    def __init__(self, ranks: Ranks, source: TextSource, encoder: Encoder, shown: bool | None) -> None:
        self._ranks, self._source, self._encoder = ranks, source, encoder
        self._bar = tqdm(
            total=source.num_bytes // ranks.size,
            unit="B",
            unit_scale=True,
            disable=None if shown is None else not shown,
            dynamic_ncols=True,
        )
        self._documents = self._tokens = self._bytes_read = self._characters_read = self._characters_encoded = 0
        self._start = time.monotonic()
        self.skipped: Counter[str] = Counter()

    def encoded(self, workers: Workers | None = None) -> Iterator[Ragged]:
        """(ids, lengths) of all documents, batch by batch."""
        with self._bar:
            for batch in self._encoder.stream(self._texts(), workers=workers, advance=self._advance):
                self._ranks.beat()
                yield batch

    def _texts(self) -> Iterator[str]:
        for block in self._source.blocks(self._ranks.rank, self._ranks.size):
            self._bytes_read += block.num_bytes
            for document in block.documents():
                self._documents += 1
                self._characters_read += len(document.text)
                yield document.text
            self.skipped += block.skipped

    def _advance(self, characters: int, tokens: int) -> None:
        """Of the bytes read, the part is done that the encoded characters are of those read."""
        self._characters_encoded += characters
        self._tokens += tokens
        seconds = max(1e-3, time.monotonic() - self._start)
        rates = (tqdm.format_sizeof(count / seconds) for count in (self._documents, self._tokens))
        self._bar.set_postfix_str("{} documents/s, {} tokens/s".format(*rates), refresh=False)
        done = self._bytes_read * self._characters_encoded // max(1, self._characters_read)
        self._bar.update(done - self._bar.n)

    def hand_over(self, path: Path) -> None:
        """Write the documents to <path>.ids and <path>.lengths, which must not exist."""
        with open(f"{path}.ids", "xb") as ids_file, open(f"{path}.lengths", "xb") as lengths_file:
            for ids, lengths in self.encoded():
                ids_file.write(ids.data)
                lengths_file.write(lengths.data)

    def handed_over(self, path: Path) -> Iterator[Ragged]:
        """What another rank has written to `path`."""
        with open(f"{path}.ids", "rb") as ids_file, open(f"{path}.lengths", "rb") as lengths_file:
            while (lengths := np.fromfile(lengths_file, np.int64, HANDED_OVER)).size:
                yield np.fromfile(ids_file, self._encoder.dtype, lengths.sum()), lengths
