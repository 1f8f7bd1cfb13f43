"""The whole pipeline on one page: slow, obvious and complete, with NumPy and the standard library alone.

A run is a sequence of positions. An order names the sample at each position, rows read it, a schedule says which rank
reads it when, and a collator dresses it for the model. Each of these is a few short functions below, with a worked
example. The rest of the package does the same things fast and safely, and its tests compare it with this page.

    1. files       token ids on disk
    2. orders      position k -> (dataset, sample)
    3. rows        (dataset, sample) -> S + 1 token ids
    4. schedule    which positions a rank reads, and where a stopped run goes on
    5. collator    rows -> inputs, labels, masks
    6. Megatron    steps 1 to 3 as Megatron-LM takes them
    7. streams     lines that are tokenised while the model trains
    8. chunks      documents packed into rows, and rows dealt out to files

S is `sequence_length`, in tokens. Here is the whole journey, for rank 1 of 2 and its second micro-batch of two rows:

>>> files = [np.arange(33), np.arange(100, 117)]                    # two token files
>>> lengths = [count_samples(len(tokens), 4) for tokens in files]   # of 8 and 4 samples, S = 4
>>> epoch = nanotron_order(lengths, None, seed=1234)
>>> positions = rank_positions(positions_left(12, 0, 2, 2), 1, 2, 2)[1]
>>> positions
[5, 7]
>>> pairs = [nanotron_at(k, epoch) for k in positions]              # (dataset, sample)
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

# ---- 1. files: token ids on disk


def write_tokens(path, documents, dtype="<u2"):
    """Write documents one after another as raw ids, without a header; return where each begins, and the end.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     offsets = write_tokens(f"{folder}/tiny_input_ids.npy", [[5, 6, 7], [8, 9]])
    ...     ids = read_tokens(f"{folder}/tiny_input_ids.npy").tolist()
    ...     raw = np.fromfile(f"{folder}/tiny_input_ids.npy", "u1").tobytes()
    >>> offsets, ids, raw.hex(" ", 2)
    (array([0, 3, 5]), [5, 6, 7, 8, 9], '0500 0600 0700 0800 0900')
    """
    np.concatenate(documents).astype(dtype).tofile(path)
    return np.cumsum([0, *map(len, documents)])


def read_tokens(path, dtype="<u2"):
    """Map the ids of a file into memory; the system reads a page of them when somebody looks at it."""
    return np.memmap(path, dtype, mode="r")


# ---- 2. orders: position k -> (dataset, sample)


def normalise(weights):
    """Divide by the sum, in float64.

    >>> normalise([10, 50, 30, 10])
    array([0.1, 0.5, 0.3, 0.1])
    """
    weights = np.array(weights, dtype=np.float64)
    return weights / weights.sum()


def greedy_blend(weights, size, limits=np.inf):
    """At each position the dataset that lags most behind its share gives its next sample; the first one wins a tie.

    A dataset that has given `limits` samples gives no more. Returns `size` pairs (dataset, sample).

    >>> greedy_blend(normalise([5, 3, 2]), 6).T
    array([[0, 1, 2, 0, 1, 0],
           [0, 0, 0, 1, 1, 2]])
    """
    taken = np.zeros(len(weights), dtype=np.int64)
    order = np.zeros((size, 2), dtype=np.int64)
    for t in range(size):
        behind = weights * max(t, 1.0) - taken
        behind[taken >= limits] = -np.inf
        dataset = np.argmax(behind)
        order[t] = dataset, taken[dataset]
        taken[dataset] += 1
    return order


def nanotron_order(lengths, weights, seed):
    """One epoch of Nanotron's order: sum(lengths) pairs (dataset, sample).

    1. Weights (None: the lengths) are normalised, and the datasets blended greedily.
    2. A dataset that is asked for more samples than it has begins again.
    3. The epoch is shuffled.

    Lengths 3 and 2 give 00 10 01 11 02 before the shuffle, and then:

    >>> nanotron_order([3, 2], None, seed=0).T
    array([[0, 0, 1, 1, 0],
           [1, 0, 0, 1, 2]])
    """
    lengths = np.array(lengths)
    order = greedy_blend(normalise(lengths if weights is None else weights), lengths.sum())
    order[:, 1] %= lengths[order[:, 0]]
    np.random.RandomState(seed).shuffle(order)
    return order


def nanotron_at(k, epoch):
    """The pair at position k. Every epoch is the same.

    >>> nanotron_at(6, nanotron_order([3, 2], None, seed=0))
    (0, 0)
    """
    return tuple(epoch[k % len(epoch)].tolist())


def instance(number, lengths):
    """The pair of an instance of a published run, which numbers its samples file by file.

    Pythia's step t reads instances 1024 t, 1024 t + 1, ...; OLMo's reads those that its `global_indices.npy` names
    there.

    >>> [instance(number, [2, 0, 3]) for number in range(5)]
    [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    """
    instances = [
        (dataset, sample) for dataset, length in enumerate(lengths) for sample in range(length)
    ]
    return instances[number]


# The stateless order has no index: arithmetic leads from a position to its sample, and back.
#
#     windows    An epoch is cut into windows of 64 positions. A tree of shares says how many of them each dataset gets,
#                so that its total is right to a sample or two after every window.
#     turns      Coins shuffle the window. They decide whose turn it is at each position.
#     readings   The n-th turn of a dataset is its n-th reading: place n mod length in pass n // length. Every pass is a
#                keyed permutation of the dataset.
#
# Without weights an epoch reads every sample once. With weights there is one endless epoch.


def derive(key, *numbers):
    """A fresh 64-bit key for each list of numbers; SplitMix64 mixes them in, one after another.

    >>> hex(derive(1234, 0)), hex(derive(1234, 1))
    ('0xbb0cf61b2f181cdb', '0x97c7a1364df06524')
    """
    for number in numbers:
        z = (key + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        key = z ^ z >> 31
    return key


def permute(x, n, key, back=False):
    """Where a keyed permutation of range(n) puts x; or, going back, what it put at place x.

    1. Lay range(n) out row by row on a board, nearly square and of at least 7 x 8 cells; x has a row and a column.
    2. In twelve rounds, the row moves by a hash of the column, and the column by a hash of the row, in turns.
    3. A cell beyond n goes through the rounds again.

    >>> [permute(x, 10, key=7) for x in range(10)]
    [1, 6, 9, 4, 8, 5, 3, 7, 0, 2]
    >>> [permute(place, 10, key=7, back=True) for place in range(10)]
    [8, 0, 9, 6, 3, 5, 1, 7, 4, 2]
    """
    columns = 2 ** max((n - 1).bit_length() // 2, 3)
    sides = max(-(-n // columns), 7), columns
    while True:
        cell = list(divmod(x, columns))
        for number in reversed(range(12)) if back else range(12):
            half = number % 2  # 0 moves the row, 1 the column
            step = slide_by(cell[1 - half], number, key, sides[half])
            cell[half] = (cell[half] + (-step if back else step)) % sides[half]
        x = cell[0] * columns + cell[1]
        if x < n:
            return x


def slide_by(line, number, key, side):
    """How many cells a column or row slides in round `number`: a hash of its own number, scaled to range(side).

    >>> [slide_by(line, 0, 7, side=100) for line in range(8)]
    [6, 90, 17, 44, 87, 75, 51, 31]
    """
    z = (line * 0xBF58476D1CE4E5B9 + key + number * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 32) * 0x94D049BB133111EB % 2**64
    return (z >> 32) * side >> 32


def share_tree(lengths, weights):
    """Huffman's tree over the parts of the whole that each dataset gets.

    A tree is a dataset, or (left tree, right tree, parts of the left one, parts of both).

    >>> share_tree([5, 2, 1], None)
    ((2, 1, 1, 3), 0, 3, 8)
    """
    parts = lengths
    if weights is not None:
        parts = [max(round(share * 2**46), share > 0) for share in normalise(weights)]
    heap: list = [(int(part), dataset, dataset) for dataset, part in enumerate(parts) if part > 0]
    heapq.heapify(heap)
    for number in range(
        len(parts), len(parts) + len(heap) - 1
    ):  # of equal parts, the older tree comes first
        (part, _, left), (other, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (part + other, number, (left, right, part, part + other)))
    return heap[0][2]


def share_out(items, tree):
    """How many of the first `items` each dataset gets: where l of d parts are on the left, items * l / d, rounded.

    >>> share_out(8, share_tree([5, 2, 1], None)), share_out(64, share_tree([5, 2, 1], None))
    ({2: 1, 1: 2, 0: 5}, {2: 8, 1: 16, 0: 40})
    """
    if isinstance(tree, int):
        return {tree: items}
    left, right, l, d = tree
    to_left = (items * l + d // 2) // d
    return share_out(to_left, left) | share_out(items - to_left, right)


def window_of(position, lengths, weights, seed):
    """The window of a position: (its first position, readings of each dataset before it, dataset at each position).

    1. The window is shared out, and the datasets are laid side by side on its places: 2 2 1 1 1 0 0 0 ...
    2. A position walks to a place in twelve stages, of strides 1, 2, 4, 8, 16, 32 and the same again. In a stage, each
       pair of places p and p + stride flips a coin: the two change places, or they stay.
    3. The last window of an epoch may be short. Positions that walk beyond its end are left out.

    >>> window_of(70, [50, 20, 10], None, seed=1234)
    (64, {2: 8, 1: 16, 0: 40}, [1, 0, 0, 2, 0, 2, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0])
    """
    epoch = sum(lengths) if weights is None else 2**48
    first = position - position % epoch % 64
    size = min(64, epoch - first % epoch)
    tree = share_tree(lengths, weights)
    before, after = share_out(first, tree), share_out(first + size, tree)
    row = [dataset for dataset in before for _ in range(after[dataset] - before[dataset])]
    datasets = []
    for place in range(64):
        for stage in range(12):
            stride = 1 << stage % 6
            coin = derive(seed, 0, first, stage) >> (place & ~stride) & 1
            place ^= coin * stride
        if place < size:
            datasets.append(row[place])
    return first, before, datasets


def stateless_at(k, lengths, weights, seed):
    """The pair (dataset, sample) at position k.

    >>> [stateless_at(k, [3, 2], None, seed=0) for k in range(10)]
    [(0, 2), (0, 0), (1, 1), (1, 0), (0, 1), (0, 2), (1, 1), (1, 0), (0, 0), (0, 1)]
    """
    first, before, datasets = window_of(k, lengths, weights, seed)
    dataset = datasets[k - first]
    reading = before[dataset] + datasets[: k - first].count(dataset)
    turn, place = divmod(reading, lengths[dataset])
    return dataset, permute(place, lengths[dataset], derive(seed, 1, dataset, turn))


def stateless_positions(dataset, sample, lengths, weights, seed, until):
    """The way back: every position below `until` that reads a sample, one for each pass.

    1. The pass has the sample at one place, and so at one reading.
    2. Search the window in which the dataset gets this reading.
    3. In that window, it is turn number (reading - readings before) of the dataset.

    >>> stateless_positions(1, 0, [3, 2], None, seed=0, until=20)
    [3, 7, 14, 15]
    """
    tree = share_tree(lengths, weights)
    found: list = []
    for turn in itertools.count():
        place = permute(sample, lengths[dataset], derive(seed, 1, dataset, turn), back=True)
        reading = turn * lengths[dataset] + place
        items = bisect.bisect(
            range(until + 64), reading, key=lambda items: share_out(items, tree).get(dataset, 0)
        )
        first, before, datasets = window_of(items - 1, lengths, weights, seed)
        if first >= until:
            return [position for position in found if position < until]
        turns = [k for k, other in enumerate(datasets, first) if other == dataset]
        found.append(turns[reading - before[dataset]])


# ---- 3. rows: (dataset, sample) -> S + 1 token ids


def count_samples(num_tokens, sequence_length, disjoint=False):
    """Samples of S + 1 tokens in a file. They overlap by one token, unless the file was cut into disjoint rows before.

    9 tokens and S = 4 make the samples 01234 and 45678; disjoint, 01234 and a rest.

    >>> count_samples(9, 4), count_samples(9, 4, disjoint=True)
    (2, 1)
    """
    return (num_tokens - 1 + disjoint) // (sequence_length + disjoint)


def read_sample(tokens, sample, sequence_length, disjoint=False):
    """S + 1 ids: the first S will be the inputs, the last S the labels.

    >>> read_sample(np.arange(10, 30), 1, 4), read_sample(np.arange(10, 30), 1, 4, disjoint=True)
    (array([14, 15, 16, 17, 18], dtype=int32), array([15, 16, 17, 18, 19], dtype=int32))
    """
    start = sample * (sequence_length + disjoint)
    return tokens[start : start + sequence_length + 1].astype(np.int32)


def read_rows(files, pairs, sequence_length):
    """One row for each (dataset, sample).

    >>> read_rows([np.arange(9), np.arange(50, 59)], [(1, 0), (0, 1)], 4).tolist()
    [[50, 51, 52, 53, 54], [4, 5, 6, 7, 8]]
    """
    return np.stack(
        [read_sample(files[dataset], sample, sequence_length) for dataset, sample in pairs]
    )


# ---- 4. schedule: which positions a rank reads, and where a stopped run goes on


def positions_left(num_samples, consumed, dp_size, micro_batch_size, tail="drop"):
    """The positions of an epoch that are still to be read when all ranks together have had `consumed` samples.

    That number is all a resume needs, even if the number of ranks changes. What does not fill a batch on every rank is
    dropped, or filled up from the beginning of the epoch: to a multiple of dp_size ("pad"), or to full batches
    ("loop").

    >>> positions_left(11, 6, 2, 2), positions_left(11, 6, 2, 2, "pad"), positions_left(11, 6, 2, 2, "loop")
    ([6, 7, 8, 9], [6, 7, 8, 9, 10, 0], [6, 7, 8, 9, 10, 0, 1, 2])
    """
    left = list(range(consumed % num_samples, num_samples))
    batch_size = dp_size * micro_batch_size
    if tail == "drop":
        return left[: len(left) - len(left) % batch_size]
    multiple = dp_size if tail == "pad" else batch_size
    return left + [k % num_samples for k in range(-len(left) % multiple)]


def rank_positions(positions, dp_rank, dp_size, micro_batch_size, layout="strided"):
    """The micro-batches of one data-parallel rank. `accumulation` of them, one after another, make an optimizer step.

    >>> rank_positions(range(8), 0, 2, 2), rank_positions(range(8), 1, 2, 2)
    ([[0, 2], [4, 6]], [[1, 3], [5, 7]])
    >>> rank_positions(range(8), 0, 2, 2, "contiguous"), rank_positions(range(8), 1, 2, 2, "contiguous")
    ([[0, 1], [4, 5]], [[2, 3], [6, 7]])
    """
    batch_size = dp_size * micro_batch_size
    mine = []
    for start in range(0, len(positions), batch_size):
        batch = list(positions[start : start + batch_size])
        share = len(batch) // dp_size
        if layout == "strided":
            mine.append(batch[dp_rank::dp_size])
        else:
            mine.append(batch[dp_rank * share :][:share])
    return mine


def find_position(position, dp_size, micro_batch_size, accumulation=1, layout="strided"):
    """The way back: which (optimizer step, micro-batch within it, rank, row) reads a position, all counted from 0.

    Positions are counted from where this layout began.

    >>> find_position(7, 2, 2, accumulation=2), find_position(7, 2, 2, accumulation=2, layout="contiguous")
    ((0, 1, 1, 1), (0, 1, 1, 1))
    >>> find_position(9, 2, 2), find_position(9, 2, 2, layout="contiguous")
    ((2, 0, 1, 0), (2, 0, 0, 1))
    """
    batch, place = divmod(position, dp_size * micro_batch_size)
    step, micro_batch = divmod(batch, accumulation)
    if layout == "strided":
        row, rank = divmod(place, dp_size)
    else:
        rank, row = divmod(place, micro_batch_size)
    return step, micro_batch, rank, row


# ---- 5. collator: rows -> inputs, labels, masks


def collate(rows, pp_rank=0, input_pp_rank=0, output_pp_rank=0):
    """What one pipeline rank gets of a batch; ("pointer", r) stands for what rank r has.

    >>> for name, value in collate(np.array([[7, 8, 9]]), 0, 0, 3).items(): print(name, value)
    input_ids [[7 8]]
    input_mask [[ True  True]]
    label_ids ('pointer', 3)
    label_mask ('pointer', 3)
    """
    mask = np.ones((len(rows), rows.shape[1] - 1), dtype=bool)
    owned = {
        "input_ids": (input_pp_rank, rows[:, :-1]),
        "input_mask": (input_pp_rank, mask),
        "label_ids": (output_pp_rank, rows[:, 1:]),
        "label_mask": (output_pp_rank, mask),
    }
    return {
        name: value if owner == pp_rank else ("pointer", owner)
        for name, (owner, value) in owned.items()
    }


def document_starts(row, eos):
    """Where documents begin in a row, when each ends with the id `eos`. A row begins a document in any case.

    >>> document_starts(np.array([7, 8, 2, 5, 6]), eos=2).astype(int)
    array([1, 0, 0, 1, 0])
    """
    return np.append(True, row[:-1] == eos)


def documents_of(starts):
    """What a model may want to know about the documents of one row, from where they begin.

    >>> for name, value in documents_of(np.array([1, 0, 0, 1, 0])).items(): print(name, value.astype(int))
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
    return {
        "position_ids": places - np.maximum.accumulate(places * starts),  # 0 1 2 3 4 - 0 0 0 3 3
        "label_mask": document[1:] == document[:-1],  # False where a label begins another document
        "attention_mask": (document[:, None] != document)
        | (places[:, None] < places),  # True: must not look
        "cu_seqlens": np.append(np.flatnonzero(starts), len(starts)),
    }


# ---- 6. Megatron: steps 1 to 3 as Megatron-LM takes them


def read_megatron(prefix):
    """The sequences of a .bin/.idx pair, each an array of ids.

    The .bin file holds the ids, one sequence after another. The .idx file, by byte:

         0  "MMIDIDX", two zero bytes and the version, 1, in 8 bytes
        17  the code of the dtype, 1 byte: 8 is uint16
        18  N, the number of sequences, 8 bytes; then the number of document ends, 8 bytes
        34  N lengths in tokens, 4 bytes each; the rest says where sequences and documents begin
    """
    with open(f"{prefix}.idx", "rb") as file:
        index = file.read()
    dtype = "u1 i1 i2 i4 i8 f8 f4 u2".split()[index[17] - 1]
    lengths = np.frombuffer(index, "<i4", int.from_bytes(index[18:26], "little"), 34)
    return np.split(np.fromfile(f"{prefix}.bin", dtype), np.cumsum(lengths)[:-1])


def split_corpus(split, num_sequences):
    """First and last (exclusive) sequence of train, valid and test.

    >>> split_corpus("90,8,2", 62)
    [(0, 56), (56, 61), (61, 62)]
    """
    ends = np.cumsum([0, *normalise([float(size) for size in split.split(",")])])
    return list(itertools.pairwise(round(end * num_sequences) for end in ends.tolist()))


def megatron_epochs(num_tokens, num_samples, sequence_length, extra=1, keep_partial=False):
    """(epochs, samples in all of them, how many of these are shuffled before the rest).

    The fewest epochs that give `num_samples` are read; None asks for one. If less than 80% of the last one is needed,
    it is shuffled apart from the others, so that a run of `num_samples` reads the others completely.

    1,001 tokens make 100 samples of S = 10. Two epochs are shuffled together to give 180, and apart to give 179:

    >>> megatron_epochs(1001, 180, 10), megatron_epochs(1001, 179, 10)
    ((2, 200, 200), (2, 200, 100))
    """
    epochs = 1
    while num_samples is not None and epochs * num_tokens < num_samples * sequence_length + extra:
        epochs += 1
    usable = max(0, epochs * num_tokens - extra)  # a sample needs the token after it
    samples = usable // sequence_length
    if keep_partial:  # a shorter last sample; upstream divides in float32
        samples = math.ceil(np.float32(usable) / np.float32(sequence_length))
    if epochs > 1:
        before = (usable - num_tokens) // sequence_length
        per_epoch = (num_tokens - extra) // sequence_length
        if num_samples - before < int(0.80 * per_epoch):
            return epochs, samples, before
    return epochs, samples, samples


def megatron_sample_index(lengths, documents, num_samples, sequence_length, extra=1):
    """Cut the documents, read one after another, every S tokens: where does sample j begin?

    Row j is (place in `documents`, token in that document). Row j + 1 also says where sample j ends: with that token,
    which both samples read.

    >>> megatron_sample_index([5, 2, 4], [2, 0, 1], 3, 3)     # 4 | 5 | 2 tokens:  a b c d | e f g h i | j k
    [(0, 0), (0, 3), (1, 2), (2, 0)]
    """
    stream = [
        (place, token)
        for place, document in enumerate(documents)
        for token in range(lengths[document])
    ]
    index = [(0, 0)]
    for j in range(1, num_samples + 1):
        place, token = stream[
            min(j * sequence_length + extra, len(stream)) - 1
        ]  # the last token of sample j - 1
        index.append((place, token + 1 - extra))
    return index


def megatron_indexes(lengths, split, plan, sequence_length, seed, extra=1):
    """Megatron's three indexes of a split (first, stop), from the plan that `megatron_epochs` made.

    >>> documents, samples, order = megatron_indexes([5, 2, 4], (0, 3), (1, 3, 3), 3, seed=2)
    >>> documents, samples, order
    (array([2, 1, 0]), [(0, 0), (0, 3), (2, 0), (2, 3)], array([2, 0, 1]))
    """
    epochs, num_samples, before = plan
    shuffle = np.random.RandomState(seed).shuffle  # four times, in this order
    documents = np.tile(np.arange(*split), epochs)
    cut = len(documents) if before == num_samples else len(documents) * (epochs - 1) // epochs
    shuffle(documents[:cut])
    shuffle(documents[cut:])
    order = np.arange(num_samples)
    shuffle(order[:before])
    shuffle(order[before:])
    return (
        documents,
        megatron_sample_index(lengths, documents, num_samples, sequence_length, extra),
        order,
    )


def megatron_spans(k, lengths, indexes, extra=1):
    """What position k reads: (sequence, first token, end) for each part.

    >>> megatron_spans(0, [5, 2, 4], ([2, 0, 1], [(0, 0), (0, 3), (1, 2), (2, 0)], [1, 2, 0]))     # d | e f g
    [(2, 3, 4), (0, 0, 3)]
    """
    documents, samples, order = indexes
    (first, begin), (last, end) = samples[order[k]], samples[order[k] + 1]
    spans = [[documents[place], 0, lengths[documents[place]]] for place in range(first, last + 1)]
    spans[0][1] = begin
    spans[-1][2] = end + extra
    return [tuple(span) for span in spans]


def read_spans(sequences, spans):
    """The tokens of a sample.

    >>> read_spans([[5, 6, 7, 8, 9], [], [1, 2, 3, 4]], [(2, 3, 4), (0, 0, 3)])
    array([4, 5, 6, 7])
    """
    return np.concatenate([sequences[sequence][begin:end] for sequence, begin, end in spans])


def blend_targets(weights, size, surplus=0.005):
    """How many samples a blend by weight takes of each corpus, and how many are built, with a reserve for rounding.

    The blend is `greedy_blend(normalise(weights), sum(taken))`.

    >>> blend_targets([3, 7], 1001)
    ([301, 701], [303, 705])
    """
    taken = [math.ceil(size * share) for share in normalise(weights)]
    return taken, [math.ceil(count * (1 + surplus)) for count in taken]


def blend_everything(sizes):
    """The blend without weights: every sample of every corpus once, in proportion.

    >>> blend_everything([4, 2]).T
    array([[0, 1, 0, 0, 1, 0],
           [0, 0, 1, 2, 1, 3]])
    """
    return greedy_blend(normalise(sizes), sum(sizes), limits=sizes)


# ---- 7. streams: lines that are tokenised while the model trains


def stripe(lines, rank, world_size, worker=0, num_workers=1):
    """The lines of one DataLoader worker of one rank. The last few are dropped, so that every rank has the same number.

    >>> [[stripe(range(11), rank, 2, worker, 2) for worker in range(2)] for rank in range(2)]
    [[[0, 4, 8], [2, 6]], [[1, 5, 9], [3, 7]]]
    """
    lines = list(lines)
    return lines[: len(lines) - len(lines) % world_size][rank::world_size][worker::num_workers]


def take_turns(streams, size):
    """What a DataLoader delivers: a batch of `size` from each worker in turn.

    >>> take_turns([[0, 4, 8], [2, 6]], 2)
    [[0, 4], [2, 6], [8]]

    After T batches, a resumed run delivers this list from T on, beginning with worker T mod N. Skipping lines and
    striping the rest anew would repeat some and lose others.
    """
    starts = range(0, max(map(len, streams)), size)
    return [
        stream[start : start + size]
        for start in starts
        for stream in streams
        if start < len(stream)
    ]


# ---- 8. chunks: documents packed into rows, and rows dealt out to files


def concatenate(documents, row_length, wrap=True):
    """Rows of exactly `row_length` tokens, and the tail that fills none.

    With wrap, a document continues in the next row. Without, its rest is cut away when a row is full.

    >>> concatenate([[1, 2, 3, 4, 5], [6, 7, 8]], 3), concatenate([[1, 2, 3, 4, 5], [6, 7, 8]], 3, wrap=False)
    (([[1, 2, 3], [4, 5, 6]], [7, 8]), ([[1, 2, 3], [6, 7, 8]], []))
    """
    tail: list = []
    rows = []
    for document in documents:
        tail = tail + list(document)
        while len(tail) >= row_length:
            rows.append(tail[:row_length])
            tail = tail[row_length:] if wrap else []
    return rows, tail


def best_fit(lengths, row_length):
    """Rows of whole documents: each row a list of pieces (document, first token, end).

    Documents longer than a row are cut into full rows and a rest. Pieces are placed longest first, each into the row
    with the least room that still takes it (of several, the one that came to this room last), or else into a new row.

    >>> best_fit([14, 7, 5, 2, 3], 8)
    [[(0, 0, 8)], [(1, 0, 7)], [(0, 8, 14), (3, 0, 2)], [(2, 0, 5), (4, 0, 3)]]
    """
    cuts = [
        (document, begin)
        for document, length in enumerate(lengths)
        for begin in range(0, length, row_length)
    ]
    pieces = [
        (document, begin, min(begin + row_length, lengths[document])) for document, begin in cuts
    ]
    rows: list = []
    having: dict = {}  # room: the rows that have it
    for document, begin, end in sorted(pieces, key=lambda piece: piece[1] - piece[2]):
        room = min(
            (room for room in having if room >= end - begin and having[room]), default=row_length
        )
        if room == row_length:
            having[room] = [len(rows)]
            rows.append([])
        row = having[room].pop()
        rows[row].append((document, begin, end))
        having.setdefault(room - (end - begin), []).append(row)
    return rows


def deal_out(rows, num_chunks, num_valid, rng):
    """Hold out random validation rows and deal the others round robin to chunks of one size; a few are left over.

    >>> import random
    >>> deal_out("abcdefghij", num_chunks=3, num_valid=2, rng=random.Random(1))
    (['c', 'e'], [['a', 'f'], ['b', 'g'], ['d', 'h']])
    """
    used = len(rows) - (len(rows) - num_valid) % num_chunks
    held_out = sorted(rng.sample(range(used), num_valid))
    train = [rows[i] for i in range(used) if i not in held_out]
    return [rows[i] for i in held_out], [train[chunk::num_chunks] for chunk in range(num_chunks)]
