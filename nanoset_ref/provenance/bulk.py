"""When are a million documents read? One table for many questions, and what a run without them reads."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.orders.finding import find_each
from nanoset_ref.provenance.auditing import Stretch
from nanoset_ref.provenance.card import Card, stop_of

Int64Array = NDArray[np.int64]

LINES = 1 << 19  # of questions that are answered at once
QUESTION = re.compile(r"(?:(\d+):)?(\d+)(?:-(\d+))?")
HEADER = "question stage step position rank micro_batch row source sample".split()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """A stage of a run, as far as its order and its rows are concerned.

    Attributes:
        order: what it reads; its files have `sources` as numbers in the run, `lengths` in samples, and
            `strides` in tokens from one sample to the next.
        schedule: its layout. knows_ranks: whether that is the layout of the run.
        stop: the position after its last one.
    """

    name: str
    order: Any
    sources: Int64Array
    lengths: Int64Array
    strides: Int64Array
    row_length: int
    schedule: Schedule
    knows_ranks: bool
    stop: int

    def find(self, sources: Int64Array, firsts: Int64Array, stops: Int64Array) -> Int64Array:
        """The rows that hold tokens [first, stop) of files: int64 [n, 4] of (question, position, source, sample)."""
        asked = []
        for place, source in enumerate(self.sources.tolist()):
            chosen = np.flatnonzero((sources == source) & (firsts < stops))
            stride = self.strides[place]
            low = -(-(firsts[chosen] - self.row_length + 1) // stride)
            low = np.clip(low, 0, self.lengths[place])
            high = np.clip(-(-stops[chosen] // stride), low, self.lengths[place])
            questions, samples = ranges(chosen, low, high - low)
            asked.append([questions, np.full_like(samples, place), samples])
        questions, places, samples = np.concatenate(asked, axis=1)
        firsts_of_files = np.cumsum(self.lengths) - self.lengths
        rows, numbers = np.unique(firsts_of_files[places] + samples, return_inverse=True)
        files = np.searchsorted(firsts_of_files, rows, side="right") - 1
        found, positions = find_each(self.order, files, rows - firsts_of_files[files], self.stop)
        is_read = positions >= self.schedule.consumed_train_samples
        found = found[is_read]
        positions = positions[is_read]
        begins = np.searchsorted(found, numbers)
        ends = np.searchsorted(found, numbers, side="right")
        each, hits = ranges(np.arange(len(questions)), begins, ends - begins)
        columns = [questions[each], positions[hits], self.sources[places[each]], samples[each]]
        table = np.stack(columns, axis=1)
        return table[np.lexsort((table[:, 1], table[:, 0]))]


def ranges(
    owners: Int64Array, firsts: Int64Array, counts: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """first, first + 1, ... for each owner, `count` numbers: the owner of each, and the numbers.

    owners 7 9, firsts 3 5, counts 2 1 -> 7 7 9 and 3 4 5
    """
    ends = np.cumsum(counts)
    numbers = np.arange(ends[-1] if len(ends) else 0)
    return np.repeat(owners, counts), numbers + np.repeat(firsts - ends + counts, counts)


@dataclasses.dataclass(frozen=True)
class Questions:
    """How lines name tokens of a run's files: [SOURCE:]DOCUMENT or [SOURCE:]FIRST_BYTE-STOP_BYTE.

    Attributes:
        first_bytes, sizes, itemsizes: of each file, in bytes.
        names: of the files; one that is listed twice counts as the first of its name.
        documents: the boundaries of a file's documents, in tokens.
        source: of lines that name none.
    """

    names: list[str]
    first_bytes: Sequence[int]
    sizes: Sequence[int]
    itemsizes: Sequence[int]
    documents: Callable[[int], Int64Array]
    source: int

    def tokens(self, lines: Sequence[str]) -> Int64Array:
        """(source, first token, stop) of each line, int64 [n, 3].

        Raises:
            ValueError: a line of another form, or one that names no file, document or bytes of it.
        """
        found = np.empty((len(lines), 3), dtype=np.int64)
        for number, line in enumerate(lines):
            match = QUESTION.fullmatch(line)
            if match is None:
                raise ValueError(
                    f"a line is [SOURCE:]DOCUMENT or [SOURCE:]FIRST_BYTE-STOP_BYTE, got {line!r:.80}"
                )
            source, first, stop = match.groups()
            place = self.source if source is None else int(source)
            if place >= len(self.sizes):
                raise ValueError(f"{line}: there are {len(self.sizes)} files, counted from 0")
            try:
                span = self._span(place, int(first), stop)
            except ValueError as error:
                raise ValueError(f"{line}: {error}") from error
            found[number] = self.names.index(self.names[place]), *span
        return found

    def _span(self, source: int, first: int, stop: str | None) -> tuple[int, int]:
        if stop is None:
            boundaries = self.documents(source)
            if first + 1 >= len(boundaries):
                raise ValueError(f"there are {len(boundaries) - 1:,} documents, from 0 on")
            return boundaries[first], boundaries[first + 1]
        header = self.first_bytes[source]
        if not header <= first < int(stop) <= self.sizes[source]:
            raise ValueError(f"the ids are bytes {header}-{self.sizes[source]} of the file")
        itemsize = self.itemsizes[source]
        return (first - header) // itemsize, -(-(int(stop) - header) // itemsize)


def read_by_card(card: Card, source: int) -> tuple[list[Reader], Questions]:
    """The stages of a card, and its files; without them documents are not known."""
    names = [it["name"] for it in card.sources]
    readers = []
    for stage in card.facts["stages"]:
        numbers = card.source_numbers(stage["order"])
        lengths = np.array(card.lengths(stage["order"]))
        window = card.facts["window"]
        reader = Reader(
            name=stage["name"],
            order=card.order(stage["order"]),
            sources=np.array([names.index(names[number]) for number in numbers]),
            lengths=lengths,
            strides=np.full(len(lengths), window["stride"]),
            row_length=window["row_length"],
            schedule=card.schedule(stage),
            knows_ranks=stage["layout"] is not None,
            stop=stop_of(stage),
        )
        readers.append(reader)

    def documents(source: int) -> Int64Array:
        raise ValueError("the documents are in the file: give bytes, or --data")

    sizes = [it["bytes"] for it in card.sources]
    headers = [it.get("first_byte", 0) for it in card.sources]
    itemsizes = [np.dtype(card.facts["dtype"]).itemsize] * len(names)
    return readers, Questions(names, headers, sizes, itemsizes, documents, source)


def read_by_stretches(stretches: Sequence[Stretch], source: int) -> tuple[list[Reader], Questions]:
    """The stretches of a run, and all their files.

    Raises:
        ValueError: rows other than those of a `Nanoset`.
    """
    files = {str(file.path): file for stretch in stretches for file in stretch.dataset.files}
    names = [*files]
    readers = []
    for stretch in stretches:
        rows = stretch.dataset
        if not isinstance(rows, Nanoset):
            raise ValueError(
                "questions in bulk are asked of token files, not of shuffled documents"
            )
        reader = Reader(
            name=stretch.name,
            order=rows.order,
            sources=np.array([names.index(path) for path in rows.dataset_paths]),
            lengths=np.array(rows.dataset_lengths),
            strides=rows.strides,
            row_length=rows.row_length,
            schedule=stretch.schedule,
            knows_ranks=True,
            stop=min(stretch.stop, len(rows)),
        )
        readers.append(reader)
    boundaries = functools.cache(lambda source: files[names[source]].known_documents())
    headers = [file.first_byte for file in files.values()]
    itemsizes = [file.dtype.itemsize for file in files.values()]
    sizes = [file.first_byte + file.num_tokens * file.dtype.itemsize for file in files.values()]
    return readers, Questions(names, headers, sizes, itemsizes, boundaries, source)


def answers(
    readers: Sequence[Reader], questions: Questions, lines: Iterable[str]
) -> Iterator[list[str]]:
    """The lines of a table: a row for every row of the run that reads what a line names.

    Columns are separated by tabs; HEADER is the first line, then come the answers to LINES questions
    at a time, stage by stage. What the card does not know is empty.

    Raises:
        ValueError: see `Questions.tokens`.
    """
    yield ["\t".join(HEADER)]
    for part in _parts(lines):
        asked = questions.tokens(part)
        found = []
        for reader in readers:
            for question, position, source, sample in reader.find(*asked.T).tolist():
                slot = reader.schedule.slot(position)
                ranks = f"{slot.dp_rank}\t{slot.micro_batch}\t{slot.row}"
                if not reader.knows_ranks:
                    ranks = "\t\t"
                place = f"{reader.name}\t{slot.step}\t{position}\t{ranks}\t{source}\t{sample}"
                found.append(f"{part[question]}\t{place}")
        yield found


def _parts(lines: Iterable[str]) -> Iterator[list[str]]:
    kept = filter(None, map(str.strip, lines))
    while part := [*itertools.islice(kept, LINES)]:
        yield part


def left_out(
    readers: Sequence[Reader], questions: Questions, lines: Iterable[str]
) -> list[dict[str, Any]]:
    """What a run reads without the rows that hold what the lines name, stage by stage.

    Returns:
        For each stage {"stage", "rows": that are left out, "steps": that read them, "first_step": the
        first one whose rows change, or None, "before": rows that earlier stages of the same order leave
        out, "ranges": their positions, as `SkippingOrder` takes them}
    """
    asked = np.concatenate(
        [questions.tokens(part) for part in _parts(lines)] or [np.empty((0, 3), int)]
    )
    before: dict[int, int] = {}
    stages = []
    for reader in readers:
        positions = np.unique(reader.find(*asked.T)[:, 1])
        steps = np.unique([reader.schedule.slot(position).step for position in positions.tolist()])
        shifted = before.get(id(reader.order), 0)
        before[id(reader.order)] = shifted + len(positions)
        first_step = None
        if len(steps):
            first_step = int(steps[0])
        if shifted:
            first_step = reader.schedule.first_step
        gaps = np.flatnonzero(np.diff(positions) > 1)
        firsts = positions[np.append(0, gaps + 1)[: len(positions)]]
        stops = positions[np.append(gaps, len(positions) - 1)[: len(positions)]] + 1
        stage = {
            "stage": reader.name,
            "rows": len(positions),
            "steps": len(steps),
            "first_step": first_step,
            "before": shifted,
            "ranges": np.stack([firsts, stops], axis=1).tolist(),
        }
        stages.append(stage)
    return stages
