"""Run cards on the command line: card and compare, and the output of other commands on a card."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nanoset_ref import preprocess, provenance, tokens, train
from nanoset_ref.cli.arguments import UsageError
from nanoset_ref.cli.file_commands import FileOptions
from nanoset_ref.io.error_text import pluralize, shorten_paths
from nanoset_ref.io.files import write_text
from nanoset_ref.io.overwriting import refuse_existing, refuse_input, refuse_same
from nanoset_ref.io.types import Json

# each loads its modules when used
from nanoset_ref.provenance.card_validation import MAX_CARD_BYTES

if TYPE_CHECKING:
    from nanoset_ref.cli.run_options import RunOptions
    from nanoset_ref.provenance import Card, CardRow

Loader = Literal[
    "nanoset_ref",
    "nanotron",
    "nanotron-2024",
    "megatron",
    "gpt-neox",
    "olmo-core",
    "llm.c",
]
VERDICTS = {True: "holds ", False: "BROKEN", None: "LACKS "}


def show_card_step(options: FileOptions, card: Card, step: int) -> None:
    """Print the rows of a step; if they lie one after another, also their bytes as a whole."""
    rows = card.where(step)
    summary = f"step {step:,} of {card.name} reads {len(rows):,} rows"
    lines = [_line(row) for row in rows]
    ends = [(row.source, row.end_byte) for row in rows[:-1]]
    if ends == [(row.source, row.first_byte) for row in rows[1:]]:
        first = rows[0]
        end_byte = rows[-1].end_byte
        summary += (
            f", one after another: {first.path} bytes {first.first_byte}:{end_byte}"
        )
        parts = card.published(first.source, first.first_byte, end_byte)
        part_lines = [f"    {url} bytes {start}:{stop}" for url, start, stop in parts]
        lines = part_lines + lines
    options.print_result(rows, summary, *lines)


def show_card_when(
    options: FileOptions,
    card: Card,
    source: int,
    sample: int | None,
    byte_range: tuple[int, int] | None,
) -> None:
    """Print the steps that read a sample, or bytes."""
    rows = card.when(sample, source=source, byte_range=byte_range)
    lines = [f"step {row.step:,}, {_line(row)}" for row in rows]
    options.print_result(rows, *(lines or ["this run does not read it"]))


def show_public_rows(
    options: RunOptions,
    card: Card,
    step: int | None,
    sample: int | None,
    source: int,
    mirror: str | None,
) -> None:
    """Print the text of a step, or of a sample that the run reads, from the published files."""
    rows = card.when(sample, source=source)[:1] if step is None else card.where(step)
    tokenizer = options.chosen_tokenizer(card.facts["tokenizer"]["name"])
    texts = []
    lines = []
    for row, ids in zip(rows, provenance.fetch_rows(card, rows, mirror), strict=True):
        text = tokenizer.decode(ids.tolist())
        texts.append(dataclasses.asdict(row) | {"text": text})
        lines.append(f"--- {_line(row)}\n{text}")
    options.print_result(texts, *lines)


def show_skipped_rows(options: FileOptions, stages: list[Json]) -> None:
    """Print what `provenance.rows_to_skip` found in each stage."""
    lines = []
    for stage in stages:
        name = f"stage {stage['stage']}: "
        if stage["first_step"] is None:
            lines.append(f"{name}reads none of these rows, and stays as it is")
            continue
        if stage["ledger_changes"]:
            lines.append(
                f"{name}all rows from step {stage['first_step']:,} on change, because it continues "
                "from what earlier stages read: make its ledger again (ledger_of), and ask again"
            )
            continue
        shift = stage["before"] + stage["rows"]
        lines += [
            f"{name}{pluralize(stage['rows'], 'row')} removed, "
            f"in {pluralize(stage['steps'], 'step')}",
            "    if their loss is masked instead, only these steps change",
            f"    from step {stage['first_step']:,} on later rows move forward, by "
            f"{pluralize(shift, 'position')} at the end of the stage",
        ]
    options.print_result(stages, *lines)


def _line(row: CardRow) -> str:
    """Where and when a row is read, as text."""
    text = f"position {row.position}, epoch {row.epoch}"
    if row.dp_rank is not None:
        text = f"rank {row.dp_rank} micro-batch {row.micro_batch} row {row.row}: {text}"
    return (
        f"{text}, {row.path} sample {row.sample}, bytes {row.first_byte}:{row.end_byte}"
    )


def show_card_audit(options: FileOptions, card: Card) -> int:
    """Print the checks of a card; return the exit code, 1 if one of them fails."""
    checks = provenance.audit_card(card)
    lines = [f"{card.name}: {card.last_step:,} steps"]
    lines += [f"  {VERDICTS[check['holds']]}  {check['detail']}" for check in checks]
    for field in ("inferred", "unknown"):
        lines += [f"  {field}: {text}" for text in card.facts[field]]
    ok = all(check["holds"] for check in checks)
    result: Json = {"ok": ok, "checks": checks, "uneven": None, "spread": []}
    if ok:
        paths = shorten_paths([source["name"] for source in card.sources])
        result["uneven"] = provenance.uneven_in_card(card)
        result["spread"] = provenance.spread_of_card(card)
        if result["uneven"] is None:
            lines.append(
                "  too many samples to count which are read more or less often than others"
            )
        else:
            lines += [uneven.line(paths) for uneven in result["uneven"]]
        for stage, spreads in zip(card.stages, result["spread"], strict=True):
            lines += [
                f"stage {stage['name']}:",
                *provenance.spread_lines(spreads, paths),
            ]
    options.print_result(result, *lines)
    return 0 if ok else 1


def compare(
    first: str, second: str, /, *, sizes: Sequence[str] = (), options: FileOptions
) -> int:
    """The differences of two run cards, and the first step at which they read different rows.

    Exit code 1 if they read different rows, or if that cannot be computed.

    Args:
        first: a card: a file, or the name of a shipped one.
        second: the card to compare it with.
        sizes: for cards without sizes: what `card complete` wrote for the first and the second.
    """
    if len(sizes) > 2:
        raise UsageError(f"--sizes takes one file for each card, got {len(sizes)}")
    sizes_of_first, sizes_of_second = [*sizes, None, None][:2]
    one = provenance.Card.load(first, sizes_of_first)
    two = provenance.Card.load(second, sizes_of_second)
    comparison = provenance.compare_two_cards(one, two)
    lines = [f"  {part}" for part in comparison["differences"]]
    if comparison["problem"]:
        lines.append(
            f"the first step that differs cannot be computed: {comparison['problem']}"
        )
    elif comparison["step"] is None:
        lines.append(
            f"{one.name} and {two.name} read the same rows in all {comparison['steps']:,} steps"
        )
        lines += [
            f"    if {a} and {b} are the same: they have one size, and no checksums to compare"
            for a, b in comparison["assumed"]
        ]
    else:
        lines.append(
            f"from step {comparison['step']:,} on they read different rows: "
            f"{comparison['rows']:,} of that step differ"
        )
    options.print_result(comparison, *lines)
    return 1 if comparison["step"] or comparison["problem"] else 0


def card(
    config: str,
    /,
    *,
    name: str,
    date: str,
    loader: Loader = "nanoset_ref",
    given: Sequence[str] = (),
    output: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Write the card of a run from its config.

    Args:
        config: the YAML file of nanoset_ref.train, or a folder of its checkpoints, whose token
            files are opened for their sizes and probes; or the config of another loader: its YAML,
            OLMo-core's config.json, or a text with the arguments of Megatron-LM or llm.c.
        loader: the loader that the config belongs to.
        given: NAME=VALUE, facts that another loader's config lacks; an error names them.
        name: the name of the run: lower-case letters, digits, dots and hyphens.
        date: the year and month of the run, such as 2026-11.
        output: the file to write; default: standard output.
        overwrite: replace an existing file.
    """
    inputs: list[Any] = [config]
    if loader == "nanoset_ref":
        if given:
            raise UsageError("--given is for configs of other --loader; drop it")
        card, files = _card_of_own_config(config, name, date)
        for path in files:
            inputs += [path, *tokens.companions_of(path)]
    elif config.endswith(".py") or Path(config).is_dir():
        raise ValueError(
            f"{config} is a folder or Python script: give the config of the run, such as "
            "OLMo-core's config.json"
        )
    else:
        values = dict(map(_name_and_value, given))
        card = provenance.card_of_config(config, loader, name, date, values)
    text = _text_of(card)
    if output is None:
        print(text, end="")
        return
    refuse_existing(output, overwrite)
    refuse_input(output, inputs)
    write_text(output, text)


