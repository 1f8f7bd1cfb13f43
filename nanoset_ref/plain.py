"""The whole pipeline on one page: slow, obvious and complete, with NumPy and the standard library.

A run is a sequence of positions. An order names the sample at each position, rows are read from
the token files, a schedule assigns positions to ranks, and a collator turns rows into model inputs.
Each of these is a few short functions below, with a worked example. The rest of the package does
the same things fast and safely, and its tests compare it with this page. Where it follows others,
it follows the Nanosets of 2024 (2e36d6f), Megatron-Core 0.16.1 (2026) and datatrove 0.10.

    1. files       token ids on disk, and the samples in them
    2. order       position k -> (source, sample)
    3. rows        (source, sample) -> S + 1 token ids
    4. schedule    the positions of each rank, and where a stopped run continues
    5. collator    rows -> inputs, labels, masks

That is the default pipeline. The other chapters can be read in any order, or not at all:

    6. Megatron    steps 1 to 3 as Megatron-LM does them
    7. streams     lines that are tokenized while the model trains
    8. chunks      documents packed into rows, and rows distributed over files
    9. no index    orders that compute the sample at a position instead of storing it

S is `sequence_length`, in tokens. A source is one token file of the blend; Nanotron calls it a
dataset. Here is the whole pipeline, for rank 1 of 2 and its second micro-batch of two rows:

>>> files = [np.arange(33), np.arange(100, 117)]                    # two token files
>>> lengths = [count_samples(len(tokens), 4) for tokens in files]   # S = 4: 8 and 4 samples
>>> epoch = nanotron_order(lengths, None, seed=1234)
>>> left = positions_left(num_samples=12, consumed_train_samples=0, dp_size=2, micro_batch_size=2)
>>> positions = micro_batches_of_rank(left, dp_rank=1, dp_size=2, micro_batch_size=2)[1]
>>> positions
[5, 7]
>>> pairs = [nanotron_at(k, epoch) for k in positions]              # (source, sample)
>>> pairs
[(1, 3), (0, 0)]
>>> rows = read_rows(files, pairs, 4)
>>> rows
array([[112, 113, 114, 115, 116],
       [  0,   1,   2,   3,   4]], dtype=int32)
>>> collate(rows)["label_ids"]
array([[113, 114, 115, 116],
       [  1,   2,   3,   4]], dtype=int32)
"""

import bisect
import heapq
import itertools
import math

import numpy as np

# ---- 1. files: token ids on disk, and the samples in them


def write_tokens(path, documents, dtype="<u2"):
    """Write documents one after another as raw ids, without a header.

    Returns the offset of each document, and the end of the last one, in tokens.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/tiny_input_ids.npy"
    ...     offsets = write_tokens(path, [[5, 6, 7], [8, 9]])
    ...     ids = read_tokens(path).tolist()
    ...     raw = np.fromfile(path, "u1").tobytes()
    >>> offsets, ids, raw.hex(" ", 2)
    (array([0, 3, 5]), [5, 6, 7, 8, 9], '0500 0600 0700 0800 0900')
    """
    ids = np.concatenate(documents)
    ids.astype(dtype).tofile(path)
    lengths = [len(document) for document in documents]
    return np.cumsum([0, *lengths])


def read_tokens(path, dtype="<u2"):
    """Map the ids of a file into memory; the system reads a page of them when it is accessed."""
    return np.memmap(path, dtype, mode="r")


def count_samples(num_tokens, sequence_length, disjoint=False):
    """Samples of S + 1 tokens in a file.

    Neighboring samples overlap by one token: the last label of one is the first input of the next.
    Disjoint samples do not. 9 tokens and S = 4 make the samples 01234 and 45678; disjoint, 01234
    and a rest.

    >>> count_samples(9, 4), count_samples(9, 4, disjoint=True)
    (2, 1)
    """
    stride = sequence_length
    overlap = 1
    if disjoint:
        stride = sequence_length + 1
        overlap = 0
    return (num_tokens - overlap) // stride


# ---- 2. order: position k -> (source, sample)


