"""What a run has to read, by plain.py: the row at every position, where its documents begin, where it is from."""

import functools
from collections import Counter
from typing import NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from combined.axes import MEGATRON, Draw, padding_of
from nanoset_ref import plain
from nanoset_ref.orders import StatelessOrder, build_order

EOS = 0
# tokens of each document; some are empty, longer than a row, or as long as one
DOCUMENTS = [
    [14, 7, 0, 5, 2, 3, 8, 9, 1, 1, 6],
    [4] * 9 + [1, 17, 7, 0],
    [30, 12, 25, 3],
]


class Reads(NamedTuple):
    """All that decides which tokens a run reads."""

    dataset: str
    files: str
    dtype: str
    sequence_length: int
    order: str
    weights: tuple[float, ...] | None
    ledger: tuple[int, tuple[int, ...]] | None
    skip: tuple[tuple[int, int], ...] | None
    length: str | int
    seed: int
    pad_id: int
    shuffle_buffer: int
    content: int  # the files are written in two versions, 0 and 1


class Expected(NamedTuple):
    """Positions `first` .. len(rows) - 1 can be read; what stands for the others is of no meaning.

    rows        int32 [N, S + 1]
    starts      bool [N, S + 1], by the boundaries of the files
    pairs       (source, sample) at each position; none for Megatron's datasets and streams
    spans       (source, first token, end) of each piece of each row
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.bool_]
    pairs: list[tuple[int, int]]
    spans: list[list[tuple[int, int, int]]]
    first: int


def reads_of(draw: Draw) -> Reads:
    return Reads(**{name: draw.get(name, 0) for name in Reads._fields})


def same_reads(one: Reads, other: Reads) -> bool:
    """Whether both runs read the same tokens wherever both are defined, and cut them into the same documents.

    Another pad_id is another run where any row of the files is padded: a longer run would read it.
    """
    if one.pad_id != other.pad_id and has_padding(one):
        return False
    ours, theirs = expected(one), expected(other)
    both = slice(max(ours.first, theirs.first), min(len(ours.rows), len(theirs.rows)))
    if ours.rows.shape[1] != theirs.rows.shape[1]:
        return False
    return np.array_equal(ours.rows[both], theirs.rows[both]) and np.array_equal(
        ours.starts[both], theirs.starts[both]
    )


def has_padding(reads: Reads) -> bool:
    """Whether packing leaves any row of any file unfilled."""
    if reads.dataset == "megatron padded":
        return True  # its plan does not count
    if reads.dataset != "packed":
        return False
    row_length = reads.sequence_length + 1
    rows = [
        row for source in range(len(DOCUMENTS)) for row in packing(source, row_length)
    ]
    return any(sum(end - begin for _, begin, end in row) < row_length for row in rows)


@functools.cache
def token_files(dtype: str, content: int) -> list[NDArray[np.int32]]:
    """The ids of the files: every one another id, but the last of each document, which is EOS."""
    first = 1000 * content + (70_000 if dtype == "int32" else 0)
    files = []
    for number, lengths in enumerate(DOCUMENTS):
        ids = first + 300 * number + 1 + np.arange(sum(lengths), dtype=np.int32)
        ends = np.cumsum([length for length in lengths if length > 0])
        ids[ends - 1] = EOS
        files.append(ids)
    return files


def offsets(source: int) -> NDArray[np.int64]:
    """Where the documents of a file begin, and the end."""
    return np.append(0, np.cumsum(DOCUMENTS[source]))


def is_disjoint(reads: Reads, source: int) -> bool:
    """Whether samples of a file share no token: as asked for, or as files of datatrove say."""
    return (
        reads.dataset == "disjoint"
        or reads.files == "ds"
        or (reads.files == "mixed" and source == 2)
    )


@functools.cache
def packing(source: int, row_length: int) -> list[list[tuple[int, int, int]]]:
    """The spans of each packed row of a file."""
    begins = offsets(source).tolist()
    rows = plain.best_fit(DOCUMENTS[source], row_length)
    return [
        [
            (source, begins[document] + begin, begins[document] + end)
            for document, begin, end in row
        ]
        for row in rows
    ]


def sample_lengths(reads: Reads) -> list[int]:
    """Samples in each file."""
    if reads.dataset == "packed":
        return [len(packing(source, reads.sequence_length + 1)) for source in range(3)]
    sizes = [len(ids) for ids in token_files(reads.dtype, reads.content)]
    return [
        plain.count_samples(size, reads.sequence_length, is_disjoint(reads, source))
        for source, size in enumerate(sizes)
    ]


def num_samples(reads: Reads) -> int:
    """Positions of the run."""
    return sum(sample_lengths(reads)) if reads.length == "epoch" else int(reads.length)


def published_numbers(reads: Reads) -> NDArray[np.uint32]:
    """The instances that the file of a published order names: shuffled, or as they lie."""
    total = sum(sample_lengths(reads))
    size = 9 if reads.order == "published short" else num_samples(reads) + 4
    numbers = np.arange(size) % total
    if reads.order != "published in order":
        np.random.RandomState(5).shuffle(numbers)
    return numbers.astype(np.uint32)


@functools.cache
def expected(reads: Reads) -> Expected:
    if reads.dataset == "stream":
        return streamed(reads)
    if reads.dataset in MEGATRON:
        return megatron(reads)
    lengths = sample_lengths(reads)
    pairs = ordered(reads, lengths)
    spans = [spans_of(reads, *pair) for pair in pairs]
    rows, starts = filled(reads, spans)
    first = 0 if reads.ledger is None else reads.ledger[0]
    return Expected(rows, starts, pairs, spans, first)


# ---- orders


def ordered(reads: Reads, lengths: list[int]) -> list[tuple[int, int]]:
    """The pair at each position. Positions that a ledger left behind are there, with a sample of no meaning."""
    skipped = {
        position for first, stop in reads.skip or () for position in range(first, stop)
    }
    count = num_samples(reads) + len(skipped)
    if reads.order == "nanotron_main":
        pairs = nanotron_main(reads)
    elif reads.ledger is not None:
        pairs = [(0, 0)] * reads.ledger[0] + after_a_ledger(reads, lengths, count)
    elif reads.order == "nanotron":
        epoch = plain.nanotron_order(lengths, reads.weights, reads.seed)
        pairs = [plain.nanotron_at(k, epoch) for k in range(count)]
    elif reads.order == "stateless":
        with mock.patch.object(plain, "window_of", functools.cache(plain.window_of)):
            pairs = [
                plain.stateless_at(k, tuple(lengths), reads.weights, reads.seed)
                for k in range(count)
            ]
    elif reads.order == "identity":
        pairs = [plain.pair_of(k % sum(lengths), lengths) for k in range(count)]
    elif not reads.order.startswith("published"):
        pairs = of_another_loader(reads, lengths, count)
    else:
        pairs = [
            plain.pair_of(number, lengths)
            for number in published_numbers(reads)[:count].tolist()
        ]
    return [pair for position, pair in enumerate(pairs) if position not in skipped]


def after_a_ledger(
    reads: Reads, lengths: list[int], count: int
) -> list[tuple[int, int]]:
    """The pairs from a ledger's position on. plain.py has no ledgers, so whose turn it is comes from the order itself,
    and is held to the shares; the sample that a source gives next follows from its readings.
    """
    position, before = reads.ledger
    order = StatelessOrder(
        lengths,
        reads.weights,
        count,
        reads.seed,
        start={"position": position, "reads": before},
    )
    turns = order.lookup(np.arange(position, count))[0].tolist()
    tree = plain.share_tree(lengths, reads.weights)
    whole = sum(lengths) if reads.weights is None else 64
    if len(turns) >= whole:
        found = {
            source: turns[:whole].count(source)
            for source in plain.share_out(whole, tree)
        }
        assert found == plain.share_out(whole, tree), "a source has not its share"
    readings = list(before)
    pairs = []
    for source in turns:
        number, place = divmod(readings[source], lengths[source])
        key = plain.derive(reads.seed, 1, source, number)
        pairs.append((source, plain.permute(place, lengths[source], key)))
        readings[source] += 1
    return pairs


def nanotron_main(reads: Reads) -> list[tuple[int, int]]:
    """The next row of the folder that is furthest behind its weight; each file is a folder of its own."""
    weights = reads.weights or (1, 1, 1)
    taken = [0] * len(weights)
    pairs = []
    skipped = sum(stop - first for first, stop in reads.skip or ())
    for position in range(num_samples(reads) + skipped):
        behind = [
            weight / sum(weights) * max(position, 1.0) - count
            for weight, count in zip(weights, taken, strict=True)
        ]
        source = behind.index(max(behind))
        pairs.append((source, taken[source]))
        taken[source] += 1
    return pairs


def of_another_loader(
    reads: Reads, lengths: list[int], count: int
) -> list[tuple[int, int]]:
    """The pairs of an order that plain.py does not have: those of the order itself, built for a longer run, and held
    to reading no sample twice in an epoch.
    """
    order = build_order(reads.order, lengths, reads.weights, count + 91, reads.seed)
    sources, samples = (part.tolist() for part in order.lookup(np.arange(count)))
    pairs = list(zip(sources, samples, strict=True))
    epochs = [order.epoch_of(position) for position in range(count)]
    if order.name == "maxtext":  # each source has epochs of its own
        epochs = [
            sources[:position].count(source) // lengths[source]
            for position, source in enumerate(sources)
        ]
    reads_in_epoch = Counter(zip(epochs, pairs, strict=True))
    # a node of MosaicML that is a sample short reads its last one again
    most = 2 if order.name == "py1e" else 1
    assert max(reads_in_epoch.values()) <= most, "an epoch reads a sample again"
    return pairs


# ---- rows


def spans_of(reads: Reads, source: int, sample: int) -> list[tuple[int, int, int]]:
    """Where the tokens of a sample lie."""
    if reads.dataset == "packed":
        return packing(source, reads.sequence_length + 1)[sample]
    start = sample * (reads.sequence_length + is_disjoint(reads, source))
    return [(source, start, start + reads.sequence_length + 1)]


def filled(
    reads: Reads, spans: list[list[tuple[int, int, int]]]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The rows [N, S + 1] and where documents begin in them; every token of padding begins one."""
    files = token_files(reads.dtype, reads.content)
    rows = np.full(
        (len(spans), reads.sequence_length + 1), reads.pad_id, dtype=np.int32
    )
    starts = np.ones(rows.shape, dtype=np.bool_)
    for row, pieces in enumerate(spans):
        column = 0
        for source, begin, end in pieces:
            stop = column + end - begin
            rows[row, column:stop] = files[source][begin:end]
            starts[row, column:stop] = np.isin(np.arange(begin, end), offsets(source))
            starts[row, column : min(column + 1, stop)] = True
            column = stop
    return rows, starts


