"""Three file formats of tokenised documents, one view: convert, merge and split between all of them.

    <name>.npy                raw ids with a manifest            `tokens`      Nanotron
    <name>.bin, <name>.idx    ids and their index                `megatron`    Megatron-LM
    <name>.ds, .ds.index      ids and the documents' ends        `datatrove`   datatrove, today's Nanotron

All three hold the ids back to back, so a copy is one pass in pieces of a few million ids, with memory for one piece.
What was written is read again, and its ids and boundaries are hashed against the source's: `convert` proves itself, or
removes it.
"""

from nanoset_ref.formats.conversion import check_target, convert, split
from nanoset_ref.formats.description import Description, describe
from nanoset_ref.formats.documents import Documents, open_documents
from nanoset_ref.formats.verification import verify
from nanoset_ref.formats.writers import remove

__all__ = [
    "Description",
    "Documents",
    "check_target",
    "convert",
    "describe",
    "open_documents",
    "remove",
    "split",
    "verify",
]