def normalize(weights):
    """Divide by the sum, in float64.

    >>> normalize([10, 50, 30, 10])
    array([0.1, 0.5, 0.3, 0.1])
    """
    weights = np.array(weights, dtype=np.float64)
    return weights / weights.sum()


def greedy_blend(weights, size, limits=np.inf):
    """At each position, take the next sample of the source that lags most behind its share.

    The first source wins a tie. A source from which `limits` samples were taken is exhausted.
    Returns `size` pairs (source, sample).

    >>> greedy_blend(normalize([5, 3, 2]), 6).T
    array([[0, 1, 2, 0, 1, 0],
           [0, 0, 0, 1, 1, 2]])
    """
    taken = np.zeros(len(weights), dtype=np.int64)
    order = np.zeros((size, 2), dtype=np.int64)
    for k in range(size):
        lag = weights * max(k, 1) - taken
        lag[taken >= limits] = -np.inf
        source = np.argmax(lag)
        order[k] = source, taken[source]
        taken[source] += 1
    return order


def nanotron_order(lengths, weights, seed):
    """One epoch of Nanotron's order: sum(lengths) pairs (source, sample).

    1. Normalize the weights (None: the lengths), and blend the sources greedily.
    2. A source with too few samples starts over.
    3. Shuffle the epoch.

    Lengths 3 and 2 give 00 10 01 11 02 before the shuffle, and after it:

    >>> nanotron_order([3, 2], None, seed=0).T
    array([[0, 0, 1, 1, 0],
           [1, 0, 0, 1, 2]])
    """
    lengths = np.array(lengths)
    if weights is None:
        weights = lengths
    order = greedy_blend(normalize(weights), lengths.sum())
    order[:, 1] %= lengths[order[:, 0]]
    np.random.RandomState(seed).shuffle(order)
    return order


def nanotron_at(k, epoch):
    """The pair at position k. Every epoch is the same.

    >>> nanotron_at(6, nanotron_order([3, 2], None, seed=0))
    (0, 0)
    """
    pair = epoch[k % len(epoch)]
    return tuple(pair.tolist())


# ---- 3. rows: (source, sample) -> S + 1 token ids


def read_sample(tokens, sample, sequence_length, disjoint=False):
    """S + 1 ids: the first S will be the inputs, the last S the labels.

    >>> read_sample(np.arange(10, 30), 1, 4)
    array([14, 15, 16, 17, 18], dtype=int32)
    >>> read_sample(np.arange(10, 30), 1, 4, disjoint=True)
    array([15, 16, 17, 18, 19], dtype=int32)
    """
    stride = sequence_length
    if disjoint:
        stride = sequence_length + 1
    start = sample * stride
    end = start + sequence_length + 1
    return tokens[start:end].astype(np.int32)


def read_rows(files, pairs, sequence_length):
    """One row for each (source, sample).

    >>> read_rows([np.arange(9), np.arange(50, 59)], [(1, 0), (0, 1)], 4).tolist()
    [[50, 51, 52, 53, 54], [4, 5, 6, 7, 8]]
    """
    rows = []
    for source, sample in pairs:
        row = read_sample(files[source], sample, sequence_length)
        rows.append(row)
    return np.stack(rows)


# ---- 4. schedule: the positions of each rank, and where a stopped run continues


def positions_left(
    num_samples, consumed_train_samples, dp_size, micro_batch_size, tail="drop"
):
    """The positions that are left in an epoch after all ranks together consumed some samples.

    The global count `consumed_train_samples` is all a resume needs, even if the number of ranks
    changes. Positions that do not fill a last micro-batch on every rank are dropped, or filled up
    from the beginning of the epoch: to a multiple of dp_size ("pad"), or to a full micro-batch on
    every rank ("loop").

    >>> positions_left(11, 6, 2, 2)
    [6, 7, 8, 9]
    >>> positions_left(11, 6, 2, 2, "pad")
    [6, 7, 8, 9, 10, 0]
    >>> positions_left(11, 6, 2, 2, "loop")
    [6, 7, 8, 9, 10, 0, 1, 2]
    """
    left = list(range(consumed_train_samples % num_samples, num_samples))
    samples_per_micro_step = dp_size * micro_batch_size  # of all ranks together
    if tail == "drop":
        full = len(left) - len(left) % samples_per_micro_step
        return left[:full]
    multiple = dp_size if tail == "pad" else samples_per_micro_step
    padded = -len(left) % multiple
    for k in range(padded):
        left.append(k % num_samples)
    return left