def megatron(reads: Reads) -> Expected:
    """One corpus, the first file, all of it: an empty document has no sequence."""
    lengths = [length for length in DOCUMENTS[0] if length > 0]
    wanted = None if reads.length == "epoch" else int(reads.length)
    keep_partial = reads.dataset == "megatron padded"
    plan = plain.megatron_epochs(
        sum(lengths), wanted, reads.sequence_length, keep_partial=keep_partial
    )
    indexes = plain.megatron_indexes(
        lengths, (0, len(lengths)), plan, reads.sequence_length, reads.seed
    )
    begins = np.append(0, np.cumsum(lengths)).tolist()
    spans, starts = [], np.zeros((plan[1], reads.sequence_length + 1), dtype=np.bool_)
    starts[:, 0] = True
    for k in range(plan[1]):
        pieces = plain.megatron_spans(k, lengths, indexes)
        spans.append(
            [
                (0, begins[document] + begin, begins[document] + end)
                for document, begin, end in pieces
            ]
        )
        column = 0
        for _, begin, end in pieces:
            if begin < end:
                starts[k, column] = True
            column += end - begin
        starts[k, column:] = True
    rows, _ = filled(reads._replace(pad_id=padding_of(reads._asdict())), spans)
    return Expected(rows, starts, [], spans, 0)


