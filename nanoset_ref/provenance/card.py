"""Run cards: the order of a whole training run in a file of 10 kB, and the questions that it answers.

    card = nanoset_ref.Card.load("pythia-1.4b")    # shipped, or the path of a card
    card.where(41_007)                             # step -> rows: file, sample, bytes
    card.when(sample=41_990_144)                   # sample, or bytes of a file -> steps

A card holds the sizes of the token files, how they are cut into rows, the orders that were read, and
the steps and batches of each stage. `card_schema.json` describes its fields, docs/cards.md their use.
Files and samples are counted from 0, steps from 1. Reading a card loads neither torch nor numba; an
order that needs them loads them when it is first asked.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nanoset_ref.io.options import whole_number
from nanoset_ref.io.paths import PathLike, read_json, require_regular
from nanoset_ref.load.schedule import Schedule
from nanoset_ref.provenance.card_rules import LARGEST, problems_of_card

Int64Array = NDArray[np.int64]
Facts = dict[str, Any]

SHIPPED = Path(__file__).with_name("cards")
NOT_COMPUTED = {
    "megatron": "its rows are cut from shuffled documents: give the .bin/.idx pair (--data)",
    "unknown": "nobody has published enough to compute its order",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CardRow:
    """A row of a run: when it is read, and where it lies.

    Attributes:
        step: optimizer step, from 1. position: in its order, from 0. epoch: from 0.
        micro_batch, dp_rank, row: the place in the step, from 0; None where the card does not know them.
        source: number of the file in the card. path: its name.
        sample: number of the row in its file. first_byte, end_byte: its bytes [first_byte, end_byte).
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


class CardOrder(Protocol):
    """What a card needs of an order; every `Order` has it."""

    def lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]: ...

    def positions(self, dataset: int, sample: int, until: int | None = None) -> Int64Array: ...

    def epoch_of(self, position: int) -> int: ...