def _text_of(card: Card) -> str:
    """A card as JSON; ValueError if it would have more than 10 kB."""
    text = json.dumps(card.facts, indent=1) + "\n"
    if len(text) > MAX_CARD_BYTES:
        text = json.dumps(card.facts, separators=(",", ":")) + "\n"
    if len(text) > MAX_CARD_BYTES:
        raise ValueError(
            f"this card would have {len(text):,} bytes, but a card has at most {MAX_CARD_BYTES:,}: "
            "publish the list of its files and name it in `listed`, or describe fewer stages "
            "(docs/cards.md)"
        )
    return text


def _card_of_own_config(config: str, name: str, date: str) -> tuple[Card, set[Path]]:
    """The card of a run of nanoset_ref.train, and the token files of the run."""
    try:
        settings = train.load_config(config)
    except train.ConfigError as error:
        raise ValueError(
            f"{error}; --loader names another system that wrote it"
        ) from error
    tokenizer = None
    if settings.tokenizer:
        tokenizer = settings.tokenizer.tokenizer_name_or_path
    segments = provenance.segments_of_config(settings, train.recorded_data(config))
    card = provenance.card_of_segments(segments, name, date, tokenizer)
    if tokenizer:
        encoder = preprocess.Encoder(preprocess.load_tokenizer(tokenizer))
        card.facts["tokenizer"]["hash"] = encoder.identity["tokenizer"]
    return card, {file.path for segment in segments for file in segment.dataset.files}