# ---- text


@functools.cache
def texts(content: int) -> list[str]:
    """Documents of words that are numbers, as many as the first two files have tokens before their EOS."""
    found = []
    for ids, lengths in zip(
        token_files("uint16", content), DOCUMENTS[:2], strict=False
    ):
        ends = np.cumsum(lengths)
        pieces = [
            ids[end - length : end - 1]
            for end, length in zip(ends, lengths, strict=True)
            if length > 1
        ]
        found += [" ".join(map(str, piece.tolist())) for piece in pieces]
    return found


def streamed(reads: Reads, epoch: int = 0) -> Expected:
    """The rows of one epoch of a text, windows of `shuffle_buffer` rows shuffled."""
    ids = np.array(
        [int(word) for text in texts(reads.content) for word in [*text.split(), EOS]],
        dtype=np.int32,
    )
    count = plain.count_samples(len(ids), reads.sequence_length)
    order: list[int] = []
    size = reads.shuffle_buffer or 1
    for first in range(0, count, size):
        window = min(size, count - first)
        key = plain.derive(reads.seed, 0, epoch, 0, first)
        places = (
            [plain.permute(place, window, key) for place in range(window)]
            if reads.shuffle_buffer
            else [0]
        )
        order += [first + place for place in places]
    rows = np.stack(
        [plain.read_sample(ids, row, reads.sequence_length) for row in order]
    )
    starts = np.stack([plain.starts_after_eos(row, EOS) for row in rows])
    return Expected(rows, starts, [], [], 0)
