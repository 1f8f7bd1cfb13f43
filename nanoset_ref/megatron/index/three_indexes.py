"""The three indexes of a Megatron-style dataset (document, sample, shuffle index), and a blend.

The sequences of a split are repeated for E epochs and shuffled. Read one after another they form a
stream of E*T tokens, which is cut every S tokens. Then the samples are shuffled. Each step is one
array:

    document index   int32 [E*n]       place i in the stream -> sequence
    sample index     int [N + 1, 2]    sample j -> (i, offset) of its first token
    shuffle index    uint32 [N]        position k in the run -> sample j

    lengths [5, 2, 4], one epoch, S = 3:   [2, 0, 1]   [[0, 0], [0, 3], [1, 2], [2, 0]]   [1, 2, 0]

A sample holds S + 1 tokens: the last token of sample j is the first token of sample j + 1.

Building takes one pass over documents and samples and two shuffles. The result has 4 bytes per
document and epoch, and 12 per sample.

A blend has two arrays: the dataset and its sample at each position. Position t goes to the dataset
that is furthest behind its share, with the largest weight * max(t, 1) - samples taken. In a tie the
first dataset wins. Building takes one comparison per dataset and position; the result has 10 bytes
per position.

Source: NVIDIA Megatron-LM, megatron/core/datasets/gpt_dataset.py and helpers.cpp (core_v0.16.1). We
follow its code, defects included. Its documentation says that E counts *documents*; its code counts
tokens. Its "documents" are sequences. If the partial sample is kept, the number of samples is
computed in float32.
"""

import dataclasses

import numpy as np

