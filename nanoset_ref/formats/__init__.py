"""Token ids in every format: open, describe, verify, convert; datatrove's .ds folders, read as they are."""

from nanoset_ref.formats.conversion import agreed_facts, check_target, convert, remove, split
from nanoset_ref.formats.datatrove import (
    DataCollatorForCLMWithPositionIds,
    DatatroveFile,
    DatatroveFolder,
    DatatroveNanoset,
    datatrove_files,
)
from nanoset_ref.formats.description import Description, describe, verify
from nanoset_ref.formats.opening import open_tokens, without_companions

__all__ = [
    "DataCollatorForCLMWithPositionIds",
    "DatatroveFile",
    "DatatroveFolder",
    "DatatroveNanoset",
    "Description",
    "agreed_facts",
    "check_target",
    "convert",
    "datatrove_files",
    "describe",
    "open_tokens",
    "remove",
    "split",
    "verify",
    "without_companions",
]
