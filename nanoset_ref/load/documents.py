"""Documents within rows of tokens: where they begin, and what a model wants to know about that.

Everything follows from one array, `starts`: bool [B, W], True where a token is the first of its document, always True
in column 0. It comes from the tokens (what follows an EOS id begins a document) or from known boundaries (a manifest's
document offsets); the second works without separators and is not fooled by an EOS within a document. A few
compiled passes over the batch, no loop over documents.

    tokens      a b E c d     E = EOS
    starts      1 0 0 1 0
    positions   0 1 2 0 1
    loss        1 1 0 1       what E predicts is the first token of another document
    cu_seqlens  0 3 5         max_seqlen 3

Source: NVIDIA Megatron-LM's reset_position_ids, reset_attention_mask, eod_mask_loss; cu_seqlens and max_seqlen as in
FlashAttention's varlen interface.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.kernels import njit
from nanoset_ref.io.options import refuses_unknown

Starts = NDArray[np.bool_]


def starts_after_eos(rows: NDArray[Any], eos_id: int) -> Starts:
    """Documents begin after each EOS id: bool [B, W] of integers [B, W]."""
    starts = np.ones(rows.shape, dtype=np.bool_)
    np.equal(rows[:, :-1], eos_id, out=starts[:, 1:])
    return starts


def starts_at_boundaries(
    document_offsets: NDArray[np.int64], begins: NDArray[np.int64], width: int
) -> Starts:
    """Documents begin at known offsets.

    Args:
        document_offsets: int64 [documents + 1], ascending, in tokens of one file (`TokenFile.document_offsets`).
        begins: int64 [B], the file offset of each row's first token.
        width: W, tokens per row.

    Returns:
        bool [B, W]; empty documents do not show.

    Raises:
        ValueError: the offsets do not ascend where they are needed.
    """
    begins = np.asarray(begins, dtype=np.int64)
    starts = np.zeros((len(begins), width), dtype=np.bool_)
    starts[:, 0] = True
    low, high = (
        np.searchsorted(document_offsets, begins),
        np.searchsorted(document_offsets, begins + width),
    )
    counts = high - low
    rows = np.repeat(np.arange(len(begins)), counts)
    boundaries = (
        np.arange(counts.sum())
        - np.repeat(np.cumsum(counts) - counts, counts)
        + np.repeat(low, counts)
    )
    columns = document_offsets[boundaries] - begins[rows]
    if ((columns < 0) | (columns >= width)).any():
        raise ValueError(
            "document boundaries do not ascend: their file is damaged, write the token file again"
        )
    starts[rows, columns] = True
    return starts


@njit(cache=True, nogil=True, work=lambda starts: starts.size)
def position_ids(starts: Starts) -> NDArray[np.int64]:
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


def loss_mask(starts: Starts) -> NDArray[np.bool_]:
    """bool [B, W - 1] for inputs rows[:, :-1]: True where the label, the next token, is of the input's document."""
    return ~starts[:, 1:]


def cu_seqlens(starts: Starts) -> tuple[NDArray[np.int32], int]:
    """The rows laid end to end as one packed sequence of B*W tokens: where each document begins, and the end, int32
    [documents + 1]; and the longest.
    """
    edges = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
    return edges, int(np.diff(edges).max(initial=0))


def attention_mask(starts: Starts) -> NDArray[np.bool_]:
    """bool [B, 1, W, W], True where query (third axis) must not see key (fourth): later tokens, and other documents. W
    bytes per token.
    """
    document = np.cumsum(starts, axis=1)
    return (
        (document[:, :, None] != document[:, None, :]) | ~np.tri(starts.shape[1], dtype=np.bool_)
    )[:, None]


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """What a batch is to say about documents; everything is off unless asked for.

    Args:
        eod_id: documents end with this id. None: they end where the dataset's files say (`Rows.starts`).
        reset_position_ids: position_ids that begin again with each document.
        reset_attention_mask: attention_mask, bool [B, 1, S, S], True = masked, within documents.
        eod_mask_loss: label_mask, False where the label begins another document than its input's.
        create_cu_seqlens: cu_seqlens and max_seqlen, for attention over packed sequences.
    """

    eod_id: int | None = None
    reset_position_ids: bool = False
    reset_attention_mask: bool = False
    eod_mask_loss: bool = False
    create_cu_seqlens: bool = False

    @property
    def needs_starts(self) -> bool:
        """Whether document starts must come with the rows, as no id marks them."""
        return self.eod_id is None and bool(self.names)

    @property
    def names(self) -> list[str]:
        """The names of the fields asked for."""
        two_tokens = np.ones((1, 2), dtype=np.bool_)
        return list(self.fields(two_tokens, two_tokens))

    def fields(self, rows: NDArray[Any], starts: Starts | None = None) -> dict[str, Any]:
        """The fields asked for, of rows [B, S + 1] whose first S tokens are inputs and whose last S are labels.

        Raises:
            ValueError: neither `starts`, bool [B, S + 1], nor eod_id is given.
        """
        if starts is None:
            if self.eod_id is None:
                way = "give eod_id, or read from a Nanoset whose files have manifests"
                raise ValueError(f"nothing says where documents begin: {way}")
            starts = starts_after_eos(rows, self.eod_id)
        inputs = starts[:, :-1]
        found: dict[str, Any] = {}
        if self.reset_position_ids:
            found["position_ids"] = position_ids(inputs)
        if self.reset_attention_mask:
            found["attention_mask"] = attention_mask(inputs)
        if self.eod_mask_loss:
            found["label_mask"] = loss_mask(starts)
        if self.create_cu_seqlens:
            found["cu_seqlens"], found["max_seqlen"] = cu_seqlens(inputs)
        return found
