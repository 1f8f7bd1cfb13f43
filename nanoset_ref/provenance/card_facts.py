"""The facts of a run card: the files, the rows they are cut into, the orders, and the stages.

`card_schema.json` describes the fields of a card, `card_validation` checks them.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.paths import PathLike, file_size, read_json
from nanoset_ref.io.types import Int64Array, Json
from nanoset_ref.load.schedule import Layout, Schedule
from nanoset_ref.orders import Order, build_order
from nanoset_ref.orders.plans import fingerprint_of
from nanoset_ref.provenance.card_validation import (
    MAX_CARD_BYTES,
    problems_of_card,
)
from nanoset_ref.tokens.interface import count_samples

SHIPPED = Path(__file__).with_name("cards")
NOT_COMPUTED = {
    "megatron": "its rows are cut from shuffled documents: give its .idx, or the .bin/.idx pair "
    "(--data)",
    "olmo_core_packed": "its rows are packed from whole documents: give the files (--data)",
    "unknown": "nobody has published enough to compute its order",
}


class CardFacts:
    """A checked card, its orders and its schedules.

    Args:
        facts: the card, parsed from JSON.
        sizes: (file name, bytes) of each file, in the order of the run, where a list of them would
            make the card larger than 10 kB.

    Attributes:
        facts: the card as given.
        name: the name of the run.
        sources: the files. Each has "name", "bytes" (None: unknown) and "first_byte".
        stages: the stages, as in the card.

    Raises:
        ValueError: a field breaks a rule (the message names every such field), or the sizes belong
            to other files.
    """

    def __init__(
        self, facts: Json, sizes: Sequence[Sequence[Any]] | None = None
    ) -> None:
        problems = problems_of_card(facts)
        if problems:
            raise ValueError(f"this is not a card: {'; '.join(problems)}")
        self.facts = facts
        self.name: str = facts["name"]
        self.stages: list[Json] = facts["stages"]
        self.sources: list[Json] = [
            {"first_byte": 0} | source for source in facts["sources"]
        ]
        self._itemsize = np.dtype(facts["dtype"]).itemsize
        self._sizes = sizes
        if sizes is not None:
            self.sources = self._with_sizes(sizes)
        self.order = functools.cache(self._build_order)

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy has other orders if its facts are changed
        return type(self), (self.facts, self._sizes)

    @classmethod
    def load(cls, card: PathLike, sizes: PathLike | None = None) -> Self:
        """Load a card from a file, or a shipped card by its name.

        Args:
            card: the path, or the name.
            sizes: a JSON file of [file name, bytes] pairs in the order of the run, for a card
                without sizes.

        Raises:
            FileNotFoundError: no such file, and no shipped card of this name; the message lists
                the shipped cards.
            ValueError: see the class; or the card has more than 10 kB.
        """
        path = Path(card)
        # a folder of a card's name, such as a model's, is no card
        if not path.exists() or path.is_dir():
            path = SHIPPED / f"{card}.json"
        if not path.exists():
            names = ", ".join(shipped_cards())
            raise FileNotFoundError(
                f"there is no card {card}: give a file (nanoset-ref card makes one of a config or "
                f"of a folder of checkpoints), or one of {names}"
            )
        size = file_size(path)
        if size > MAX_CARD_BYTES:
            raise ValueError(
                f"{path} has {size:,} bytes; a card has at most {MAX_CARD_BYTES:,}"
            )
        facts = read_json(path)
        known_sizes = None if sizes is None else read_json(sizes)
        try:
            return cls(facts, known_sizes)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def _with_sizes(self, sizes: Any) -> list[Json]:
        """The sources with the sizes from a table of [name, bytes]."""
        names = [source["name"] for source in self.sources]
        listed = self.facts.get("listed", {})
        count = listed.get("files", len(names))
        is_table = isinstance(sizes, list) and all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in sizes
        )
        if not is_table or len(sizes) != count:
            raise ValueError(
                f"sizes are {count} pairs [name, bytes], in the order of the run"
            )
        if names and names != [name for name, _ in sizes]:
            raise ValueError(f"these are sizes of other files; the run has {names}")
        fingerprint = fingerprint_of([size for _, size in sizes])
        if listed.get("fingerprint") not in (None, fingerprint):
            raise ValueError(
                f"these are not the sizes that the card {self.name} was completed with: give the "
                "files of the run, or their sizes, in its order"
            )
        known = self.sources or [{"first_byte": 0}] * count
        return [
            source | {"name": str(name), "bytes": whole_number(size, str(name), 0)}
            for source, (name, size) in zip(known, sizes, strict=True)
        ]

    def with_files(self, files: Sequence[Any]) -> Self:
        """Take the sizes from the open files of the run.

        Args:
            files: `Tokens`, in the order of the card.

        Raises:
            ValueError: other sizes or checksums, or another number of files, than in the card; or
                files of the same names in another order.
        """
        given = [file.path.name for file in files]
        listed = [source["name"].rpartition("/")[2] for source in self.sources]
        if given != listed and sorted(given) == sorted(listed):
            raise ValueError(
                f"the files of {self.name} are {listed}, in this order; got {given}"
            )
        sizes = [num_bytes(file) for file in files]
        known = [source["bytes"] for source in self.sources] or sizes
        differ = len(known) != len(sizes)
        for recorded, size in zip(known, sizes, strict=False):
            differ = differ or recorded not in (None, size)
        if differ:
            raise ValueError(
                f"the files of {self.name} have {known} bytes, but these have {sizes}: give the "
                "files of the run, in its order"
            )
        for source, file in zip(self.sources, files, strict=False):
            recorded = source.get("checksum") or ""
            algorithm = recorded.partition(":")[0]
            actual = file.checksum or ""
            if actual.startswith(f"{algorithm}:") and actual != recorded:
                raise ValueError(
                    f"{file.path} has the checksum {actual}, but {source['name']} of {self.name} "
                    f"has {recorded}: give the files of the run, in its order"
                )
        names = [source["name"] for source in self.sources] or [
            str(file.path) for file in files
        ]
        return type(self)(self.facts, list(zip(names, sizes, strict=True)))

    def with_ranks(self, schedule: Schedule, layout: Layout | None = None) -> Self:
        """Spread the same steps over other ranks.

        A step reads the same rows; which rank reads a row changes.

        Args:
            schedule: dp_size, micro_batch_size and accumulation of all stages. Its layout applies
                only to stages whose layout the card does not know.
            layout: the layout of all stages; None: that of the card.

        Raises:
            ValueError: a step would have another number of rows than in the card; or the schedule
                does not begin at step 1.
        """
        if schedule.consumed_train_samples or schedule.first_step != 1:
            raise ValueError(
                "consumed_train_samples and first_step come from the card; drop them"
            )
        stages = []
        for stage in self.stages:
            if schedule.global_batch_size != stage["batch_size"]:
                raise ValueError(
                    f"a step of {self.name} has {stage['batch_size']} rows: dp_size * "
                    "micro_batch_size * batch_accumulation_per_replica must be that number, and is "
                    f"{schedule.global_batch_size}"
                )
            ranks = {
                "dp_size": schedule.dp_size,
                "micro_batch_size": schedule.micro_batch_size,
                "layout": layout or stage["layout"] or schedule.layout,
            }
            stages.append(stage | ranks)
        return self._with_stages(stages)

    def with_layout(self, layout: Layout) -> Self:
        """Spread the same steps over the ranks of the card in another layout.

        Raises:
            ValueError: the card does not know the ranks.
        """
        if any(stage["layout"] is None for stage in self.stages):
            raise ValueError(
                f"the card {self.name} does not know the ranks of the run: with --layout, give "
                "--dp-size and --micro-batch-size"
            )
        return self._with_stages([stage | {"layout": layout} for stage in self.stages])

    def _with_stages(self, stages: list[Json]) -> Self:
        """The same card with other stages, and with the sizes that are known."""
        sizes = [(source["name"], source["bytes"]) for source in self.sources]
        is_complete = bool(sizes) and all(size is not None for _, size in sizes)
        return type(self)(
            self.facts | {"stages": stages}, sizes if is_complete else None
        )

    @property
    def last_step(self) -> int:
        """The last step of the run."""
        return steps_of(self.stages[-1])[-1]

    def stage(self, step: int) -> Json:
        """The stage that holds a step.

        Raises:
            IndexError: the run has no such step.
        """
        for stage in self.stages:
            if step in steps_of(stage):
                return stage
        first = self.stages[0]["first_step"]
        raise IndexError(
            f"step {step} is not one of the steps {first} to {self.last_step} of {self.name}"
        )

    def schedule(self, stage: Json) -> Schedule:
        """The schedule of a stage; of a single rank if the card does not know the layout."""
        if stage["layout"] is None:
            ranks = {"micro_batch_size": stage["batch_size"]}
        else:
            rows = stage["dp_size"] * stage["micro_batch_size"]
            ranks = {
                name: stage[name] for name in ("layout", "dp_size", "micro_batch_size")
            }
            ranks["batch_accumulation_per_replica"] = stage["batch_size"] // rows
        return Schedule(
            consumed_train_samples=stage["first_position"],
            first_step=stage["first_step"],
            **ranks,
        )

    def lengths(self, order_number: int) -> list[int]:
        """The samples in each file that an order of the card reads.

        Raises:
            ValueError: the card does not hold the sizes; the message names the place that has them.
        """
        if not self.sources:
            listed = self.facts["listed"]
            raise ValueError(
                f"the card {self.name} does not hold the sizes of {listed['files']} files, named "
                f"in {listed['url']}: `nanoset-ref card complete` fetches sizes (then give "
                "--sizes), or give the files (--data)"
            )
        return [
            self.num_samples(source) for source in self.source_numbers(order_number)
        ]

    def num_samples(self, source: int) -> int:
        """The samples in a file; ValueError if the card does not hold its size."""
        file = self.sources[source]
        if file["bytes"] is None:
            raise ValueError(
                f"the card {self.name} does not hold the size of {file['name']}: give the files "
                "(--data)"
            )
        tokens = (file["bytes"] - file["first_byte"]) // self._itemsize
        return count_samples(tokens, **self.facts["window"])

    def source_numbers(self, order_number: int) -> Sequence[int]:
        """The sources that an order reads, by their numbers in the card."""
        listed: list[int] | None = self.facts["orders"][order_number].get("sources")
        return range(len(self.sources)) if listed is None else listed

    def _build_order(self, order_number: int) -> Order:
        """Build an order and compare it with the card's probes; `self.order` caches it."""
        order = self.unchecked_order(order_number)
        wrong = self.wrong_probes(order_number, order)
        if wrong:
            raise ValueError(
                f"order {order_number} of {self.name} disagrees with its probe at position "
                f"{wrong[0]} and {len(wrong) - 1} others: the sizes or the order differ from the "
                "run's"
            )
        return order

    def unchecked_order(self, order_number: int) -> Order:
        """Build an order without comparing it with the probes.

        Raises:
            ValueError: the order cannot be computed from the card; see also `lengths`.
        """
        facts = self.facts["orders"][order_number]
        name = facts["name"]
        if name in NOT_COMPUTED:
            raise ValueError(f"{self.name}: {NOT_COMPUTED[name]}")
        lengths = self.lengths(order_number)
        if not any(lengths):
            raise ValueError(
                f"{self.name}: the files of order {order_number} hold no sample"
            )
        try:
            return build_order(
                name,
                lengths,
                facts.get("weights"),
                self.num_positions(order_number),
                facts["seed"],
                **facts.get("options", {}),
            )
        except ValueError as error:
            raise ValueError(f"{self.name}: order {order_number}: {error}") from error

    def num_positions(self, order_number: int) -> int:
        """The positions of an order: as in the card, or as many as its stages read."""
        recorded: int | None = self.facts["orders"][order_number]["samples"]
        if recorded is not None:
            return recorded
        stops = [
            stop_of(stage) for stage in self.stages if stage["order"] == order_number
        ]
        return max(stops, default=0)

    def wrong_probes(self, order_number: int, order: Order) -> list[int]:
        """The probed positions at which an order reads another (file, sample) than in the card."""
        probes = self.facts["orders"][order_number]["probes"]
        positions = np.array(list(map(int, probes)), dtype=np.int64)
        pairs = np.stack(order.lookup(positions), axis=1)
        differ = (pairs != np.array(list(probes.values())).reshape(-1, 2)).any(axis=1)
        return positions[differ].tolist()


def first_occurrences(keys: Sequence[Any]) -> Int64Array:
    """For each key, the number of its first occurrence: a b a -> 0 1 0."""
    firsts: dict[Any, int] = {}
    numbers = [firsts.setdefault(key, number) for number, key in enumerate(keys)]
    return np.array(numbers, dtype=np.int64)


def num_bytes(file: Any) -> int:
    """The size of open `Tokens`, their header included."""
    return file.first_byte + file.num_tokens * file.dtype.itemsize


def steps_of(stage: Json) -> range:
    """The numbers of a stage's steps."""
    first = stage["first_step"]
    return range(first, first + stage["steps"])


def stop_of(stage: Json) -> int:
    """The position after the last one of a stage."""
    return stage["first_position"] + stage["steps"] * stage["batch_size"]


def shipped_cards() -> list[str]:
    """The names of the cards in this package."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))
