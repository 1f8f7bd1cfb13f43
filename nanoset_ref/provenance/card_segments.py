"""The stages of a card as segments of a run, on its token files."""

from collections.abc import Callable, Sequence

from nanoset_ref import megatron
from nanoset_ref.io.types import Json
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Rows
from nanoset_ref.megatron.nanoset_config import interleave_weights
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.olmo_core_rows import OLMoCorePackedRows
from nanoset_ref.provenance.run_segments import RunSegment
from nanoset_ref.tokens import Tokens, open_tokens


def segments_of_card(
    card: Card,
    paths: Sequence[str],
    open_file: Callable[[str], Tokens],
) -> list[RunSegment]:
    """Make a segment of each stage of a card, on its token files.

    Args:
        card: the card.
        paths: the files, in the order of the card; for the order "megatron" the prefix of its pair.
        open_file: opens a file.

    Raises:
        ValueError: files of other sizes or in another number; an order that cannot be computed;
            rows that disagree with the card's probes.
    """
    orders = card.facts["orders"]
    datasets: list[Rows]
    if any(order["name"] == "megatron" for order in orders):
        datasets = [_megatron_rows(card, order, paths) for order in orders]
    else:
        files = [open_file(path) for path in paths]
        card = card.with_files(files)
        datasets = []
        for number, order in enumerate(orders):
            if order["name"] == "olmo_core_packed":
                datasets.append(_packed_rows(card, number, paths))
            else:
                datasets.append(_rows(card, number, files))
    for order, dataset in zip(orders, datasets, strict=True):
        for position, pair in order["probes"].items():
            origin = dataset.origin(int(position))
            read = [origin.source, origin.sample]
            if read != pair:
                raise ValueError(
                    f"these are not the files of {card.name}: position {position} reads file and "
                    f"sample {read}, but the card says {pair}"
                )
    return [
        RunSegment(
            stage["name"],
            datasets[stage["order"]],
            card.schedule(stage),
            stage["steps"],
        )
        for stage in card.stages
    ]


def _rows(
    card: Card,
    number: int,
    files: Sequence[Tokens],
) -> Rows:
    """The rows that order `number` of a card reads from open files."""
    window = card.facts["window"]
    shared = window["row_length"] - window["stride"]
    if shared not in (0, 1):
        raise ValueError(
            f"{card.name}: rows that share {shared} tokens are not read here"
        )
    return Nanoset(
        [files[source] for source in card.source_numbers(number)],
        None,
        window["row_length"] - 1,
        order=card.order(number),
        disjoint=shared == 0,
    )


def _packed_rows(
    card: Card,
    number: int,
    paths: Sequence[str],
) -> Rows:
    """The rows that OLMo-core packs from files, whose documents end with an id of the card."""
    facts = card.facts["orders"][number]
    options = facts.get("options", {})
    length = card.facts["window"]["row_length"]
    try:
        eos_token_id = options["eos_token_id"]
        files = [open_tokens(path, card.facts["dtype"], eos_token_id) for path in paths]
        num_positions = card.num_positions(number)
        return OLMoCorePackedRows(files, length, num_positions, facts["seed"], options)
    except KeyError as error:
        raise ValueError(
            f"{card.name}: the options of order {number} lack {error}"
        ) from error


def _megatron_rows(
    card: Card,
    order: Json,
    paths: Sequence[str],
) -> Rows:
    """The rows that an order "megatron" reads from .bin/.idx pairs, or says from .idx alone."""
    options = {"split": "1,0,0"} | order.get("options", {})
    config = megatron.NanosetConfig(
        random_seed=order["seed"],
        sequence_length=card.facts["window"]["stride"],
        data_path=interleave_weights(paths, order.get("weights")),
        split_num_samples=(order["samples"], 0, 0),
        **options,
    )
    rows = megatron.NanosetBuilder(config, index_only=True).build(["train"])[0]
    if rows is None:
        raise ValueError(
            f"{paths} hold no sample of {card.name}: give the pairs of the run"
        )
    return rows