class FileOrder:
    """``IdentityOrder`` without numba: position k reads row k mod n of the files, one after another."""

    def __init__(self, lengths: Sequence[int], samples: int) -> None:
        self._ends: Int64Array = np.cumsum(lengths)
        self._begins = self._ends - np.array(lengths)
        self._samples = samples

    def lookup(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        rows = positions % self._ends[-1]
        files = np.searchsorted(self._ends, rows, side="right")
        return files, rows - self._begins[files]

    def positions(self, dataset: int, sample: int, until: int | None = None) -> Int64Array:
        stop = self._samples if until is None else until
        return np.arange(self._begins[dataset] + sample, stop, self._ends[-1])

    def find_each(
        self, datasets: Int64Array, samples: Int64Array, until: int
    ) -> tuple[Int64Array, Int64Array]:
        from nanoset_ref.orders.finding import in_every_epoch

        places = self._begins[datasets] + samples
        return in_every_epoch(np.arange(len(places)), places, int(self._ends[-1]), until)

    def epoch_of(self, position: int) -> int:
        return position // int(self._ends[-1])


class Card:
    """The card of a run.

    Args:
        facts: the card, parsed from JSON.
        sizes: (file name, bytes) of each file, in the order of the run, where they do not fit in the card.

    Raises:
        ValueError: every field that breaks a rule, by its place; sizes of other files.
    """

    def __init__(self, facts: Facts, sizes: Sequence[Sequence[Any]] | None = None) -> None:
        problems = problems_of_card(facts)
        if problems:
            raise ValueError(f"this is no card: {'; '.join(problems)}")
        self.facts = facts
        self.name: str = facts["name"]
        self.sources: list[Facts] = facts["sources"]
        self._stages: list[Facts] = facts["stages"]
        self._itemsize = np.dtype(facts["dtype"]).itemsize
        if sizes is not None:
            self.sources = self._with_sizes(sizes)
        self.order = functools.cache(self._build_order)

    @classmethod
    def load(cls, card: PathLike, sizes: PathLike | None = None) -> Card:
        """The card in a file, or a shipped one by its name.

        Args:
            sizes: a JSON file of [file name, bytes] pairs in the order of the run, for cards without sizes.

        Raises:
            FileNotFoundError: no such file, and no shipped card of this name; the message lists them.
            ValueError: see `Card`; a card of more than 10 kB.
        """
        path = Path(card)
        if not path.exists():
            path = SHIPPED / f"{card}.json"
        if not path.exists():
            names = ", ".join(shipped_cards())
            raise FileNotFoundError(f"there is no card {card}: give a file, or one of {names}")
        size = require_regular(path)
        if size > LARGEST:
            raise ValueError(f"{path} has {size:,} bytes; a card has at most {LARGEST:,}")
        given = None if sizes is None else read_json(sizes)
        try:
            return cls(read_json(path), given)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def _with_sizes(self, sizes: Any) -> list[Facts]:
        names = [source["name"] for source in self.sources]
        due = self.facts["listed"]["files"] if "listed" in self.facts else len(names)
        is_table = isinstance(sizes, list) and all(map(is_pair, sizes))
        if not is_table or len(sizes) != due:
            raise ValueError(f"sizes are {due} pairs [name, bytes], in the order of the run")
        if names and names != [name for name, _ in sizes]:
            raise ValueError(f"these are sizes of other files; those of the run are {names}")
        known = self.sources or [{}] * due
        return [
            {**source, "name": str(name), "bytes": whole_number(size, str(name), 0)}
            for source, (name, size) in zip(known, sizes, strict=True)
        ]

    def with_files(self, files: Sequence[Any]) -> Card:
        """This card with the sizes of open `Tokens`, in its order.

        Raises:
            ValueError: other sizes or another number of files than the card has.
        """
        sizes = [file.first_byte + file.num_tokens * file.dtype.itemsize for file in files]
        known = [source["bytes"] for source in self.sources]
        wrong = [size for size, due in zip(sizes, known, strict=False) if due not in (None, size)]
        if wrong or (known and len(known) != len(sizes)):
            raise ValueError(
                f"the files of {self.name} have {known} bytes, these have {sizes}: give its own, in "
                f"its order"
            )
        names = [source["name"] for source in self.sources] or [str(file.path) for file in files]
        return Card(self.facts, [*zip(names, sizes, strict=True)])

    def with_ranks(self, schedule: Schedule) -> Card:
        """This run on other ranks: which rows a step reads stays, which rank reads a row changes.

        Args:
            schedule: dp_size, micro_batch_size and accumulation of all stages; its layout holds only
                where the card does not know one.

        Raises:
            ValueError: a step would have other rows than the card's.
        """
        stages = []
        for stage in self._stages:
            if schedule.global_batch_size != stage["batch_size"]:
                raise ValueError(
                    f"a step of {self.name} has {stage['batch_size']} rows; dp_size * "
                    f"micro_batch_size * accumulation gives {schedule.global_batch_size}"
                )
            layout = stage["layout"] or schedule.layout
            ranks = {"dp_size": schedule.dp_size, "micro_batch_size": schedule.micro_batch_size}
            stages.append(stage | ranks | {"layout": layout})
        return self._changed(stages=stages)

    def _changed(self, **fields: Any) -> Card:
        sizes = [(source["name"], source["bytes"]) for source in self.sources]
        is_complete = bool(sizes) and all(size is not None for _, size in sizes)
        return Card(self.facts | fields, sizes if is_complete else None)

    @property
    def num_steps(self) -> int:
        """The last step of the run."""
        last = self._stages[-1]
        return int(last["first_step"] + last["steps"] - 1)

    def stage(self, step: int) -> Facts:
        """The stage that a step belongs to.

        Raises:
            IndexError: the run has no such step.
        """
        for stage in self._stages:
            if stage["first_step"] <= step < stage["first_step"] + stage["steps"]:
                return stage
        first = self._stages[0]["first_step"]
        raise IndexError(
            f"step {step} is not one of the steps {first} to {self.num_steps} of {self.name}"
        )

    def schedule(self, stage: Facts) -> Schedule:
        """The layout of a stage; of one rank where the card does not know it."""
        if stage["layout"] is None:
            rows = {"micro_batch_size": stage["batch_size"]}
        else:
            micro_batch = stage["dp_size"] * stage["micro_batch_size"]
            rows = {name: stage[name] for name in ("layout", "dp_size", "micro_batch_size")}
            rows["batch_accumulation_per_replica"] = stage["batch_size"] // micro_batch
        return Schedule(
            consumed_train_samples=stage["first_position"], first_step=stage["first_step"], **rows
        )

    def lengths(self, number: int) -> list[int]:
        """Rows in each file that an order reads.

        Raises:
            ValueError: the card does not hold their sizes; the message says where they are.
        """
        window = self.facts["window"]
        lengths = []
        for source in self._read_by(number):
            size = source["bytes"]
            if size is None:
                raise self._lacks(f"the size of {source['name']}")
            tokens = (size - source.get("first_byte", 0)) // self._itemsize
            lengths.append(max(0, (tokens - window["row_length"]) // window["stride"] + 1))
        if not lengths:
            listed = self.facts["listed"]
            raise self._lacks(f"the sizes of {listed['files']} files, named in {listed['url']}")
        return lengths

    def _lacks(self, what: str) -> ValueError:
        return ValueError(
            f"the card {self.name} does not hold {what}: `nanoset-ref card complete` fetches sizes "
            f"(then give --sizes), or give the files (--data)"
        )

    def source_numbers(self, number: int) -> Sequence[int]:
        """The sources that an order reads, by their numbers in the card."""
        chosen: list[int] | None = self.facts["orders"][number].get("sources")
        return range(len(self.sources)) if chosen is None else chosen

    def _read_by(self, number: int) -> list[Facts]:
        return [self.sources[source] for source in self.source_numbers(number)]

    def _build_order(self, number: int) -> CardOrder:
        """The order of this number, held against the card's probes; `order` keeps it."""
        order = self.unchecked_order(number)
        wrong = self.wrong_probes(number, order)
        if wrong:
            raise ValueError(
                f"the card {self.name} and its order {number} disagree at position {wrong[0]}, and "
                f"at {len(wrong) - 1} other probes: the sizes or the order are not those of the run"
            )
        return order

    def unchecked_order(self, number: int) -> CardOrder:
        """The order of this number, whatever the probes say.

        Raises:
            ValueError: it cannot be computed from the card; see `lengths`.
        """
        facts = self.facts["orders"][number]
        name = facts["name"]
        if name in NOT_COMPUTED:
            raise ValueError(f"{self.name}: {NOT_COMPUTED[name]}")
        lengths = self.lengths(number)
        samples = self.samples(number)
        if not any(lengths):
            raise ValueError(f"{self.name}: the files of order {number} hold no row")
        if name == "identity":
            return FileOrder(lengths, samples)
        from nanoset_ref.orders import build_order  # loads numba

        options = facts.get("options", {})
        weights = facts.get("weights")
        try:
            return build_order(name, lengths, weights, samples, facts["seed"], **options)
        except TypeError as error:
            raise ValueError(f"{self.name}: the options of order {number}: {error}") from error

    def samples(self, number: int) -> int:
        """The positions of an order: as the card says, or else as many as its stages read."""
        given: int | None = self.facts["orders"][number]["samples"]
        if given is not None:
            return given
        stops = [stop_of(stage) for stage in self._stages if stage["order"] == number]
        return max(stops, default=0)

    def wrong_probes(self, number: int, order: CardOrder) -> list[int]:
        """The probed positions at which an order gives other pairs than the card."""
        probes = self.facts["orders"][number]["probes"]
        positions = np.array([*map(int, probes)], dtype=np.int64)
        found = np.stack(order.lookup(positions), axis=1)
        differ = (found != np.array([*probes.values()]).reshape(-1, 2)).any(axis=1)
        wrong: list[int] = positions[differ].tolist()
        return wrong

    def where(self, step: int) -> list[CardRow]:
        """The rows that a step reads, in the order of their positions.

        Raises:
            IndexError: the run has no such step. ValueError: see `unchecked_order`.
        """
        stage = self.stage(step)
        positions = self.schedule(stage).positions(step)
        pairs = self._pairs(stage, positions)
        return [
            self._row(stage, k, *pair) for k, pair in zip(positions, pairs.tolist(), strict=True)
        ]

    def samples_of(self, step: int) -> Int64Array:
        """(source, sample) of the rows that a step reads, int64 [rows, 2], in the order of positions.

        Raises: as `where`.
        """
        stage = self.stage(step)
        pairs = self._pairs(stage, self.schedule(stage).positions(step))
        pairs[:, 0] = np.array(self.source_numbers(stage["order"]))[pairs[:, 0]]
        return pairs

    def _pairs(self, stage: Facts, positions: range) -> Int64Array:
        """(file of the order, sample) at positions, int64 [positions, 2]."""
        order = self.order(stage["order"])
        return np.stack(order.lookup(np.array(positions, dtype=np.int64)), axis=1)

    def replay(
        self, step: int, paths: Sequence[str] | None = None, mirror: str | None = None
    ) -> Iterator[NDArray[Any]]:
        """The rows of each step from `step` to the end of the run, for training on them again.

        Args:
            paths: its token files, as `open_tokens` takes them, in the order of the card; of the
                order "megatron" the prefix of its pair. None: read them where they are public.
            mirror: see `fetch_rows`.

        Returns:
            An iterator over integers [rows of the step, row_length], in the order of positions.

        Raises:
            IndexError: the run has no such step. ValueError, TokenFileError: other files.
        """
        from nanoset_ref.provenance.card_data import replay, stretches_of_card  # loads numba
        from nanoset_ref.provenance.card_rows import fetch_rows
        from nanoset_ref.tokens import open_tokens

        self.stage(step)
        if paths is None:
            steps = range(step, self.num_steps + 1)
            return (fetch_rows(self, self.where(number), mirror) for number in steps)
        dtype = self.facts["dtype"]
        stretches = stretches_of_card(self, paths, lambda path: open_tokens(path, dtype))
        return replay(stretches, step)

    def when(
        self,
        sample: int | None = None,
        *,
        source: int = 0,
        byte_range: tuple[int, int] | None = None,
    ) -> list[CardRow]:
        """Every row of the run that reads a sample, or bytes, of a file, in the order of the run.

        A file that the run lists twice is found at both places.

        Args:
            sample: number of the row in its file.
            source: number of the file in the card.
            byte_range: instead of a sample, bytes [first, last) of the file.

        Raises:
            IndexError: no such file, sample or bytes.
            ValueError: neither sample nor bytes, or both; see `unchecked_order`.
        """
        if (sample is None) == (byte_range is None):
            raise ValueError("ask for a sample or for a byte_range of a file")
        if not 0 <= source < len(self.sources):
            self.lengths(0)  # says what is missing where the card names no file
            raise IndexError(f"there is no source {source}: there are {len(self.sources)}")
        found = []
        for stage in self._stages:
            for place, other in enumerate(self._read_by(stage["order"])):
                if other["name"] == self.sources[source]["name"]:
                    wanted = self._samples_at(stage["order"], place, sample, byte_range)
                    found += [row for one in wanted for row in self._read_in(stage, place, one)]
        return sorted(found, key=lambda row: (row.step, row.position))

    def _samples_at(
        self, number: int, place: int, sample: int | None, byte_range: tuple[int, int] | None
    ) -> range:
        """The samples of an order's file that are asked for."""
        length = self.lengths(number)[place]
        source = self._read_by(number)[place]
        if sample is not None:
            if not 0 <= sample < length:
                raise IndexError(f"there is no sample {sample} in {source['name']}: {length:,}")
            return range(sample, sample + 1)
        first, last = byte_range or (0, 0)
        if not source.get("first_byte", 0) <= first < last <= source["bytes"]:
            raise IndexError(
                f"there are no tokens at bytes {first}:{last} of {source['name']}, which has "
                f"{source['bytes']:,} bytes, {source.get('first_byte', 0)} of them header"
            )
        window = self.facts["window"]
        begin = (first - source.get("first_byte", 0)) // self._itemsize
        end = -(-(last - source.get("first_byte", 0)) // self._itemsize)
        lowest = max(0, -(-(begin - window["row_length"] + 1) // window["stride"]))
        return range(lowest, min(length, -(-end // window["stride"])))

    def _read_in(self, stage: Facts, place: int, sample: int) -> Iterator[CardRow]:
        order = self.order(stage["order"])
        for position in order.positions(place, sample, stop_of(stage)).tolist():
            if position >= stage["first_position"]:
                yield self._row(stage, position, place, sample)

    def _row(self, stage: Facts, position: int, place: int, sample: int) -> CardRow:
        slot = self.schedule(stage).slot(position)
        number = self.source_numbers(stage["order"])[place]
        source = self.sources[number]
        window = self.facts["window"]
        begin = source.get("first_byte", 0) + sample * window["stride"] * self._itemsize
        knows_ranks = stage["layout"] is not None
        return CardRow(
            step=slot.step,
            position=position,
            epoch=self.order(stage["order"]).epoch_of(position),
            micro_batch=slot.micro_batch if knows_ranks else None,
            dp_rank=slot.dp_rank if knows_ranks else None,
            row=slot.row if knows_ranks else None,
            source=number,
            path=source["name"],
            sample=sample,
            first_byte=begin,
            end_byte=begin + window["row_length"] * self._itemsize,
        )

    def published(self, source: int, first_byte: int, end_byte: int) -> list[tuple[str, int, int]]:
        """(address, first, last) of the parts that bytes [first_byte, end_byte) of a file are
        published in; [] where the card does not know them.
        """
        parts = self.sources[source].get("parts")
        if parts is None:
            return []
        size = parts["bytes"]
        found = []
        for part in range(first_byte // size, -(-end_byte // size)):
            begin = part * size
            first = max(first_byte - begin, 0)
            found.append((parts["url"].format(part), first, min(end_byte - begin, size)))
        return found


def is_pair(value: Any) -> bool:
    """Whether this is a list or tuple of two."""
    return isinstance(value, (list, tuple)) and len(value) == 2


def stop_of(stage: Facts) -> int:
    """The position after the last one of a stage."""
    return int(stage["first_position"] + stage["steps"] * stage["batch_size"])


def shipped_cards() -> list[str]:
    """The names of the cards in this package."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))