def micro_batches_of_rank(
    positions, dp_rank, dp_size, micro_batch_size, layout="strided"
):
    """The micro-batches of one data-parallel rank, each a list of positions.

    >>> micro_batches_of_rank(range(8), 0, 2, 2), micro_batches_of_rank(range(8), 1, 2, 2)
    ([[0, 2], [4, 6]], [[1, 3], [5, 7]])
    >>> micro_batches_of_rank(range(8), 0, 2, 2, "contiguous")
    [[0, 1], [4, 5]]
    >>> micro_batches_of_rank(range(8), 1, 2, 2, "contiguous")
    [[2, 3], [6, 7]]
    """
    samples_per_micro_step = dp_size * micro_batch_size
    micro_batches = []
    for start in range(0, len(positions), samples_per_micro_step):
        shared = list(positions[start : start + samples_per_micro_step])
        if layout == "strided":
            micro_batch = shared[dp_rank::dp_size]
        else:
            rows = len(shared) // dp_size
            first = dp_rank * rows
            micro_batch = shared[first : first + rows]
        micro_batches.append(micro_batch)
    return micro_batches


def slot(
    position,
    dp_size,
    micro_batch_size,
    batch_accumulation_per_replica=1,
    layout="strided",
):
    """The inverse: the (step, micro_batch, dp_rank, row) that reads a position.

    `batch_accumulation_per_replica` micro-batches, one after another, make an optimizer step.
    Steps count from 1; micro-batches, ranks and rows from 0; positions from the first one of this
    layout.

    >>> slot(7, 2, 2, batch_accumulation_per_replica=2)
    (1, 1, 1, 1)
    >>> slot(7, 2, 2, batch_accumulation_per_replica=2, layout="contiguous")
    (1, 1, 1, 1)
    >>> slot(9, 2, 2), slot(9, 2, 2, layout="contiguous")
    ((3, 0, 1, 0), (3, 0, 0, 1))
    """
    micro_batches, offset = divmod(position, dp_size * micro_batch_size)
    steps, micro_batch = divmod(micro_batches, batch_accumulation_per_replica)
    if layout == "strided":
        row, dp_rank = divmod(offset, dp_size)
    else:
        dp_rank, row = divmod(offset, micro_batch_size)
    return 1 + steps, micro_batch, dp_rank, row


# ---- 5. collator: rows -> inputs, labels, masks


def collate(rows, current_pp_rank=0, input_pp_rank=0, output_pp_rank=0):
    """The batch of one pipeline rank; ("pointer", r) stands for a field that only rank r holds.

    >>> batch = collate(np.array([[7, 8, 9]]), output_pp_rank=3)
    >>> for name, value in batch.items(): print(name, value)
    input_ids [[7 8]]
    input_mask [[ True  True]]
    label_ids ('pointer', 3)
    label_mask ('pointer', 3)
    """
    inputs = rows[:, :-1]
    labels = rows[:, 1:]
    mask = np.ones(inputs.shape, dtype=bool)
    fields = {
        "input_ids": (input_pp_rank, inputs),
        "input_mask": (input_pp_rank, mask),
        "label_ids": (output_pp_rank, labels),
        "label_mask": (output_pp_rank, mask),
    }
    batch = {}
    for name, (owner, value) in fields.items():
        if owner == current_pp_rank:
            batch[name] = value
        else:
            batch[name] = ("pointer", owner)
    return batch


def starts_after_eos(row, eos_token_id):
    """True where a document begins in a row, when every document ends with the id `eos_token_id`.

    The first token of a row always counts as a start.

    >>> starts_after_eos(np.array([7, 8, 2, 5, 6]), eos_token_id=2).astype(int)
    array([1, 0, 0, 1, 0])
    """
    is_eos = row[:-1] == eos_token_id
    return np.append(True, is_eos)


