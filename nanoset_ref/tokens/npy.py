"""`TokenFile`: raw ids as Nanotron writes and reads them, with or without a manifest."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nanoset_ref.io.checks import check_index
from nanoset_ref.io.paths import (
    FileVersion,
    PathLike,
    as_path,
    checksum,
    file_version,
    in_bucket,
    location_of,
    read_head,
)
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.tokens.interface import Facts, Tokens, cached_property
from nanoset_ref.tokens.manifest import (
    DOCUMENTS_SUFFIX,
    LABELS_SUFFIX,
    MANIFEST_SUFFIX,
    TOKEN_DTYPES,
    Manifest,
    TokenFileError,
)

FACT_FIELDS = """
tokenizer vocab_size eos_token_id appended_eod added_special_tokens windows row_length checksum
""".split()
NUMPY_HEADER = b"\x93NUMPY"
DTYPES = {name: np.dtype(name).newbyteorder("<") for name in TOKEN_DTYPES}


def name_of_dtype(token_dtype: DTypeLike | None) -> str | None:
    """The name of an id's dtype, such as "uint16"; None for None."""
    if token_dtype is None:
        return None
    with contextlib.suppress(TypeError):  # anything else is refused by its name
        token_dtype = np.dtype(token_dtype)
    # ids are below 2**31, so uint32 and int32 have the same bytes
    return str(token_dtype).replace("uint32", "int32")


