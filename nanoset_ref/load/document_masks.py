"""Documents within rows of tokens: where they begin, and the fields that a model needs for them.

Everything follows from one array, `starts`: bool [B, W], True where a token is the first of its
document, always True in column 0. It is made from the tokens (a document begins after each EOS id)
or from known boundaries (a manifest's document offsets), which need no separators and tolerate an
EOS id within a document.

    tokens      a b E c d     E = EOS
    starts      1 0 0 1 0
    positions   0 1 2 0 1
    loss        1 1 0 1       the label of E is the first token of another document
    cu_seqlens  0 3 5         max_seqlen 3

Source: reset_position_ids, reset_attention_mask and eod_mask_loss of NVIDIA Megatron-LM; cu_seqlens
and max_seqlen as in FlashAttention's varlen interface.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.checks import refuses_unknown, whole_number
from nanoset_ref.io.error_text import short_repr
from nanoset_ref.io.memory import check_not_truncated
from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Array, BoolArray, Int32Array, Int64Array, Json
from nanoset_ref.load.document_spans import concatenated_ranges
from nanoset_ref.load.rows import Rows, Starts
from nanoset_ref.orders.base import NO_POSITIONS
from nanoset_ref.tokens import Tokens
from nanoset_ref.tokens.companions import DAMAGED_BOUNDARIES


def starts_after_eos(rows: Array, eos_token_id: int) -> Starts:
    """Documents begin after each EOS id: bool [B, W], from integers [B, W]."""
    starts = np.ones(rows.shape, dtype=np.bool_)
    np.equal(rows[:, :-1], eos_token_id, out=starts[:, 1:])
    return starts


def starts_at_boundaries(
    document_offsets: Int64Array, first_tokens: Int64Array, row_length: int
) -> Starts:
    """Documents begin at known offsets.

    Args:
        document_offsets: int64 [documents + 1], ascending, in tokens of one file
            (`Tokens.document_offsets`).
        first_tokens: int64 [B], the file offset of each row's first token.
        row_length: W, tokens per row.

    Returns:
        bool [B, W]; empty documents are invisible.

    Raises:
        ValueError: the offsets used do not ascend.
    """
    first_tokens = np.asarray(first_tokens, dtype=np.int64)
    starts = np.zeros((len(first_tokens), row_length), dtype=np.bool_)
    starts[:, 0] = True
    first = np.searchsorted(document_offsets, first_tokens)
    last = np.searchsorted(document_offsets, first_tokens + row_length)
    counts = last - first
    rows = np.repeat(np.arange(len(first_tokens)), counts)
    columns = document_offsets[concatenated_ranges(first, counts)] - first_tokens[rows]
    if ((columns < 0) | (columns >= row_length)).any():
        raise ValueError(DAMAGED_BOUNDARIES)
    starts[rows, columns] = True
    return starts


def starts_in_files(
    files: Sequence[Tokens],
    sources: Int64Array,
    first_tokens: Int64Array,
    row_length: int,
) -> Starts:
    """`starts_at_boundaries` of rows in several files, whose boundaries must all be known.

    Args:
        files: the files.
        sources: int64 [B], the number of each row's file.
        first_tokens, row_length: see `starts_at_boundaries`.
    """
    boundaries = [file.require_document_offsets() for file in files]
    starts = np.empty((len(sources), row_length), dtype=np.bool_)
    for source in np.unique(sources).tolist():
        rows = sources == source
        check_not_truncated(boundaries[source])
        starts[rows] = starts_at_boundaries(
            boundaries[source], first_tokens[rows], row_length
        )
    return starts


@njit(work=lambda starts: starts.size)
def position_ids(starts: Starts) -> Int64Array:
    """Positions that begin again at each document, int64 [B, W]."""
    positions = np.empty(starts.shape, dtype=np.int64)
    for row in range(starts.shape[0]):
        position = 0
        for column in range(starts.shape[1]):
            if starts[row, column]:
                position = 0
            positions[row, column] = position
            position += 1
    return positions


def loss_mask(starts: Starts) -> BoolArray:
    """True where the label (the next token) is in the input's document: bool [B, W - 1]."""
    return ~starts[:, 1:]


def cu_seqlens(starts: Starts) -> tuple[Int32Array, int]:
    """The rows as one packed sequence of B * W tokens.

    Returns:
        The start of each document and the end of the last, int32 [documents + 1]; the length of the
        longest document.
    """
    edges = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
    longest = np.diff(edges).max(initial=0)
    return edges, int(longest)


