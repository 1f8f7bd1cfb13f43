"""Commands on run cards: what where, when and audit say of one, compare two of them, write one."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nanoset_ref import (  # each loads its modules when used
    provenance,
    train,
)
from nanoset_ref.cli.command import UsageError
from nanoset_ref.cli.file_commands import Unsaid
from nanoset_ref.io.files import atomic_write, refuse_existing
from nanoset_ref.provenance.card_rules import MAX_CARD_BYTES

if TYPE_CHECKING:
    from nanoset_ref.cli.run_options import RunOptions
    from nanoset_ref.provenance import Card, CardRow, QueryParser, StageReader

Loader = Literal[
    "nanoset_ref", "nanotron", "nanotron-2024", "megatron", "gpt-neox", "olmo-core", "llm.c"
]
VERDICTS = {True: "holds ", False: "BROKEN", None: "LACKS "}


def show_card_step(run: Unsaid, card: Card, step: int) -> None:
    """The rows of a step: first how they lie together, then each."""
    rows = card.where(step)
    lines = [f"step {step:,} of {card.name} reads {len(rows):,} rows"]
    first, last = rows[0], rows[-1]
    ends = [row.end_byte for row in rows[:-1]]
    one_piece = len({row.source for row in rows}) == 1
    if one_piece and ends == [row.first_byte for row in rows[1:]]:
        lines[0] += f", one after another: {first.path} bytes {first.first_byte}:{last.end_byte}"
        parts = card.published(first.source, first.first_byte, last.end_byte)
        lines += [f"    {url} bytes {begin}:{end}" for url, begin, end in parts]
    lines += [_line(row) for row in rows]
    run.show([dataclasses.asdict(row) for row in rows], "\n".join(lines))


def show_card_places(
    run: Unsaid,
    card: Card,
    source: int,
    sample: int | None,
    byte_range: tuple[int, int] | None,
) -> None:
    """The steps that read a sample, or bytes."""
    rows = card.when(sample, source=source, byte_range=byte_range)
    lines = [f"step {row.step:,}, {_line(row)}" for row in rows]
    text = "\n".join(lines) or "it is not read in this run"
    run.show([dataclasses.asdict(row) for row in rows], text)


def show_public_rows(
    run: RunOptions,
    card: Card,
    step: int | None,
    sample: int | None,
    source: int,
    mirror: str | None,
) -> None:
    """The text of a step, or of a sample that is read, from where the data are public."""
    rows = card.when(sample, source=source)[:1] if step is None else card.where(step)
    ids = provenance.fetch_rows(card, rows, mirror)
    tokenizer = run.tokenizer_named(card.facts["tokenizer"]["name"])
    texts = [tokenizer.decode(row.tolist()) for row in ids]
    found = [
        dataclasses.asdict(row) | {"text": text} for row, text in zip(rows, texts, strict=True)
    ]
    lines = [f"--- {_line(row)}\n{text}" for row, text in zip(rows, texts, strict=True)]
    run.show(found, "\n".join(lines))


def show_answers(bulk: Path, readers: list[StageReader], parser: QueryParser) -> None:
    """The table of `when --bulk`; how far it is stands on standard error, if that is a terminal."""
    with open(bulk, encoding="utf-8") as lines:
        written = 0
        for part in provenance.answer_queries(readers, parser, lines):
            sys.stdout.writelines(f"{line}\n" for line in part)
            written += len(part)
            if sys.stderr.isatty():
                print(f"\r{written:,} lines", end="", file=sys.stderr)


def show_skipped_rows(run: Unsaid, stages: list[dict[str, Any]]) -> None:
    """What `skip` says of each stage."""
    lines = []
    for it in stages:
        name = f"stage {it['stage']}: "
        if it["first_step"] is None:
            lines.append(f"{name}reads none of these rows, and stays as it is")
            continue
        lines.append(f"{name}{it['rows']:,} of its rows go, from {it['steps']:,} steps")
        lines.append("    with their loss masked instead, only these steps change")
        shift = it["before"] + it["rows"]
        lines.append(
            f"    from step {it['first_step']:,} on rows move up, by {shift:,} positions at its end"
        )
    run.show(stages, "\n".join(lines))


def _line(row: CardRow) -> str:
    place = f"position {row.position}, epoch {row.epoch}"
    if row.dp_rank is not None:
        place = f"rank {row.dp_rank} micro-batch {row.micro_batch} row {row.row}: {place}"
    return f"{place}, {row.path} sample {row.sample}, bytes {row.first_byte}:{row.end_byte}"


def show_card_audit(run: Unsaid, card: Card) -> bool:
    """Whether the card's order can be computed, agrees with its probes, and is gone through without gaps."""
    report = provenance.audit_card(card)
    lines = [f"{card.name}: {card.num_steps:,} steps"]
    lines += [f"  {VERDICTS[it['holds']]}  {it['detail']}" for it in report]
    for kind in ("inferred", "unknown"):
        lines += [f"  {kind}: {text}" for text in card.facts[kind]]
    ok = all(it["holds"] for it in report)
    result = {"ok": ok, "checks": report, "uneven": None, "spread": []}
    if ok:
        paths = provenance.shortened([source["name"] for source in card.sources])
        uneven = provenance.uneven_in_card(card)
        spread = provenance.spread_of_card(card)
        result["spread"] = [[*map(dataclasses.asdict, stage)] for stage in spread]
        if uneven is None:
            lines.append("  too many rows to count which are read more or less often than others")
        else:
            result["uneven"] = [*map(dataclasses.asdict, uneven)]
            lines += [it.line(paths) for it in uneven]
        for stage, spreads in zip(card.facts["stages"], spread, strict=True):
            lines += [f"stage {stage['name']}:", *provenance.spread_lines(spreads, paths)]
    run.show(result, "\n".join(lines))
    return not ok


