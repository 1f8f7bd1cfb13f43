"""Run cards: the order of a whole training run in a file of 10 kB, and the queries it answers.

    card = nanoset_ref.Card.load("pythia-1.4b")    # shipped, or the path of a card
    card.where(41_007)                             # step -> rows: file, sample, bytes
    card.when(sample=41_990_144)                   # sample, or bytes of a file -> steps

A card holds the sizes of the token files, how they are cut into rows, the orders that were read,
and the steps and batches of each stage (see `card_facts` and docs/cards.md). Files and samples are
counted from 0, steps from 1. Reading a card loads neither torch nor numba.
"""

import dataclasses
import functools
import operator
from collections.abc import Iterator, Sequence

import numpy as np

from nanoset_ref.io.checks import check_index
from nanoset_ref.io.types import Array, Int64Array, Json
from nanoset_ref.load.document_spans import samples_holding
from nanoset_ref.orders.inverse import find_each
from nanoset_ref.provenance.card_facts import CardFacts, stop_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class CardRow:
    """A row of a run: when it is read, and its bytes.

    Attributes:
        step: optimizer step, from 1.
        position: position in the order, from 0.
        epoch: from 0.
        micro_batch, dp_rank, row: the reader of the row within the step, from 0; None if the card
            does not know the ranks.
        source: number of the file in the card.
        path: name of the file.
        sample: number of the row in the file.
        first_byte, end_byte: the row is bytes [first_byte, end_byte) of the file.
    """

    step: int
    position: int
    epoch: int
    micro_batch: int | None
    dp_rank: int | None
    row: int | None
    source: int
    path: str
    sample: int
    first_byte: int
    end_byte: int


