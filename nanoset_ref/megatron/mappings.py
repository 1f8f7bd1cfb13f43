"""The three mappings of a Megatron-style dataset: document index, sample index, shuffle index.

The sequences of a split are repeated for E epochs and shuffled; read one after another they are a stream of E*T tokens;
the stream is cut every S tokens; the samples are shuffled again. Each step is one array:

    document index   int32 [E*n]       place i in the stream -> sequence
    sample index     int [N + 1, 2]    sample j -> (i, offset) where it begins
    shuffle index    uint32 [N]        position k in the run -> sample j

    lengths [5, 2, 4], one epoch, S = 3:   [2, 0, 1]   [[0, 0], [0, 3], [1, 2], [2, 0]]   [1, 2, 0]

A sample holds S + 1 tokens (its last is its right neighbour's first), so sample j ends *with* the token at which sample
j + 1 begins.

Building costs one pass over documents and samples and two shuffles; it keeps 4 bytes per document and epoch and 12 per
sample.

Source: NVIDIA Megatron-LM, megatron/core/datasets/gpt_dataset.py and helpers.cpp (core_v0.16.1), defects included: its
documentation counts *documents* for E, its code tokens; "documents" are sequences throughout; the number of samples
with a kept partial one is computed in float32.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nanoset_ref.orders.random_state import ShuffleStream

FINAL_EPOCH_THRESHOLD = 0.80


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """How many epochs a split is read, and whether the last one is shuffled apart.

    Args:
        num_samples: N, samples in the dataset: at least those requested.
        num_epochs: E, the fewest epochs whose tokens suffice.
        separate_final_epoch: less than 80% of the last epoch is needed: its documents come after all others, so that
            whoever stops at the number of samples requested has read the first E - 1 epochs completely.
        num_samples_before_final_epoch: samples that the first E - 1 epochs fill; N if the last one is not apart.
    """

    num_samples: int
    num_epochs: int
    separate_final_epoch: bool
    num_samples_before_final_epoch: int


def plan_epochs(
    tokens_per_epoch: int,
    num_samples: int | None,
    sequence_length: int,
    *,
    extra_token: bool = True,
    drop_last_partial: bool = True,
) -> EpochPlan:
    """Count epochs and samples.

    1. E = ceil((num_samples*S + 1) / T), at least 1; num_samples None asks for one epoch.
    2. N = (E*T - 1) // S; with the last partial sample kept, float32 ceil((E*T - 1) / S).
    3. The first E - 1 epochs fill ((E - 1)*T - 1) // S samples; if fewer than int(0.80 * samples per epoch) are wanted
       beyond them, the last epoch is apart.

    Args:
        tokens_per_epoch: T, tokens in the split.
        num_samples: samples requested, or None.
        sequence_length: S, in tokens.
        extra_token: whether samples have S + 1 tokens; if not, the 1 in the formulas is 0.
        drop_last_partial: whether a last, shorter sample is left out.

    Raises:
        ValueError: samples are requested of a split without tokens (upstream counts epochs forever).
    """
    extra = int(extra_token)
    # 1.
    wanted = 0 if num_samples is None else num_samples * sequence_length + extra
    if wanted > 0 and tokens_per_epoch == 0:
        raise ValueError(f"{num_samples} samples cannot be drawn from no tokens, in however many epochs")
    epochs = max(1, -(-wanted // max(1, tokens_per_epoch)))
    # 2.
    inputs = max(0, epochs * tokens_per_epoch - extra)
    samples = inputs // sequence_length
    if not drop_last_partial:
        samples = int(np.ceil(np.float32(inputs) / np.float32(sequence_length)))
    # 3.
    if num_samples is not None and epochs > 1:
        before = (inputs - tokens_per_epoch) // sequence_length
        per_epoch = (tokens_per_epoch - extra) // sequence_length
        if num_samples - before < int(FINAL_EPOCH_THRESHOLD * per_epoch):
            return EpochPlan(samples, epochs, True, before)
    return EpochPlan(samples, epochs, False, samples)


def build_mappings(
    sequence_lengths: NDArray[np.int32],
    first: int,
    stop: int,
    plan: EpochPlan,
    sequence_length: int,
    random_seed: int,
    *,
    extra_token: bool = True,
) -> dict[str, NDArray[Any]]:
    """Build all three for the sequences first:stop of a corpus.

    One RandomState(random_seed) shuffles, in this order:

    1. the documents of the first epochs, then those of the last one if it is apart
    2. the samples of the first epochs, then the rest, likewise

    Returns:
        {"document_index": int32 [E*n], "sample_index": int32 or int64 [N + 1, 2], "shuffle_index": uint32 or int64 [N]}

    Raises:
        ValueError: more sequences than an int32 can number.
    """
    if stop > np.iinfo(np.int32).max:
        raise ValueError(f"the document index numbers sequences in int32, got a corpus of over {stop}: split it")
    stream = ShuffleStream(random_seed)
    # 1.
    documents = np.tile(np.arange(first, stop, dtype=np.int32), plan.num_epochs)
    apart = len(documents) - (stop - first) * plan.separate_final_epoch
    stream.shuffle(documents[:apart])
    stream.shuffle(documents[apart:])
    # 2.
    dtype = np.uint32 if plan.num_samples < np.iinfo(np.uint32).max - 1 else np.int64
    samples = np.arange(plan.num_samples, dtype=dtype)
    stream.shuffle(samples[: plan.num_samples_before_final_epoch])
    stream.shuffle(samples[plan.num_samples_before_final_epoch :])
    cuts = build_sample_index(sequence_lengths, documents, plan.num_samples, sequence_length, extra_token=extra_token)
    return {"document_index": documents, "sample_index": cuts, "shuffle_index": samples}


def build_sample_index(
    sequence_lengths: NDArray[np.int32],
    document_index: NDArray[np.int32],
    num_samples: int,
    sequence_length: int,
    *,
    extra_token: bool = True,
) -> NDArray[Any]:
    """Cut the stream of `document_index` every S tokens.

    Args:
        sequence_lengths: int32 [sequences of the corpus], in tokens. document_index: int32 [E*n].
        num_samples: N, how many samples to cut. sequence_length: S. extra_token: whether samples have S + 1 tokens.

    Returns:
        [N + 1, 2] of (position in document_index, token offset in that sequence); int64 where a position needs it, else
        int32.
    """
    dtype = np.int32 if len(document_index) <= np.iinfo(np.int32).max else np.int64
    index = np.zeros((num_samples + 1, 2), dtype=dtype)
    _cut_stream(sequence_lengths, document_index, sequence_length, int(extra_token), index)
    return index


@njit(cache=True, nogil=True)
def _cut_stream(lengths, document_index, sequence_length, extra, index):
    """Row j >= 1 follows from the stream position of the last token of sample j - 1, which is j*S + extra - 1."""
    row = 1
    last_token = sequence_length + extra - 1
    begin = 0  # stream position of the document's first token
    for i in range(len(document_index)):
        end = begin + lengths[document_index[i]]
        while row < len(index) and last_token < end:
            index[row, 0] = i
            index[row, 1] = last_token - begin + 1 - extra
            row += 1
            last_token += sequence_length
        if row == len(index):
            return
        begin = end
    for rest in range(row, len(index)):  # a kept partial sample ends where the stream does
        index[rest, 0] = len(document_index) - 1
        index[rest, 1] = lengths[document_index[-1]] - extra