def document_fields(starts):
    """Position ids, masks and sequence offsets of the documents in one row, from their starts.

    >>> fields = document_fields(np.array([1, 0, 0, 1, 0]))
    >>> for name, value in fields.items(): print(name, value.astype(int))
    position_ids [0 1 2 0 1]
    label_mask [1 1 0 1]
    attention_mask [[0 1 1 1 1]
     [0 0 1 1 1]
     [0 0 0 1 1]
     [1 1 1 0 1]
     [1 1 1 0 0]]
    cu_seqlens [0 3 5]
    """
    places = np.arange(len(starts))
    document = np.cumsum(starts)  # 1 1 1 2 2
    first_place = np.maximum.accumulate(places * starts)  # 0 0 0 3 3
    is_other_document = document[:, None] != document
    is_later = places[:, None] < places
    in_document = document[1:] == document[:-1]  # False: the label begins another
    offsets = np.flatnonzero(starts)
    return {
        "position_ids": places - first_place,
        "label_mask": in_document,
        "attention_mask": is_other_document | is_later,  # True: masked
        "cu_seqlens": np.append(offsets, len(starts)),
    }


# ---- 6. Megatron: steps 1 to 3 as Megatron-LM does them


def read_megatron(prefix):
    """The sequences of a .bin/.idx pair, each an array of ids.

    The .bin file holds the ids, one sequence after another. The .idx file, by byte:

         0  "MMIDIDX", two zero bytes and the version, 1, in 8 bytes
        17  the code of the dtype, 1 byte: 8 is uint16
        18  N, the number of sequences, 8 bytes; then the number of document ends, 8 bytes
        34  N lengths in tokens, 4 bytes each; then the offsets of sequences and documents
    """
    with open(f"{prefix}.idx", "rb") as file:
        index = file.read()
    dtypes = "u1 i1 i2 i4 i8 f8 f4 u2".split()
    dtype = dtypes[index[17] - 1]
    num_sequences = int.from_bytes(index[18:26], "little")
    lengths = np.frombuffer(index, "<i4", num_sequences, offset=34)
    ends = np.cumsum(lengths)
    ids = np.fromfile(f"{prefix}.bin", dtype)
    return np.split(ids, ends[:-1])


def split_corpus(split, num_sequences):
    """For train, valid and test, the first sequence and the one after the last.

    >>> split_corpus("90,8,2", 62)
    [(0, 56), (56, 61), (61, 62)]
    """
    sizes = [float(size) for size in split.split(",")]
    shares = normalize(sizes)
    ends = np.cumsum([0, *shares])
    bounds = [round(end * num_sequences) for end in ends.tolist()]
    return list(itertools.pairwise(bounds))


def megatron_epochs(
    num_tokens, num_samples, sequence_length, extra=1, keep_partial=False
):
    """(epochs, samples in all of them, samples before a final epoch that is shuffled separately).

    Takes the fewest epochs that hold `num_samples` (None: one epoch). If less than 80% of the last
    epoch is needed, its samples are shuffled separately, so that a run of `num_samples` reads the
    earlier epochs completely.

    1,001 tokens make 100 samples of S = 10. Two epochs are shuffled together to give 180 samples,
    and separately to give 179:

    >>> megatron_epochs(1001, 180, 10), megatron_epochs(1001, 179, 10)
    ((2, 200, 200), (2, 200, 100))
    """
    num_epochs = 1
    if num_samples is not None:
        wanted = num_samples * sequence_length + extra
        while num_epochs * num_tokens < wanted:
            num_epochs += 1
    # a sample needs the token after it
    inputs = max(0, num_epochs * num_tokens - extra)
    samples = inputs // sequence_length
    if keep_partial:  # a shorter last sample; upstream divides in float32
        exact = np.float32(inputs) / np.float32(sequence_length)
        samples = math.ceil(exact)
    if num_epochs > 1:
        before_final = (inputs - num_tokens) // sequence_length
        per_epoch = (num_tokens - extra) // sequence_length
        if num_samples - before_final < int(0.80 * per_epoch):
            return num_epochs, samples, before_final
    return num_epochs, samples, samples