class Card(CardFacts):
    """The card of a run; see `CardFacts` for its arguments and attributes."""

    def where(self, step: int) -> list[CardRow]:
        """List the rows that a step reads, in the order of their positions.

        Raises:
            IndexError: the run has no such step.
            ValueError: see `unchecked_order`.
        """
        return self._rows(*self._reads_of(step))

    def samples_of(self, step: int) -> Int64Array:
        """(source, sample) of the rows that a step reads, int64 [rows, 2], ordered by position.

        Raises: as `where`.
        """
        stage, _, files, samples = self._reads_of(step)
        sources = np.array(self.source_numbers(stage["order"]))
        return np.stack([sources[files], samples], axis=1)

    def _reads_of(self, step: int) -> tuple[Json, Int64Array, Int64Array, Int64Array]:
        """The stage of a step, and its positions, their files (of the order) and samples."""
        stage = self.stage(step)
        positions = np.array(self.schedule(stage).positions(step), dtype=np.int64)
        files, samples = self.order(stage["order"]).lookup(positions)
        return stage, positions, files, samples

    def replay(
        self,
        step: int,
        paths: Sequence[str] | None = None,
        mirror: str | None = None,
    ) -> Iterator[Array]:
        """Read the rows of each step from `step` to the end of the run, to train on them again.

        Args:
            step: the first step.
            paths: the token files, as `open_tokens` takes them, in the order of the card; for the
                order "megatron" the prefix of its pair. None reads the published files.
            mirror: see `fetch_rows`.

        Returns:
            An iterator over integers [rows of the step, row_length], in the order of positions.

        Raises:
            IndexError: the run has no such step.
            ValueError, TokenFileError: these are other files.
        """
        # only a replay reads rows
        from nanoset_ref.provenance.card_segments import segments_of_card
        from nanoset_ref.provenance.published_rows import fetch_rows
        from nanoset_ref.provenance.run_segments import replay
        from nanoset_ref.tokens import open_tokens

        self.stage(step)  # raises now if there is no such step
        if paths is None:
            steps = range(step, self.last_step + 1)
            return (fetch_rows(self, self.where(number), mirror) for number in steps)
        open_file = functools.partial(open_tokens, token_dtype=self.facts["dtype"])
        return replay(segments_of_card(self, paths, open_file), step)

    def when(
        self,
        sample: int | None = None,
        *,
        source: int = 0,
        byte_range: tuple[int, int] | None = None,
    ) -> list[CardRow]:
        """List every row of the run that reads a sample, or bytes, of a file, in order.

        If the run lists a file twice, both entries are found.

        Args:
            sample: number of the row in the file.
            source: number of the file in the card.
            byte_range: bytes [start, stop) of the file, instead of a sample.

        Raises:
            IndexError: no such file, sample or bytes.
            ValueError: neither sample nor bytes, or both; see also `unchecked_order`.
        """
        if (sample is None) == (byte_range is None):
            raise ValueError("ask for a sample or for a byte_range of a file")
        if not self.sources:
            self.unchecked_order(0)  # raises, and names what is missing
        check_index(source, len(self.sources), "source")
        samples = self._samples_at(source, sample, byte_range)
        name = self.sources[source]["name"]
        rows = []
        for stage in self.stages:
            order = self.order(stage["order"])
            stop = min(stop_of(stage), len(order))
            sources = self.source_numbers(stage["order"])
            # the files of the order that have this name
            files = [
                file
                for file, number in enumerate(sources)
                if self.sources[number]["name"] == name
            ]
            wanted_files = np.repeat(files, len(samples)).astype(np.int64)
            one_file = np.arange(samples.start, samples.stop)
            wanted_samples = np.tile(one_file, len(files))
            indices, positions = find_each(order, wanted_files, wanted_samples, stop)
            is_read = positions >= stage["first_position"]
            read = indices[is_read]
            rows += self._rows(
                stage, positions[is_read], wanted_files[read], wanted_samples[read]
            )
        return sorted(rows, key=lambda row: (row.step, row.position))

    def _samples_at(
        self,
        source: int,
        sample: int | None,
        byte_range: tuple[int, int] | None,
    ) -> range:
        """The samples of a file that hold the sample or the bytes in question."""
        file = self.sources[source]
        num_samples = self.num_samples(source)
        if byte_range is None:
            number = check_index(sample or 0, num_samples, "sample")
            return range(number, number + 1)
        start, stop = map(operator.index, byte_range)
        header = file["first_byte"]
        if not header <= start < stop <= file["bytes"]:
            raise IndexError(
                f"there are no tokens at bytes {start}:{stop} of {file['name']}, which has "
                f"{file['bytes']:,} bytes, {header} of them header"
            )
        window = self.facts["window"]
        start_token = (start - header) // self._itemsize
        stop_token = -(-(stop - header) // self._itemsize)
        return range(*samples_holding(start_token, stop_token, num_samples, **window))

    def _rows(
        self,
        stage: Json,
        positions: Int64Array,
        files: Int64Array,
        samples: Int64Array,
    ) -> list[CardRow]:
        """The rows at positions of a stage, from their files (of the order) and samples.

        Args:
            stage: the stage.
            positions: int64 [n].
            files, samples: int64 [n].
        """
        order = self.order(stage["order"])
        schedule = self.schedule(stage)
        numbers = self.source_numbers(stage["order"])
        window = self.facts["window"]
        unknown = {}
        if stage["layout"] is None:
            unknown = dict.fromkeys(["micro_batch", "dp_rank", "row"])
        rows = []
        table = np.stack([positions, files, samples], axis=1)
        for position, file, sample in table.tolist():
            slot = schedule.slot(position)
            source = self.sources[numbers[file]]
            first_byte = (
                source["first_byte"] + sample * window["stride"] * self._itemsize
            )
            row = CardRow(
                **dataclasses.asdict(slot) | unknown,
                epoch=order.epoch_of(position),
                source=numbers[file],
                path=source["name"],
                sample=sample,
                first_byte=first_byte,
                end_byte=first_byte + window["row_length"] * self._itemsize,
            )
            rows.append(row)
        return rows

    def published(
        self,
        source: int,
        first_byte: int,
        end_byte: int,
    ) -> list[tuple[str, int, int]]:
        """(address, start, stop) of each published part of bytes [first_byte, end_byte) of a file.

        [] if the card does not record where the file is published.
        """
        file = self.sources[source]
        if "://" in file["name"]:
            return [(file["name"], first_byte, end_byte)]
        if "parts" not in file:
            return []
        parts = file["parts"]
        size = parts["bytes"]
        ranges = []
        for part in range(first_byte // size, -(-end_byte // size)):
            part_start = part * size
            start = max(first_byte - part_start, 0)
            stop = min(end_byte - part_start, size)
            ranges.append((parts["url"].format(part), start, stop))
        return ranges
