"""Text to tokens to packed rows, from any place in the text on.

1. Documents come out of blocks in order, are encoded one batch ahead, an EOS after each, and laid end to end.
2. Row j is tokens[j*S : j*S + S + 1]: neighbours share one token, as in a token file.
3. What does not fill a row at the end of the text is left out.

    documents  a b c / d e f g / h      S = 3, E = EOS
    tokens     a b c E d e f g E h E
    rows       a b c E,  E d e f,  f g E h      (E left out)

A `Cursor` names the first token of a row: (block, document in it, token of the document). To go there, open that block,
pass over the documents before without encoding them, and encode one document again.
"""

from __future__ import annotations

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
    """The first token of a row: `offset` tokens into document number `document` of block `block`."""

    block: int = 0
    document: int = 0
    offset: int = 0


def packed_rows(
    blocks: Iterable[Block],
    encoder: Encoder,
    sequence_length: int,
    start: Cursor = Cursor(),  # noqa: B008
    position_ids: bool = False,
) -> Iterator[tuple[Cursor, Row]]:
    """The rows of some blocks of text, each with its cursor.

    Args:
        blocks: in order; only those from `start` on are read.
        encoder: sets the EOS after each document (append_eod).
        sequence_length: S, in tokens.
        start: where the first row begins.
        position_ids: whether rows come with them.

    Yields:
        rows {"input_ids": int32 [S + 1]}; with position ids also "position_ids": int64 [S + 1], from 0 in each document
        and at the beginning of the row.
    """
    sent: list[Cursor] = []  # the documents that the encoder was given; the first len(begins) of them are in `tokens`

    def texts() -> Iterator[str]:
        for number, block in islice(enumerate(blocks), start.block, None):
            for document in block.documents():
                place = Cursor(number, document.number)
                if place >= start[:2]:
                    sent.append(place)
                    yield document.text

    # tokens at hand, where each document begins in them (the first one: or before), and where the next row does
    tokens, begins, at = np.empty(0, np.int32), np.empty(0, np.int64), start.offset
    for ids, lengths in encoder.stream(texts()):
        begins = np.append(begins, len(tokens) + np.cumsum(lengths) - lengths)
        tokens = np.append(tokens, ids.astype(np.int32))
        while at + sequence_length < len(tokens):
            document = np.searchsorted(begins, at, "right") - 1
            row = {"input_ids": tokens[at : at + sequence_length + 1].copy()}
            if position_ids:
                starts = documents.starts_at_boundaries(begins, np.array([at]), sequence_length + 1)
                row["position_ids"] = documents.position_ids(starts)[0]
            yield sent[document]._replace(offset=at - int(begins[document])), row
            at += sequence_length
        # let go of what lies before the next row
        document = np.searchsorted(begins, at, "right") - 1
        del sent[:document]
        tokens, begins, at = tokens[at:], begins[document:] - at, 0
