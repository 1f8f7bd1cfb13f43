"""Cards from the configs of other loaders: each has a reader, in a file of its own.

They were read as of Nanotron 2411b022 and the Nanosets of 2024 (2e36d6f), Megatron-LM d98e8a64dd,
GPT-NeoX ea7aefd8, OLMo-core fa6c5014c and llm.c f1e2ace (docs/loaders.md has their months).
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nanoset_ref import train  # loads nothing yet: only YAML needs an extra
from nanoset_ref.io.paths import PathLike, read_json
from nanoset_ref.io.types import Json
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_of_run import add_probes
from nanoset_ref.provenance.llm_c_cards import from_llm_c
from nanoset_ref.provenance.loader_config import (
    LoaderConfig,
    read_command_line,
    tokenizer_facts,
)
from nanoset_ref.provenance.megatron_cards import from_megatron, from_neox
from nanoset_ref.provenance.nanotron_cards import from_nanotron
from nanoset_ref.provenance.olmo_core_cards import from_olmo_core


class ConfigReader(NamedTuple):
    """The functions that make a card from the config of a system.

    Args:
        describe: makes the card's facts from a config.
        version: the commit of the system that was read.
        parse: reads a config file; None: it is YAML.
    """

    describe: Callable[[LoaderConfig], Json]
    version: str
    parse: Callable[[PathLike], Any] | None = None


READERS = {
    "nanotron": ConfigReader(
        functools.partial(from_nanotron, is_main=True), "2411b022"
    ),
    "nanotron-2024": ConfigReader(
        functools.partial(from_nanotron, is_main=False), "2e36d6f"
    ),
    "megatron": ConfigReader(from_megatron, "d98e8a64dd", read_command_line),
    "gpt-neox": ConfigReader(from_neox, "ea7aefd8"),
    "olmo-core": ConfigReader(from_olmo_core, "fa6c5014c", read_json),
    "llm.c": ConfigReader(from_llm_c, "f1e2ace", read_command_line),
}


def card_of_config(
    path: PathLike, loader: str, name: str, date: str, given: Mapping[str, str]
) -> Card:
    """Make the card of a run of another system, with probes if the sizes of all files are known.

    Args:
        path: Nanotron's or GPT-NeoX's YAML, OLMo-core's config.json, or a text with the arguments
            of Megatron-LM or llm.c, such as the script that starts them.
        loader: a key of READERS.
        name: the name of the run.
        date: the year and month of the run.
        given: facts that the config lacks; see `LoaderConfig`.

    Raises:
        ValueError: the config lacks facts (the message names all of them), or a card cannot
            describe the run.
    """
    reader = READERS[loader]
    parse = reader.parse or train.read_yaml
    content = parse(path)
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} is not a config of {loader}: it must hold names with values, and holds a "
            f"{type(content).__name__}"
        )
    try:
        config = LoaderConfig(content, given)
        facts = reader.describe(config)
    except (LookupError, TypeError, AttributeError) as error:
        problem = f"a section is empty or of another type ({error})"
        if isinstance(error, KeyError):
            problem = f"it has no section or field {error}"
        raise ValueError(
            f"{path} is not a config of {loader}: {problem}; --loader names the system that wrote "
            "it"
        ) from error
    config.check()
    by_hand = [f"{key}={value}, given by hand" for key, value in given.items()]
    facts = {
        "card": 1,
        "name": name,
        "date": date,
        "links": [],
        "loader": {"name": loader, "version": reader.version},
        "known": [f"what {Path(path).name} says"],
        **tokenizer_facts(None),
        **facts,
        "inferred": [*facts.get("inferred", []), *by_hand],
    }
    card = Card(facts)
    add_probes(card)
    return card