def megatron_sample_index(
    lengths, document_index, num_samples, sequence_length, extra=1
):
    """Cut the documents, read one after another, every S tokens: where does sample j begin?

    Row j is (place in `document_index`, token in that document). Row j + 1 also marks the end of
    sample j: its token is the last one of sample j and the first one of sample j + 1.

    The documents here are 4, 5 and 2 tokens long:  a b c d | e f g h i | j k

    >>> megatron_sample_index([5, 2, 4], [2, 0, 1], 3, 3)
    [(0, 0), (0, 3), (1, 2), (2, 0)]
    """
    stream = []
    for place, document in enumerate(document_index):
        for token in range(lengths[document]):
            stream.append((place, token))
    sample_index = [(0, 0)]
    for j in range(1, num_samples + 1):
        end = min(j * sequence_length + extra, len(stream))
        place, token = stream[end - 1]  # the last token of sample j - 1
        sample_index.append((place, token + 1 - extra))
    return sample_index


def megatron_indexes(lengths, split, plan, sequence_length, seed, extra=1):
    """Megatron's document, sample and shuffle index of a split, from `megatron_epochs`' plan.

    The split is (first sequence, stop).

    >>> megatron_indexes([5, 2, 4], (0, 3), (1, 3, 3), 3, seed=2)
    (array([2, 1, 0]), [(0, 0), (0, 3), (2, 0), (2, 3)], array([2, 0, 1]))
    """
    num_epochs, num_samples, samples_before = plan
    document_index = np.tile(np.arange(*split), num_epochs)
    documents_before = len(document_index)
    if samples_before != num_samples:  # the final epoch is shuffled alone
        documents_before = len(document_index) * (num_epochs - 1) // num_epochs
    shuffle_index = np.arange(num_samples)
    rng = np.random.RandomState(seed)
    rng.shuffle(document_index[:documents_before])
    rng.shuffle(document_index[documents_before:])
    rng.shuffle(shuffle_index[:samples_before])
    rng.shuffle(shuffle_index[samples_before:])
    sample_index = megatron_sample_index(
        lengths, document_index, num_samples, sequence_length, extra
    )
    return document_index, sample_index, shuffle_index


def megatron_spans(k, lengths, indexes, extra=1):
    """The parts of the sample at position k: (sequence, first token, end) for each.

    The sample here is  d | e f g

    >>> indexes = [2, 0, 1], [(0, 0), (0, 3), (1, 2), (2, 0)], [1, 2, 0]
    >>> megatron_spans(0, [5, 2, 4], indexes)
    [(2, 3, 4), (0, 0, 3)]
    """
    document_index, sample_index, shuffle_index = indexes
    sample = shuffle_index[k]
    first, first_token = sample_index[sample]
    last, last_token = sample_index[sample + 1]
    spans = []
    for place in range(first, last + 1):
        sequence = document_index[place]
        start = first_token if place == first else 0
        stop = last_token + extra if place == last else lengths[sequence]
        spans.append((sequence, start, stop))
    return spans


def read_spans(sequences, spans):
    """The tokens of a sample.

    >>> read_spans([[5, 6, 7, 8, 9], [], [1, 2, 3, 4]], [(2, 3, 4), (0, 0, 3)])
    array([4, 5, 6, 7])
    """
    parts = []
    for sequence, start, stop in spans:
        ids = sequences[sequence]
        parts.append(ids[start:stop])
    return np.concatenate(parts)


def blend_targets(weights, size, surplus=0.005):
    """How many samples a weighted blend takes of each corpus, and how many are built for it.

    More are built, to cover the rounding. The blend is
    `greedy_blend(normalize(weights), sum(taken))`.

    >>> blend_targets([3, 7], 1001)
    ([301, 701], [303, 705])
    """
    taken = [math.ceil(size * share) for share in normalize(weights)]
    built = [math.ceil(count * (1 + surplus)) for count in taken]
    return taken, built


def blend_everything(sizes):
    """The blend without weights: every sample of every corpus once, in proportion to the sizes.

    >>> blend_everything([4, 2]).T
    array([[0, 1, 0, 0, 1, 0],
           [0, 0, 1, 2, 1, 3]])
    """
    return greedy_blend(normalize(sizes), sum(sizes), limits=sizes)


# ---- 7. streams: lines that are tokenized while the model trains