def compare_cards(first: str, second: str, /, *, sizes: Sequence[str] = (), said: Unsaid) -> bool:
    """What two run cards say differently, and the first step at which they read other rows.

    Exit code 1 if they read other rows, or if that cannot be computed.

    Args:
        first: a card: a file, or the name of a shipped one.
        second: the card to compare it with.
        sizes: for cards without sizes: the file of `card complete` for each of the two.
    """
    given = [*sizes, None, None]
    one = provenance.Card.load(first, given[0])
    two = provenance.Card.load(second, given[1])
    found = provenance.compare_two_cards(one, two)
    lines = [f"  {part}" for part in found["differences"]]
    if found["problem"]:
        lines.append(f"which step is the first cannot be computed: {found['problem']}")
    elif found["step"] is None:
        lines.append(
            f"{one.name} and {two.name} read the same rows in all {found['steps']:,} steps"
        )
    else:
        lines.append(
            f"from step {found['step']:,} on they read other rows: {found['rows']:,} of that step's"
        )
    said.show(found, "\n".join(lines))
    return bool(found["step"] or found["problem"])


def write_card(
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
        config: the YAML file of nanoset_ref.train, whose token files are opened for their sizes and probes; or that of
            another loader: its YAML, OLMo-core's config.json, or a text with the arguments of Megatron-LM or llm.c.
        loader: whose config it is.
        given: NAME=VALUE, what another loader's config does not say; an error names what is missing.
        name: of the run: lower-case letters, digits, dots and hyphens.
        date: of the run, such as 2026-11.
        output: the file to write; default: standard output.
        overwrite: replace an existing file.
    """
    if loader == "nanoset_ref":
        card = _card_of_ours(config, name, date)
    else:
        values = dict(_name_and_value(it) for it in given)
        card = provenance.card_of_config(config, loader, name, date, values)
    text = json.dumps(card.facts, indent=1)
    if len(text) > MAX_CARD_BYTES:
        text = json.dumps(card.facts, separators=(",", ":"))
    if len(text) > MAX_CARD_BYTES:
        raise ValueError(
            f"this card would have {len(text):,} bytes, a card has at most {MAX_CARD_BYTES:,}: publish the list "
            f"of its files and name it in `listed` (docs/cards.md)"
        )
    if output is None:
        print(text)
        return
    refuse_existing(output, overwrite)
    with atomic_write(output, "w") as file:
        file.write(text + "\n")


def _card_of_ours(config: str, name: str, date: str) -> Card:
    from nanoset_ref.preprocess import Encoder, load_tokenizer  # needs the extra `text`

    run = train.load_config(config)
    tokenizer = None
    if run.tokenizer:
        tokenizer = run.tokenizer.tokenizer_name_or_path
    stretches = provenance.stretches_of_config(run)
    card = provenance.card_of_stretches(stretches, name, date, tokenizer)
    if tokenizer:
        encoder = Encoder(load_tokenizer(tokenizer))
        card.facts["tokenizer"]["hash"] = encoder.identity["tokenizer"]
    return card


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--given takes NAME=VALUE, got {text!r}")
    return name, value


def complete_card(
    card: str,
    /,
    *,
    output: Path,
    names: Path | None = None,
    mirror: str | None = None,
    overwrite: bool = False,
) -> None:
    """Ask the servers for the sizes of a card's files, which do not fit in it; no file is read.

    Args:
        card: a file, or the name of a shipped card that says where its files are listed.
        output: the JSON file to write, for --sizes.
        names: a copy of that list; default: fetch it.
        mirror: ask this server, such as http://localhost:8000, instead of that of the files.
        overwrite: replace an existing file.
    """
    refuse_existing(output, overwrite)
    sizes = provenance.fetch_sizes(provenance.Card.load(card), names, mirror)
    with atomic_write(output, "w") as file:
        json.dump(sizes, file, indent=0)
    total = sum(size for _, size in sizes)
    print(f"{output}: the sizes of {len(sizes):,} files, {total:,} bytes in all")
