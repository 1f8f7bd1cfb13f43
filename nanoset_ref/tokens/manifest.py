"""The manifest of a token file, and the names of its companions."""

import dataclasses
import json
from typing import Literal, Self, get_args

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.paths import FileVersion, PathLike, checksum_of_set, read_json

FORMAT_VERSION = 1  # of manifests
# suffixes of the companions, in place of .npy
MANIFEST_SUFFIX = ".json"
DOCUMENTS_SUFFIX = ".documents.npy"
LABELS_SUFFIX = ".sources.npz"
TOKEN_DTYPES = ("uint16", "int32")
# the first two are never None
COUNTS = "num_tokens", "num_documents", "vocab_size", "eos_token_id", "row_length"
# "overlapping": sample j is tokens [j*S, j*S + S + 1); neighbors share a token, so every token is a
#     label once.
# "disjoint": sample j is tokens [j*(S+1), (j+1)*(S+1)): the file was cut into rows of S + 1.
# "padded": disjoint, and rows may end in padding; each padding token is a separate document, so the
#     loss ignores it.
Windows = Literal["overlapping", "disjoint", "padded"]


class TokenFileError(ValueError):
    """A token file or its manifest is damaged, or does not fit the request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a token file, as JSON next to it.

    Args:
        dtype: "uint16" or "int32", little endian.
        num_tokens: number of ids in the file.
        num_documents: number of documents; their boundaries are in `<stem>.documents.npy`.
        checksum: "xxh3_128:<hex>" of the token file's bytes.
        tokenizer: name or folder from which the tokenizer was loaded, None if unknown.
        vocab_size: every id is below it, None if unknown.
        eos_token_id: the tokenizer's end-of-sequence id, None if it has none.
        appended_eod: whether an EOS id was written after each document.
        added_special_tokens: whether the tokenizer's own special tokens (such as BOS) were written.
        windows: how samples are cut, "overlapping", "disjoint" or "padded" (see `Windows`).
        row_length: in disjoint and padded windows, tokens per row (sequence_length + 1); None in
            overlapping windows.
        format_version: 1.
        sources: checksum of the file of labels (`<stem>.sources.npz`), None without such a file.
        seal: checksum of the other fields and of the file of document boundaries, None in the
            manifests of older files.
    """

    dtype: str
    num_tokens: int
    num_documents: int
    checksum: str
    tokenizer: str | None = None
    vocab_size: int | None = None
    eos_token_id: int | None = None
    appended_eod: bool = False
    added_special_tokens: bool = False
    windows: Windows = "overlapping"
    row_length: int | None = None
    format_version: int = FORMAT_VERSION
    sources: str | None = None
    seal: str | None = None

    def __post_init__(self) -> None:
        allowed = {
            "format_version": (FORMAT_VERSION,),
            "dtype": TOKEN_DTYPES,
            "windows": get_args(Windows),
        }
        for name, values in allowed.items():
            value = getattr(self, name)
            if value not in values:
                raise TokenFileError(f"{name} must be one of {values}, got {value!r}")
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None or name in COUNTS[:2]:
                object.__setattr__(self, name, whole_number(value, name, 0))
        if (self.windows == "overlapping") != (self.row_length is None):
            raise TokenFileError(
                "row_length goes with disjoint or padded windows, "
                f"got {self.windows}, {self.row_length}"
            )

    def to_json(self, documents: PathLike) -> bytes:
        """The manifest as JSON, with a checksum of it and the file of document boundaries."""
        fields = dataclasses.asdict(self) | {"seal": None}
        if self.sources is None:
            del fields["sources"]
        fields["seal"] = checksum_of_set(json.dumps(fields), documents)
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, path: PathLike, version: FileVersion | None = None) -> Self:
        """Read and validate a manifest, see `read_json`; every error names `path`."""
        try:
            return cls(**read_json(path, version))
        except (TypeError, ValueError) as error:
            raise TokenFileError(
                f"{path} is not a manifest of a token file: {error}"
            ) from error