def stripe(lines, dp_rank, dp_size, worker=0, num_workers=1):
    """The lines of one DataLoader worker of one rank.

    The last few lines are dropped, so that all ranks get the same number.

    >>> [stripe(range(11), 0, 2, worker, 2) for worker in range(2)]
    [[0, 4, 8], [2, 6]]
    >>> [stripe(range(11), 1, 2, worker, 2) for worker in range(2)]
    [[1, 5, 9], [3, 7]]
    """
    lines = list(lines)
    even = len(lines) - len(lines) % dp_size
    of_rank = lines[:even][dp_rank::dp_size]
    return of_rank[worker::num_workers]


def interleave(streams, micro_batch_size):
    """The micro-batches of a DataLoader, from each worker's stream in turn.

    >>> interleave([[0, 4, 8], [2, 6]], 2)
    [[0, 4], [2, 6], [8]]

    After T micro-batches, a resumed run delivers this list from T on, beginning with worker T
    mod N. Skipping lines and striping the rest again would repeat some and lose others.
    """
    longest = max(len(stream) for stream in streams)
    micro_batches = []
    for start in range(0, longest, micro_batch_size):
        for stream in streams:
            if start < len(stream):
                micro_batches.append(stream[start : start + micro_batch_size])
    return micro_batches


# ---- 8. chunks: documents packed into rows, and rows distributed over files


def concatenate(documents, row_length, wrap=True):
    """Rows of exactly `row_length` tokens, and the tail that is too short for a row.

    With wrap, a document continues in the next row. Without, its rest is dropped when a row is
    full.

    >>> concatenate([[1, 2, 3, 4, 5], [6, 7, 8]], 3)
    ([[1, 2, 3], [4, 5, 6]], [7, 8])
    >>> concatenate([[1, 2, 3, 4, 5], [6, 7, 8]], 3, wrap=False)
    ([[1, 2, 3], [6, 7, 8]], [])
    """
    rows = []
    tail: list = []
    for document in documents:
        tail = tail + list(document)
        while len(tail) >= row_length:
            rows.append(tail[:row_length])
            tail = tail[row_length:] if wrap else []
    return rows, tail


def best_fit(lengths, row_length):
    """Rows of whole documents: each row a list of pieces (document, first token, end).

    1. Cut documents that are longer than a row into full rows and a rest.
    2. Place the pieces, longest first, each into the row with the least free space that still
       holds it; of several such rows, into the one that reached this space last.
    3. A piece that fits nowhere starts a new row.

    >>> best_fit([14, 7, 5, 2, 3], 8)
    [[(0, 0, 8)], [(1, 0, 7)], [(0, 8, 14), (3, 0, 2)], [(2, 0, 5), (4, 0, 3)]]
    """
    pieces = []
    for document, length in enumerate(lengths):
        for start in range(0, length, row_length):
            end = min(start + row_length, length)
            pieces.append((document, start, end))
    pieces.sort(key=lambda piece: piece[1] - piece[2])
    rows: list = []
    rows_by_space: dict = {}  # free tokens -> the rows that have as many
    for document, start, end in pieces:
        length = end - start
        spaces = [
            space
            for space, rows_with_it in rows_by_space.items()
            if rows_with_it and space >= length
        ]
        if spaces:
            space = min(spaces)
            row = rows_by_space[space].pop()
        else:
            space = row_length
            row = len(rows)
            rows.append([])
        rows[row].append((document, start, end))
        rows_by_space.setdefault(space - length, []).append(row)
    return rows


def distribute(rows, num_chunks, num_valid, rng):
    """Hold out random validation rows, and distribute the others round robin over the chunks.

    All chunks have the same size. The last few rows are left out.

    >>> import random
    >>> distribute("abcdefghij", num_chunks=3, num_valid=2, rng=random.Random(1))
    (['c', 'e'], [['a', 'f'], ['b', 'g'], ['d', 'h']])
    """
    left_out = (len(rows) - num_valid) % num_chunks
    used = len(rows) - left_out
    held_out = sorted(rng.sample(range(used), num_valid))
    valid = [rows[i] for i in held_out]
    train = []
    for i in range(used):
        if i not in held_out:
            train.append(rows[i])
    chunks = [train[chunk::num_chunks] for chunk in range(num_chunks)]
    return valid, chunks