class TokenFile(Tokens):
    """A .npy token file: raw ids without NumPy's header, and an optional manifest.

    Args:
        path: the file with the ids.
        token_dtype: the dtype of the ids; it must agree with the manifest. None: the manifest's, or
            uint16 without a manifest, as in Nanotron. "uint32" is read as int32: ids are below
            2**31.
        eos_token_id: the id at the end of each document; it must agree with the manifest. Without a
            manifest, document boundaries are found by searching the ids for it.

    A signed URL opens a single object. If `token_dtype` is given, companions that the server does
    not allow to read are left out.

    Attributes (in addition to those of `Tokens`):
        manifest: the Manifest, or None.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenFileError: the file is empty, its size is not a multiple of an id's size, its size,
            dtype or EOS id differs from the manifest's, or it has a NumPy header and no manifest.
    """

    companion_versions: Mapping[str, FileVersion | None] = {MANIFEST_SUFFIX: None}
    manifest: Manifest | None = None
    _is_ascending = False

    def __init__(
        self,
        path: PathLike,
        token_dtype: DTypeLike | None = None,
        eos_token_id: int | None = None,
    ) -> None:
        # 1. for a local file: its version, its first bytes, and whether it is a link
        location = location_of(path)
        version = None
        head = b""
        is_link = False
        if isinstance(location, str):
            with contextlib.suppress(FileNotFoundError):
                version, head, is_link = read_head(location, len(NUMPY_HEADER))
        super().__init__(location, version=version)
        if self.version is None:
            raise FileNotFoundError(
                f"no token file at {self.location}; nanoset_ref.preprocess writes "
                "<prefix>_input_ids.npy"
            )
        # 2. the manifest, if there is one; it decides the dtype, and with it the number of ids
        self.eos_token_id = eos_token_id
        self._read_manifest(skip_denied=token_dtype is not None)
        self.dtype = self._choose_dtype(token_dtype)
        if is_link and self.manifest is None and token_dtype is None:
            # only links need it
            from nanoset_ref.tokens.companions import refuse_link_without_companions

            refuse_link_without_companions(self.path, MANIFEST_SUFFIX, ".idx")
        self.num_tokens = self.count_ids()
        # 3. the first bytes of an object in a bucket, which also prove that it is readable
        if not head:
            head = self.tokens[:4].tobytes()
        # 4. the ids are those of the manifest; without one, they do not begin with a NumPy header
        if self.manifest is not None:
            self._check_manifest(self.manifest)
        elif head.startswith(NUMPY_HEADER):
            raise TokenFileError(
                f"{self.location} has a NumPy header; write raw ids as {self.dtype}, or as "
                "another token_dtype if they do not fit: "
                f"np.load(...).astype({str(self.dtype)!r}).tofile(...)"
            )

    def _read_manifest(self, skip_denied: bool) -> None:
        """Read the manifest if there is one, and record the versions of the companions.

        Args:
            skip_denied: whether to leave out companions that the server does not allow to read.
        """
        location = self.companion(MANIFEST_SUFFIX)
        skip_denied = skip_denied and in_bucket(location)
        if skip_denied and location.is_denied():
            self.companion_versions = {}
            return
        version = file_version(location)
        if version is None:
            return
        versions: dict[str, FileVersion | None] = {MANIFEST_SUFFIX: version}
        self.companion_versions = versions
        self.manifest = manifest = Manifest.read(location, version)
        self.windows = manifest.windows
        self.row_length = manifest.row_length
        # without a manifest, boundaries are not looked for
        documents = self.companion(DOCUMENTS_SUFFIX)
        if not (skip_denied and documents.is_denied()):
            versions[DOCUMENTS_SUFFIX] = file_version(documents)

    def _check_manifest(self, manifest: Manifest) -> None:
        """Compare the number of ids and the EOS id with the manifest's."""
        if self.num_tokens != manifest.num_tokens:
            raise TokenFileError(
                f"{self.path} holds {self.num_tokens} ids, but its manifest says "
                f"{manifest.num_tokens}: the file was truncated or replaced"
            )
        given = self.eos_token_id
        recorded = manifest.eos_token_id
        if None not in (given, recorded) and given != recorded:
            raise TokenFileError(
                f"{self.path}: eos_token_id={given} contradicts the manifest, which says {recorded}"
            )

    def _choose_dtype(self, token_dtype: DTypeLike | None) -> np.dtype[Any]:
        """The manifest's dtype, else the given one, else uint16."""
        asked_for = name_of_dtype(token_dtype)
        name = asked_for or "uint16"
        if self.manifest is not None:
            name = self.manifest.dtype
        elif (
            str(self.location).endswith(".bin")
            and self.path.with_suffix(".idx").is_file()
        ):
            raise TokenFileError(
                f"{self.path} is the .bin of a Megatron pair; its dtype is in the .idx: "
                "open it with nanoset_ref.open_tokens"
            )
        if name not in DTYPES:
            raise TokenFileError(
                f"token_dtype must be one of {TOKEN_DTYPES}, little-endian; got {name}"
            )
        if asked_for not in (None, name):
            raise TokenFileError(
                f"{self.path}: token_dtype={asked_for} contradicts the manifest, which says {name}"
            )
        return DTYPES[name]

    @property
    def facts(self) -> Facts:
        """See `Tokens.facts`."""
        if self.manifest is not None:
            facts = {name: getattr(self.manifest, name) for name in FACT_FIELDS}
            if self.manifest.eos_token_id is None:
                del facts["appended_eod"]  # here False means unknown
            return facts
        if self.eos_token_id is None:
            return {}
        return {
            "eos_token_id": self.eos_token_id,
            "appended_eod": bool(self.tokens[-1] == self.eos_token_id),
        }

    @cached_property
    def document_offsets(self) -> Int64Array | None:
        """See `Tokens.document_offsets`; mapped, or searched for, at the first access."""
        from nanoset_ref.tokens import companions  # only readers of documents need it

        self.check_unchanged()
        if self.manifest is None:
            if self.eos_token_id is None:
                return None
            return companions.find_document_offsets(self.tokens, self.eos_token_id)
        path = self.companion(DOCUMENTS_SUFFIX)
        offsets = companions.read_document_offsets(
            path, self.manifest.num_documents, self.num_tokens
        )
        # a worker process inherits True with the unchanged file
        if not self._is_ascending:
            companions.require_ascending(offsets, path)
            self._is_ascending = True
        return offsets

    def label_of(self, document: int | None) -> str | None:
        """See `Tokens.label_of`."""
        if document is None or self._labels is None:
            return None
        labels, numbers = self._labels
        document = check_index(document, len(numbers), "document")
        return str(labels[numbers[document]]) or None

    @cached_property
    def _labels(self) -> tuple[Array, Array] | None:
        """The labels, and the number of each document's label (`TokenFileWriter.write_labels`)."""
        # only readers of documents need it
        from nanoset_ref.tokens.companions import read_labels

        return read_labels(self.companion(LABELS_SUFFIX), self.manifest)

    def check_content(self) -> bool:
        """See `Tokens.check_content`.

        The manifest's field `seal` covers the manifest and the document boundaries; its field
        `sources` covers the labels.
        """
        recorded = super().check_content()
        if self.manifest is None:
            return recorded
        if self.manifest.sources is not None:
            labels = as_path(self.companion(LABELS_SUFFIX))
            if not labels.is_file() or checksum(labels) != self.manifest.sources:
                raise TokenFileError(
                    f"{labels} is missing or has changed since it was written; copy it again"
                )
        if self.manifest.seal is not None:
            self.require_document_offsets()
            manifest = as_path(self.companion(MANIFEST_SUFFIX))
            documents = self.companion(DOCUMENTS_SUFFIX)
            if manifest.read_bytes() != self.manifest.to_json(documents):
                raise TokenFileError(
                    f"{manifest} or {documents} has changed since both were written; "
                    "copy them again"
                )
        return recorded

    def __repr__(self) -> str:
        facts = f"{str(self.path)!r}, {self.dtype.name}, {self.num_tokens:,} tokens"
        if self.manifest is not None:
            facts += f", {self.manifest.num_documents:,} documents"
        return f"TokenFile({facts})"