def _name_and_value(text: str) -> tuple[str, str]:
    """ "NAME=VALUE" -> ("NAME", "VALUE")."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--given takes NAME=VALUE, got {text!r}")
    return name, value


def card_complete(
    card: str,
    /,
    *,
    output: Path,
    card_output: Path | None = None,
    names: Path | None = None,
    mirror: str | None = None,
    overwrite: bool = False,
) -> None:
    """Ask the servers for the sizes of a card's files, which do not fit in it; no file is read.

    Args:
        card: a file, or the name of a shipped card, that records where the files are listed.
        output: the JSON file to write, for --sizes.
        card_output: also write the card with a hash of these sizes and with probes, so that it
            refuses other sizes.
        names: a copy of that list; default: fetch it.
        mirror: ask this server, such as http://localhost:8000, instead of the files' own.
        overwrite: replace an existing file.
    """
    if card_output:
        refuse_same(output, card_output, "--output and --card-output")
    for path in filter(None, [output, card_output]):
        refuse_existing(path, overwrite)
        refuse_input(path, [card, *filter(None, [names])])
    loaded = provenance.Card.load(card)
    sizes = provenance.fetch_sizes(loaded, names, mirror)
    write_text(output, json.dumps(sizes, indent=0))
    if card_output:
        provenance.record_sizes(loaded, sizes)
        write_text(card_output, _text_of(loaded))
    total = sum(size for _, size in sizes)
    print(f"{output}: the sizes of {len(sizes):,} files, {total:,} bytes in all")