# ---- 9. no index: orders that compute the sample at a position instead of storing it


def pair_of(instance, lengths):
    """The pair (source, sample) of an instance: published runs number samples file by file.

    Pythia reads instance k at position k. OLMo's `global_indices.npy` lists the instance at each
    position.

    >>> [pair_of(instance, [2, 0, 3]) for instance in range(5)]
    [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    """
    pairs = []
    for source, length in enumerate(lengths):
        for sample in range(length):
            pairs.append((source, sample))
    return pairs[instance]


def stateless_at(k, lengths, weights, seed):
    """The pair (source, sample) at position k of the stateless order.

    1. The window of 64 positions around k: which source does k read, and for the n-th time?
    2. The n-th read of a source is place n mod length of pass n // length.
    3. Each pass is a permutation of the source, with a key of its own.

    Without weights an epoch reads every sample once. With weights there is one endless epoch.

    >>> [stateless_at(k, [3, 2], None, seed=4) for k in range(5)]
    [(1, 1), (0, 1), (0, 2), (1, 0), (0, 0)]
    >>> [stateless_at(k, [3, 2], None, seed=4) for k in range(5, 10)]
    [(1, 0), (0, 2), (0, 0), (0, 1), (1, 1)]
    """
    # 1.
    first, before, sources = window_of(k, lengths, weights, seed)
    source = sources[k - first]
    earlier = sources[: k - first]
    n = before[source] + earlier.count(source)
    # 2.
    pass_number, place = divmod(n, lengths[source])
    # 3.
    key = derive(seed, 1, source, pass_number)
    return source, permute(place, lengths[source], key)


def window_of(position, lengths, weights, seed):
    """The window of a position: (first position, reads of each source before it, its sources).

    1. A tree of shares divides the 64 places of the window among the sources: 2 2 1 1 1 0 0 0 ...
    2. Twelve stages of coin flips shuffle the places, with strides 1, 2, 4, 8, 16, 32 and the same
       again. Each pair of places p and p + stride flips a coin: they swap, or they stay.
    3. The last window of an epoch may be short. Positions that are sent beyond its end are left
       out.

    >>> window_of(70, [50, 20, 10], None, seed=1234)
    (64, {2: 8, 1: 16, 0: 40}, [1, 0, 0, 2, 0, 2, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0])
    """
    epoch = sum(lengths) if weights is None else 2**48
    first = position - position % epoch % 64
    size = min(64, epoch - first % epoch)
    # 1.
    tree = share_tree(lengths, weights)
    before = share_out(first, tree)
    after = share_out(first + size, tree)
    sorted_sources = []
    for source in before:
        quota = after[source] - before[source]
        sorted_sources += [source] * quota
    sources = []
    for start in range(64):
        # 2.
        place = start
        for stage in range(12):
            stride = 2 ** (stage % 6)
            # 64 bits; a pair flips that of its lower place
            coins = derive(seed, 0, first, stage)
            lower = place & ~stride
            if coins >> lower & 1:
                place ^= stride
        # 3.
        if place < size:
            sources.append(sorted_sources[place])
    return first, before, sources


def share_tree(lengths, weights):
    """Huffman's tree over the sources, by their parts of the whole.

    A tree is a source, or (left tree, right tree, parts of the left one, parts of both).

    >>> share_tree([5, 2, 1], None)
    ((2, 1, 1, 3), 0, 3, 8)
    """
    parts = lengths
    if weights is not None:
        parts = []
        for share in normalize(weights):
            part = round(share * 2**46)
            parts.append(max(part, share > 0))  # a positive share has a part
    heap: list = []
    for source, part in enumerate(parts):
        if part > 0:
            heapq.heappush(heap, (int(part), source, source))
    age = len(parts)  # of two trees with equal parts, the older one comes first
    while len(heap) > 1:
        left_parts, _, left = heapq.heappop(heap)
        right_parts, _, right = heapq.heappop(heap)
        both = left_parts + right_parts
        tree = (left, right, left_parts, both)
        heapq.heappush(heap, (both, age, tree))
        age += 1
    return heap[0][2]


