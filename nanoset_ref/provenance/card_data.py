"""The rows of a card's run, from its token files: what asks for documents and text needs them."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nanoset_ref import megatron
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Rows
from nanoset_ref.provenance.auditing import Stretch
from nanoset_ref.provenance.card import Card, Facts
from nanoset_ref.tokens import Tokens


def stretches_of_card(
    card: Card,
    paths: Sequence[str],
    open_file: Callable[[str], Tokens],
) -> list[Stretch]:
    """The stages of a card's run on its token files.

    Args:
        paths: the files, in the order of the card; of the order "megatron" the prefix of its pair.
        open_file: opens one.

    Raises:
        ValueError: files of other sizes or in another number; an order that cannot be computed;
            rows that disagree with the card's probes.
    """
    facts = card.facts["orders"]
    if any(order["name"] == "megatron" for order in facts):
        rows = [_megatron_rows(card, order, paths) for order in facts]
    else:
        files = [open_file(path) for path in paths]
        card = card.with_files(files)
        rows = [_rows(card, number, files) for number in range(len(facts))]
    for number, dataset in enumerate(rows):
        _check_probes(card, facts[number]["probes"], dataset)
    return [
        Stretch(stage["name"], rows[stage["order"]], card.schedule(stage), stage["steps"])
        for stage in card.facts["stages"]
    ]


def replay(stretches: Sequence[Stretch], step: int) -> Iterator[NDArray[Any]]:
    """The rows of each step from `step` on, integers [rows of the step, row_length], to train on again.

    They are in the order of positions, which is that of `where`: `Schedule` says which rank has which.
    """
    for stretch in stretches:
        for number in range(max(step, stretch.steps.start), stretch.steps.stop):
            yield stretch.dataset.read(np.array(stretch.schedule.positions(number)))


def _rows(card: Card, number: int, files: Sequence[Tokens]) -> Rows:
    facts = card.facts["orders"][number]
    window = card.facts["window"]
    shared = window["row_length"] - window["stride"]
    if shared not in (0, 1):
        raise ValueError(f"{card.name}: rows that share {shared} tokens are not read here")
    order: Any = card.order(number)
    return Nanoset(
        [files[source] for source in card.source_numbers(number)],
        None,
        window["row_length"] - 1,
        card.samples(number),
        facts["seed"],
        order="identity" if facts["name"] == "identity" else order,
        disjoint=shared == 0,
    )


def _megatron_rows(card: Card, facts: Facts, paths: Sequence[str]) -> Rows:
    blend = list(paths)
    if facts.get("weights"):
        blend = [*itertools.chain(*zip(facts["weights"], paths, strict=True))]
    options = {"split": "1,0,0"} | facts.get("options", {})
    config = megatron.NanosetConfig(
        random_seed=facts["seed"],
        sequence_length=card.facts["window"]["stride"],
        data_path=blend,
        split_num_samples=(facts["samples"], 0, 0),
        **options,
    )
    rows = megatron.NanosetBuilder(config).build(["train"])[0]
    if rows is None:
        raise ValueError(f"{paths} hold no sample of {card.name}")
    return rows


def _check_probes(card: Card, probes: Facts, rows: Rows) -> None:
    for position, pair in probes.items():
        found = rows.origin(int(position))
        if [found.source, found.sample] != pair:
            raise ValueError(
                f"these are not the files of {card.name}: position {position} reads file and sample "
                f"{[found.source, found.sample]}, the card says {pair}"
            )