def attention_mask(starts: Starts) -> BoolArray:
    """bool [B, 1, W, W]: True where a query (third axis) must not see a key (fourth), because it
    comes later or is in another document.
    """
    document = np.cumsum(starts, axis=1)
    is_other_document = document[:, :, None] != document[:, None, :]
    is_earlier = np.tri(starts.shape[1], dtype=np.bool_)  # or the same token
    masked = is_other_document | ~is_earlier
    return masked[:, None]


def flag_problems(options: Any) -> Iterator[str]:
    """Yield a message for each flag of a dataclass that is neither True nor False."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            yield f"{field.name}: should be True or False, got {short_repr(value)}"


# the fields of a batch that each option adds
FIELDS = {
    "reset_position_ids": ["position_ids"],
    "reset_attention_mask": ["attention_mask"],
    "eod_mask_loss": ["label_mask"],
    "create_cu_seqlens": ["cu_seqlens", "max_seqlen"],
}


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """The document fields of a batch; all are off by default.

    Args:
        eos_token_id: the id at the end of each document. None: the dataset's files know the
            boundaries (`Rows.starts`).
        reset_position_ids: position_ids that begin again with each document.
        reset_attention_mask: attention_mask, bool [B, 1, S, S], True = masked, within documents.
        eod_mask_loss: label_mask, False where the label begins another document.
        create_cu_seqlens: cu_seqlens and max_seqlen, for attention over packed sequences.

    Raises:
        ValueError: eos_token_id is not a token id, or a flag neither True nor False.
    """

    eos_token_id: int | None = None
    reset_position_ids: bool = False
    reset_attention_mask: bool = False
    eod_mask_loss: bool = False
    create_cu_seqlens: bool = False

    def __post_init__(self) -> None:
        for problem in flag_problems(self):
            raise ValueError(problem)
        if self.eos_token_id is not None:
            plain = whole_number(self.eos_token_id, "eos_token_id", 0)
            object.__setattr__(self, "eos_token_id", plain)

    @property
    def needs_starts(self) -> bool:
        """Whether the dataset must deliver document starts, because no id marks them."""
        return self.eos_token_id is None and bool(self.field_names)

    @property
    def field_names(self) -> list[str]:
        """The names of the fields asked for."""
        names = []
        for option, fields in FIELDS.items():
            if getattr(self, option):
                names += fields
        return names

    @property
    def within_documents(self) -> list[str]:
        """What stays within a document: "attention", "loss" and "positions", or some of them."""
        bounded = {
            "attention": self.reset_attention_mask or self.create_cu_seqlens,
            "loss": self.eod_mask_loss,
            "positions": self.reset_position_ids,
        }
        return [name for name, is_bounded in bounded.items() if is_bounded]

    def fields(self, rows: Array, starts: Starts | None = None) -> Json:
        """The fields asked for, of rows [B, S + 1]: S inputs, and the labels one token later.

        Raises:
            ValueError: neither `starts`, bool [B, S + 1], nor eos_token_id is given.
        """
        if starts is None:
            if self.eos_token_id is None:
                raise ValueError(
                    "nothing says where documents begin: give eos_token_id, or read from a "
                    "Nanoset whose files have manifests"
                )
            starts = starts_after_eos(rows, self.eos_token_id)
        inputs = starts[:, :-1]
        fields = {}
        if self.reset_position_ids:
            fields["position_ids"] = position_ids(inputs)
        if self.reset_attention_mask:
            fields["attention_mask"] = attention_mask(inputs)
        if self.eod_mask_loss:
            fields["label_mask"] = loss_mask(starts)
        if self.create_cu_seqlens:
            fields["cu_seqlens"], fields["max_seqlen"] = cu_seqlens(inputs)
        return fields


def require_options(options: Any) -> DocumentOptions:
    """The same options; TypeError unless they are DocumentOptions."""
    if not isinstance(options, DocumentOptions):
        raise TypeError(
            "documents must be DocumentOptions, such as DocumentOptions(eod_mask_loss=True); "
            f"got {options!r:.200}"
        )
    return options


def options_for_rows(
    documents: DocumentOptions | None, dataset: Rows, collate_fn: Any
) -> DocumentOptions | None:
    """A loader's document options, with the mask that padding requires.

    Raises:
        TypeError: other options than DocumentOptions.
        ValueError: both options and a collate_fn, or a file whose boundaries are not known.
    """
    if documents is not None:
        require_options(documents)
        if collate_fn is not None:
            raise ValueError(
                "documents is an option of DataCollatorForCLM: give it to your collate_fn instead"
            )
    if dataset.padded and collate_fn is None:
        documents = dataclasses.replace(
            documents or DocumentOptions(), eos_token_id=None, eod_mask_loss=True
        )
    if documents is not None and documents.needs_starts:
        dataset.starts(NO_POSITIONS)  # raises now if boundaries are unknown
    return documents
