"""`verify`: compare a token file with all recorded facts, checksums first."""

import json
from typing import Any

import numpy as np

from nanoset_ref.io.files import write_text
from nanoset_ref.io.overwriting import begins_with, refuse_foreign
from nanoset_ref.io.paths import PathLike, as_path
from nanoset_ref.tokens.companions import SEAL_BEGINNING
from nanoset_ref.tokens.document_blocks import document_blocks
from nanoset_ref.tokens.interface import Tokens
from nanoset_ref.tokens.llm_c_shard import LlmCFile
from nanoset_ref.tokens.manifest import TokenFileError
from nanoset_ref.tokens.npy import TokenFile
from nanoset_ref.tokens.opening import open_tokens

# with this many, an id that occurs once per document is not a coincidence
MIN_DOCUMENTS = 8


def verify(
    file: PathLike | Tokens,
    vocab_size: int | None = None,
    eos_token_id: int | None = None,
) -> str:
    """Read a whole file and check every fact known about it.

    1. Open it, which checks sizes, dtype, header and boundaries (see the formats' readers).
    2. Compare its files with the recorded checksums, if there are any.
    3. Check that every id is in [0, vocab_size), if vocab_size is given or in the manifest.
    4. Check that every document ends with the EOS id, if the manifest says so, `eos_token_id` is
       given, or the ids suggest it: the last id of the file occurs once per document. (A shard of
       llm.c or a .npy file without a manifest needs no check: its documents are found by the id.)

    Args:
        file: a path, or an opened file.
        vocab_size: default: the manifest's.
        eos_token_id: the id at the end of every document, for a file that does not record it; the
            id that begins each, for a shard of llm.c.

    Returns:
        The result in one line.

    Raises:
        FileNotFoundError, TokenFileError: a check failed.
    """
    # 1. open the file
    if not isinstance(file, Tokens):
        file = open_tokens(file, eos_token_id=eos_token_id)
    # 2. compare the checksums
    checksum = ", checksum as recorded" if file.check_content() else ""
    # 3. check the range of the ids
    facts = file.facts
    limit = facts.get("vocab_size") if vocab_size is None else vocab_size
    last_count = 0
    first = 0
    last_ids_of_blocks = [file.tokens[:0]]
    for ids, sizes in document_blocks(file):
        _check_range(file, first, ids, limit)
        last_count += int(np.count_nonzero(ids == file.tokens[-1:]))
        last_ids_of_blocks.append(ids[np.cumsum(sizes[sizes > 0]) - 1])
        first += len(ids)
    # 4. check the ends of the documents
    offsets = file.require_document_offsets()
    last_ids = np.concatenate(last_ids_of_blocks)
    is_raw = isinstance(file, TokenFile) and file.manifest is None
    if is_raw or isinstance(file, LlmCFile):
        eos_token_id = None
    elif eos_token_id is None:
        if facts.get("appended_eod"):
            eos_token_id = facts["eos_token_id"]
        elif (
            "appended_eod" not in facts and last_count == len(last_ids) >= MIN_DOCUMENTS
        ):
            eos_token_id = int(last_ids[-1])
    if eos_token_id is not None and np.any(last_ids != eos_token_id):
        wrong = np.unique(offsets[offsets > 0])[last_ids != eos_token_id]
        raise TokenFileError(
            f"{file.path}: the document that ends at {wrong[0]} has no EOS id {eos_token_id} "
            "there: a boundary or an id has changed"
        )
    checked = "ids not negative (no vocabulary size known: give --vocab-size)"
    if limit:
        checked = f"ids below {limit:,}"
    return f"{file.num_tokens:,} tokens in {len(offsets) - 1:,} documents, {checked}{checksum}"


def _check_range(file: Tokens, first: int, ids: Any, limit: int | None) -> None:
    """Step 3 of `verify`, for the ids from token `first` on."""
    is_wrong = ids < 0
    if limit is not None:
        is_wrong |= ids >= limit
    wrong = np.flatnonzero(is_wrong)
    if len(wrong):
        problem = "which is negative"
        if limit is not None:
            problem = f"outside the vocabulary of {limit} ids"
        raise TokenFileError(
            f"{file.path}: token {first + wrong[0]} has the id {ids[wrong[0]]}, {problem}"
        )


def write_seal(file: Tokens) -> bool:
    """Write the checksum next to a file unless one is recorded; return whether it did."""
    if file.checksum is not None:
        return False
    refuse_foreign(as_path(file.seal_path), begins_with(SEAL_BEGINNING))
    write_text(file.seal_path, json.dumps(file.content_checksum()))
    return True
