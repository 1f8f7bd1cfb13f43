"""Text to tokens to packed rows, from any place in the text on.

1. Documents come out of blocks in order, are encoded one batch ahead, an EOS after each, and laid end to end.
2. Row j is tokens[j*S : j*S + S + 1]: neighbours share one token, as in a token file.
3. What does not fill a row at the end of the text is left out.

    documents  a b c / d e f g / h      S = 3, E = EOS
    tokens     a b c E d e f g E h E
    rows       a b c E,  E d e f,  f g E h      (E left out)

A `cursor` names the first token of the next row: (block, document in it, token of the document). Going there
opens that block, passes over the documents before without encoding them, and encodes one document again. The rejected
alternative, to keep the tokens that are not yet in a row, ties a checkpoint to the encoder's batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nanoset_ref import documents
from nanoset_ref.text import Block
from nanoset_ref.tokenise.encode import Encoder

Row = dict[str, NDArray[Any]]


class Cursor(NamedTuple):
    """The first token of a row: `offset` tokens into the document with number `document` of block `block`."""

    block: int = 0
    document: int = 0
    offset: int = 0


class PackedRows:
    """The rows of some blocks of text.

    Args:
        blocks: the blocks in order; only those from the cursor on are read.
        encoder: sets the EOS after each document (append_eod).
        sequence_length: S, in tokens.
        cursor: where the first row begins.
        position_ids: whether rows come with them.
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        encoder: Encoder,
        sequence_length: int,
        cursor: Cursor = Cursor(),  # noqa: B008
        position_ids: bool = False,
    ) -> None:
        self.sequence_length, self._position_ids = sequence_length, position_ids
        self._sent: deque[Cursor] = deque()  # documents whose ids have not come back yet
        self._encoded = encoder.stream(self._texts(blocks, cursor))
        # tokens at hand, where in them each document begins (the first one before them, perhaps), and its cursor
        self._tokens = np.empty(0, np.int32)
        self._begins = np.empty(0, np.int64)
        self._documents: list[Cursor] = []
        self._at = cursor.offset  # the first token of the next row
        self._start = cursor

    @property
    def cursor(self) -> Cursor:
        """Where the next row begins."""
        if not self._documents:
            return self._start
        document = int(np.searchsorted(self._begins, self._at, "right")) - 1
        return self._documents[document]._replace(offset=self._at - int(self._begins[document]))

    def take(self) -> Row | None:
        """The next row, None at the end of the text.

        Returns:
            {"input_ids": int32 [S + 1]}, a view; with position ids also "position_ids": int64 [S + 1], from 0 in each
            document and at the beginning of the row.
        """
        while self._at + self.sequence_length + 1 > len(self._tokens):
            if not self._fill():
                return None
        end = self._at + self.sequence_length + 1
        row = {"input_ids": self._tokens[self._at : end]}
        if self._position_ids:
            starts = documents.starts_at_boundaries(self._begins, np.array([self._at]), end - self._at)
            row["position_ids"] = documents.position_ids(starts)[0]
        self._at = end - 1
        return row

    def _fill(self) -> bool:
        """Put the next batch of documents after the tokens that are left; False if there is none."""
        ids, lengths = next(self._encoded, (None, None))
        if ids is None or lengths is None:
            return False
        if self._documents:  # let go of what lies before the next row
            first = int(np.searchsorted(self._begins, self._at, "right")) - 1
            self._documents, self._begins = self._documents[first:], self._begins[first:] - self._at
            self._tokens, self._at = self._tokens[self._at :], 0
        self._begins = np.concatenate([self._begins, np.cumsum(lengths) - lengths + len(self._tokens)])
        self._tokens = np.concatenate([self._tokens, ids.astype(np.int32)])
        self._documents += [self._sent.popleft() for _ in range(len(lengths))]
        return True

    def _texts(self, blocks: Iterable[Block], start: Cursor) -> Iterator[str]:
        for number, block in islice(enumerate(blocks), start.block, None):
            for document in block.documents():
                if number > start.block or document.number >= start.document:
                    self._sent.append(Cursor(number, document.number))
                    yield document.text
