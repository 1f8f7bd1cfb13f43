"""The manifest of a prepared folder and its token accounting, which must balance.

`manifest.json` records the `settings` of the run that fills a folder. Once `complete`, it also
records the content: lines and checksum of every file, and an account of every subset's tokens. It
is written before the first file and again after the last. In an unfinished folder, a run with the
same settings resumes, and a run with others starts over. A complete folder of other settings is
refused. The files themselves are complete or absent, so there is no other state.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import write_text
from nanoset_ref.io.paths import PathLike, checksum
from nanoset_ref.io.pydantic_errors import problems_of
from nanoset_ref.io.types import Json

with extra("text", "preparing a corpus"):
    from pydantic import (
        BaseModel,
        ConfigDict,
        NonNegativeInt,
        PositiveInt,
        ValidationError,
    )

MANIFEST_NAME = "manifest.json"
ROWS_NAME = "train.jsonl"  # a subset's rows
# each manifest of this package contains one of them
MANIFEST_MARKS = (b"nanoset_ref.chunks/", b'"conservation"')


class ManifestError(ValueError):
    """A prepared folder is unfinished, has other settings, or differs from its manifest."""


class _Entry(BaseModel):
    """Validated fields; an invalid one raises ValidationError, which is a ValueError."""

    model_config = ConfigDict(frozen=True, strict=True)


class FileEntry(_Entry):
    """One file.

    Attributes:
        lines: the number of lines; in a token file, the number of documents.
        checksum: "xxh3_128:<hex>".
    """

    lines: int
    checksum: str

    @classmethod
    def of(cls, path: Path, lines: int) -> Self:
        """The entry of a file as it is now."""
        return cls(lines=lines, checksum=checksum(path))


class Account(_Entry, extra="allow"):
    """The account of one subset's tokens or samples; all fields but the name are counts.

    `tokenize`, from documents to rows:
        documents: encoded documents.
        skipped_documents: documents left out.
        special_documents: documents that contain special tokens as text.
        special_tokens: the special tokens in these documents, which keep them.
        document_tokens: tokens of the documents themselves.
        separator_tokens: BOS and EOS added to documents.
        carried_in_tokens: the tail of the previous subset.
        padding_tokens: padding in rows.
        samples: rows written.
        written_tokens: tokens in the rows written.
        cut_tokens: tokens cut off without wrap.
        tail_tokens: tokens dropped at the end.
        carried_out_tokens: tokens passed to the next subset.

    `mix`, from rows to chunks: samples = valid + train + leftover.
    """

    subset: str
    __pydantic_extra__: dict[str, NonNegativeInt]


class RowFacts(_Entry, extra="ignore"):
    """Length and tokenizer of a folder's rows, from its settings; None if unknown.

    `tokenizer` is its name, `tokenizer_identity` a hash of its definition (`Encoder.identity`),
    which older manifests lack.
    """

    concat_tokens: PositiveInt | None = None
    tokenizer: str | None = None
    tokenizer_identity: str | None = None
    vocab_size: PositiveInt | None = None
    eos_token_id: NonNegativeInt | None = None


class ChunkManifest(_Entry):
    """The content of manifest.json.

    `files` and the fields after it are filled in when the folder is complete.

    Args:
        settings: JSON values that determine the content of the folder.
        complete: whether the folder is complete.
        facts: facts about the rows.
        files: {path in the folder: entry}.
        conservation: an account per subset.
        carried_tail: the ids of the tail that is passed to the next subset.
    """

    format: Literal["nanoset_ref.chunks/2"]
    settings: Json
    complete: bool = False
    facts: RowFacts = RowFacts()
    files: dict[str, FileEntry] = {}
    conservation: list[Account] = []
    carried_tail: list[int] = []

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the manifest of `folder`.

        Returns:
            None if there is no manifest, or if another program wrote it.

        Raises:
            ManifestError: the manifest is invalid.
        """
        path = folder / MANIFEST_NAME
        content = path.read_bytes() if path.is_file() else b""
        if not any(word in content for word in MANIFEST_MARKS):
            return None
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise ManifestError(
                f"{path} is not a valid manifest: {problems_of(error)[0]}; "
                "delete this folder and run the command again"
            ) from error

    def write(self, folder: Path) -> Self:
        """Write the manifest into its folder, atomically."""
        write_text(folder / MANIFEST_NAME, self.model_dump_json(indent=1))
        return self

    def finish(self, folder: Path, **content: Any) -> Self:
        """Add the fields in `content`, set `complete`, and write the manifest."""
        return self.model_copy(update={"complete": True, **content}).write(folder)


def manifests_above(paths: Iterable[Path]) -> dict[Path, ChunkManifest]:
    """{folder: manifest} of the prepared folders above `paths`, in the order of `paths`."""
    folders = dict.fromkeys(
        folder for path in paths for folder in path.resolve().parents
    )
    manifests = {}
    for folder in folders:
        manifest = ChunkManifest.read(folder)
        if manifest:
            manifests[folder] = manifest
    return manifests


def find_problems(
    manifests: dict[Path, ChunkManifest], paths: Iterable[PathLike]
) -> Iterator[tuple[Path, str]]:
    """Compare folders with their manifests.

    Yields:
        (path, problem) for unfinished folders, and for files in or below `paths` that differ from
        their manifest.
    """
    resolved = [Path(path).resolve() for path in paths]
    for folder, manifest in manifests.items():
        if not manifest.complete:
            yield folder, "not finished: run again the command that makes it"
        for name, entry in manifest.files.items():
            path = folder / name
            if not any(map(path.is_relative_to, resolved)):
                continue
            if not path.exists():
                yield path, "missing, though the manifest lists it"
            elif entry.checksum != checksum(path):
                yield path, "changed: its checksum differs from the manifest's"


def common_facts(
    manifests: dict[Path, ChunkManifest], paths: Iterable[PathLike]
) -> RowFacts:
    """The facts about rows that all manifests share.

    Raises:
        ManifestError: `find_problems` finds one, or the facts differ.
    """
    for path, problem in find_problems(manifests, paths):
        raise ManifestError(f"{path}: {problem}")
    found = [manifest.facts for manifest in manifests.values()] or [RowFacts()]
    identities = [row_facts.tokenizer_identity for row_facts in found]
    known = next(filter(None, identities), None)
    facts = set()
    # an older manifest lacks the identity, which cannot be compared
    for row_facts in found:
        identity = row_facts.tokenizer_identity or known
        facts.add(row_facts.model_copy(update={"tokenizer_identity": identity}))
    if len(facts) > 1:
        differing = sorted(map(str, facts))
        raise ManifestError(
            f"these rows do not go together; tokenize them with the same settings: {differing}"
        )
    return facts.pop()


def accounts_table(conservation: Sequence[Account]) -> str:
    """Format accounts of one kind as a table with totals, without columns of zeros."""
    names = ["subset", *(account.subset for account in conservation), "total"]
    columns = [[f"{name:<{max(map(len, names))}}" for name in names]]
    for field in conservation[0].__pydantic_extra__:
        values = [getattr(account, field) for account in conservation]
        if any(values):
            cells = [
                field.replace("_", " "),
                *(f"{value:,}" for value in [*values, sum(values)]),
            ]
            width = max(map(len, cells))
            columns.append([cell.rjust(width) for cell in cells])
    return "\n".join(map("  ".join, zip(*columns, strict=True)))