from nanoset_ref.io.njit import njit
from nanoset_ref.io.types import Array, Int32Array
from nanoset_ref.orders.greedy_blend import furthest_behind
from nanoset_ref.orders.mt19937 import shuffle


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The number of epochs of a split, and whether the last one is shuffled separately.

    Attributes:
        num_samples: N, samples in the dataset, at least the number requested.
        num_epochs: E, the fewest epochs with enough tokens.
        separate_final_epoch: whether the documents of the last epoch come after all others, because
            less than 80% of it is needed. A run that stops at the number of samples requested has
            then read the first E - 1 epochs completely.
        num_samples_before_final_epoch: samples in the first E - 1 epochs; N if the last one is not
            separate.
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
    separate_final_epoch: bool = True,
) -> EpochPlan:
    """Count epochs and samples.

    1. E = ceil((num_samples*S + 1) / T), at least 1; num_samples None requests one epoch.
    2. N = (E*T - 1) // S; with the last partial sample kept, float32 ceil((E*T - 1) / S).
    3. The first E - 1 epochs have ((E - 1)*T - 1) // S samples. If fewer than
       int(0.80 * samples per epoch) are requested beyond them, the last epoch is separate, unless
       `separate_final_epoch` is False.

    Args:
        tokens_per_epoch: T, tokens in the split.
        num_samples: samples requested, or None.
        sequence_length: S, in tokens.
        extra_token: whether samples have S + 1 tokens; if False, the 1 in the formulas is 0.
        drop_last_partial: whether a last, shorter sample is left out.
        separate_final_epoch: whether the last epoch may be shuffled separately. GPT-NeoX (ea7aefd8,
            May 2026) always shuffles all epochs together, as it did for Pythia (see its
            `_build_doc_idx`).

    Raises:
        ZeroDivisionError: samples are requested of a split without tokens (upstream loops forever).
    """
    extra = int(extra_token)
    # 1. epochs
    tokens_needed = 0
    if num_samples is not None:
        tokens_needed = num_samples * sequence_length + extra
    epochs = 1
    if tokens_needed > 0:
        epochs = -(-tokens_needed // tokens_per_epoch)
    # 2. samples
    inputs = max(0, epochs * tokens_per_epoch - extra)
    samples = inputs // sequence_length
    if not drop_last_partial:
        samples = int(np.ceil(np.float32(inputs) / np.float32(sequence_length)))
    # 3. whether the last epoch is separate
    if num_samples is not None and epochs > 1 and separate_final_epoch:
        before = (inputs - tokens_per_epoch) // sequence_length
        per_epoch = (tokens_per_epoch - extra) // sequence_length
        if num_samples - before < int(0.80 * per_epoch):
            return EpochPlan(samples, epochs, True, before)
    return EpochPlan(samples, epochs, False, samples)


def build_mappings(
    sequence_lengths: Int32Array,
    first: int,
    stop: int,
    plan: EpochPlan,
    sequence_length: int,
    random_seed: int,
    *,
    extra_token: bool = True,
) -> dict[str, Array]:
    """Build the three indexes for the sequences first:stop of a corpus.

    1. Repeat the documents for each epoch. RandomState(random_seed) shuffles the documents of the
       first epochs, then those of the last one if it is separate.
    2. Number the samples. The same random stream shuffles the samples of the first epochs, then the
       rest.
    3. Cut the stream of documents into samples.

    Args:
        sequence_lengths: int32 [sequences of the corpus], in tokens.
        first, stop: the sequences of the split.
        plan: see `plan_epochs`.
        sequence_length: S, in tokens.
        random_seed: seed of both shuffles.
        extra_token: whether samples have S + 1 tokens.

    Returns:
        document_index int32 [E*n], sample_index int32 or int64 [N + 1, 2], and shuffle_index uint32
        or int64 [N], by name.

    Raises:
        ValueError: there are more sequences than int32 can number.
    """
    max_int32 = np.iinfo(np.int32).max
    if stop > max_int32:
        raise ValueError(
            f"the document index numbers sequences in int32, but this split ends at {stop}: "
            "divide the corpus"
        )
    # 1. repeat the documents
    documents = np.tile(np.arange(first, stop, dtype=np.int32), plan.num_epochs)
    documents_before = len(documents)
    if plan.separate_final_epoch:
        documents_before -= stop - first
    # 2. number the samples, and shuffle both
    dtype = np.uint32 if plan.num_samples < np.iinfo(np.uint32).max - 1 else np.int64
    samples = np.arange(plan.num_samples, dtype=dtype)
    samples_before = plan.num_samples_before_final_epoch
    shuffle(
        random_seed,
        documents[:documents_before],
        documents[documents_before:],
        samples[:samples_before],
        samples[samples_before:],
    )
    # 3. cut the stream
    place_dtype = np.int32 if len(documents) <= max_int32 else np.int64
    cuts = np.zeros((plan.num_samples + 1, 2), dtype=place_dtype)
    _cut_stream(sequence_lengths, documents, sequence_length, int(extra_token), cuts)
    return {"document_index": documents, "sample_index": cuts, "shuffle_index": samples}


@njit(
    work=lambda lengths, document_index, sequence_length, extra, index: (
        3 * (len(document_index) + len(index))
    )
)
def _cut_stream(lengths, document_index, sequence_length, extra, index):
    """Fill the sample index, int [N + 1, 2], whose first row is (0, 0).

    Row j >= 1 follows from the last token of sample j - 1, which is token j*S + extra - 1 of the
    stream.

    Args:
        lengths: int32 [sequences of the corpus], in tokens.
        document_index: int32 [E*n].
        sequence_length: S.
        extra: 1 if samples have S + 1 tokens, else 0.
        index: the output.
    """
    row = 1
    last_token = sequence_length + extra - 1
    start = 0  # stream position of the document's first token
    for i in range(len(document_index)):
        # an int32 of NumPy would wrap around
        stop = start + int(lengths[document_index[i]])
        while row < len(index) and last_token < stop:
            index[row, 0] = i
            index[row, 1] = last_token - start + 1 - extra
            row += 1
            last_token += sequence_length
        start = stop
    # a kept partial sample ends where the stream does
    for rest in range(row, len(index)):
        index[rest, 0] = len(document_index) - 1
        index[rest, 1] = lengths[document_index[-1]] - extra


@njit(work=lambda weights, limits, size: size * (4 + 2 * len(weights)))
def blend_samples(weights, limits, size):
    """Build a blend of `size` positions in proportion to `weights`.

    Args:
        weights: float64 [number of datasets], with sum 1.
        limits: int64 [number of datasets], the maximum of samples from each.
        size: positions.

    Returns:
        (dataset index, int16 [size]; dataset sample index, int64 [size]). Samples of a dataset come
        in order and do not wrap around.
    """
    taken = np.zeros(len(weights), dtype=np.int64)
    dataset_index = np.empty(size, dtype=np.int16)
    dataset_sample_index = np.empty(size, dtype=np.int64)
    for t in range(size):
        winner = furthest_behind(weights, taken, limits, t)
        dataset_index[t] = winner
        dataset_sample_index[t] = taken[winner]
        taken[winner] += 1
    return dataset_index, dataset_sample_index
