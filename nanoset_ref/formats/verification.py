"""Hold a file of token ids against what stands beside it, in any of the three formats."""

from __future__ import annotations

import os

import numpy as np

from nanoset_ref.formats.documents import PIECE, Documents, open_documents
from nanoset_ref.tokens import TokenFileError


def verify(documents: str | os.PathLike[str] | Documents, vocab_size: int | None = None) -> str:
    """Read a whole file, by its path or already opened, and check all that is known of it.

    1. It opens: sizes, dtype, header, boundaries (see the readers of the formats).
    2. A token file's content has the checksum of its manifest.
    3. Every id lies in [0, vocab_size), as given or as the manifest says.

    Returns:
        What was found, in one line.

    Raises:
        FileNotFoundError, TokenFileError, IndexedDatasetError: what does not hold.
    """
    if not isinstance(documents, Documents):
        documents = open_documents(documents)
    path = documents.path
    documents.check_content()
    checksum = "" if documents.checksum is None else ", checksum as in the manifest"
    limit = documents.description.get("vocab_size") if vocab_size is None else vocab_size
    for start in range(0, len(documents.tokens), PIECE):
        piece = documents.tokens[start : start + PIECE]
        if int(piece.min()) < 0 or (limit is not None and int(piece.max()) >= limit):
            wrong = start + int(np.flatnonzero((piece < 0) | (piece >= (np.inf if limit is None else limit)))[0])
            raise TokenFileError(
                f"{path}: token {wrong} has the id {documents.tokens[wrong]}, outside the vocabulary"
                + ("" if limit is None else f" of {limit} ids")
            )
    ids = (
        f"ids below {limit:,}"
        if limit is not None
        else "ids not negative (no vocabulary size known: give --vocab-size)"
    )
    return f"{len(documents.tokens):,} tokens in {documents.num_documents:,} documents, {ids}{checksum}"