def share_out(items, tree):
    """How many of the first `items` each source gets.

    Where the left tree has l of d parts, items * l / d of them go left, rounded.

    >>> share_out(8, share_tree([5, 2, 1], None))
    {2: 1, 1: 2, 0: 5}
    >>> share_out(64, share_tree([5, 2, 1], None))
    {2: 8, 1: 16, 0: 40}
    """
    if isinstance(tree, int):
        return {tree: items}
    left, right, l, d = tree
    to_left = (items * l + d // 2) // d
    return share_out(to_left, left) | share_out(items - to_left, right)


def derive(key, *numbers):
    """A fresh 64-bit key for each list of numbers; SplitMix64 mixes them in, one after another.

    >>> hex(derive(1234, 0)), hex(derive(1234, 1))
    ('0xbb0cf61b2f181cdb', '0x97c7a1364df06524')
    """
    for number in numbers:
        z = key + (number + 1) * 0x9E3779B97F4A7C15
        z = z % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        key = z ^ z >> 31
    return key


def permute(x, n, key, back=False):
    """The place of x in a keyed permutation of range(n); with `back`, the number at place x.

    1. Lay range(n) out row by row on a board, nearly square, of at least 7 x 8 cells.
    2. In ten rounds, alternately shift each column down by a hash of its column number, and
       each row sideways by a hash of its row number. Going back, undo the rounds in reverse.
    3. A cell beyond n goes through the rounds again.

    >>> [permute(x, 10, key=7) for x in range(10)]
    [7, 0, 2, 6, 8, 4, 1, 3, 9, 5]
    >>> [permute(place, 10, key=7, back=True) for place in range(10)]
    [1, 6, 2, 7, 5, 9, 3, 0, 4, 8]
    """
    bits = (n - 1).bit_length() // 2
    columns = 2 ** max(bits, 3)
    rows = max(math.ceil(n / columns), 7)
    sides = rows, columns
    rounds = list(range(10))
    if back:
        rounds.reverse()
    while True:
        # 1.
        cell = list(divmod(x, columns))
        # 2.
        for round_number in rounds:
            # 0: a column slides, so the row index changes; 1: a row slides, the column index does
            moved = round_number % 2
            line = cell[1 - moved]
            step = slide_by(line, round_number, key, sides[moved])
            if back:
                step = -step
            cell[moved] += step
            cell[moved] %= sides[moved]
        row, column = cell
        x = row * columns + column
        # 3.
        if x < n:
            return x


def slide_by(line, round_number, key, side):
    """How far a row or column slides in a round: a hash of its number, scaled to range(side).

    >>> [slide_by(line, 0, 7, side=100) for line in range(8)]
    [6, 90, 17, 44, 87, 75, 51, 31]
    """
    z = line * 0xBF58476D1CE4E5B9 + key + round_number * 0x9E3779B97F4A7C15
    z = z % 2**64
    z = (z ^ z >> 32) * 0x94D049BB133111EB % 2**64
    return (z >> 32) * side >> 32


def stateless_positions(source, sample, lengths, weights, seed, until):
    """The inverse: every position below `until` that reads a sample, one in each pass.

    1. Undo the permutation of the pass: the sample is the n-th read of its source.
    2. Search for the window that contains the n-th read.
    3. In that window, take the source's position number (n - reads before the window).

    >>> stateless_positions(1, 0, [3, 2], None, seed=4, until=20)
    [3, 5, 13, 15]
    """
    tree = share_tree(lengths, weights)
    length = lengths[source]

    def reads_before(position):
        return share_out(position, tree).get(source, 0)

    reads: list = []
    for pass_number in itertools.count():
        # 1.
        key = derive(seed, 1, source, pass_number)
        n = pass_number * length + permute(sample, length, key, back=True)
        # 2.
        after = bisect.bisect(range(until + 64), n, key=reads_before)
        first, before, sources = window_of(after - 1, lengths, weights, seed)
        if first >= until:
            return [position for position in reads if position < until]
        # 3.
        positions = []
        for position, other in enumerate(sources, first):
            if other == source:
                positions.append(position)
        reads.append(positions[n - before[source]])
