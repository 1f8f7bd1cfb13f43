"""Commands on files of tokenized documents: inspect, verify, convert, merge, split."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from nanoset_ref import tokens  # loads its modules when they are used
from nanoset_ref.cli.command import at_least
from nanoset_ref.io.files import atomic_write

if TYPE_CHECKING:
    from nanoset_ref.tokens import Tokens

IdDtype = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


@dataclasses.dataclass(kw_only=True)
class Unsaid:
    """Facts that a file may not hold, and how results are printed.

    Args:
        token_dtype: of the ids, for a .npy or .ds file without this fact (default: uint16).
        eos_token_id: the end-of-document id, for a file without this fact; a .npy file without a manifest is cut
            after it.
        json: print JSON instead of text.
    """

    token_dtype: IdDtype | None = None
    eos_token_id: Annotated[int, at_least(0)] | None = None
    json: bool = False

    def open(self, path: str) -> Tokens:
        return tokens.open_tokens(path, self.token_dtype, self.eos_token_id)

    def show(self, value: Any, text: str) -> None:
        print(json.dumps(value, indent=1, ensure_ascii=False) if self.json else text)

    def show_written(self, *written: Tokens) -> None:
        from nanoset_ref.tokens.content import content_hash  # imported lazily

        found = [
            {
                "file": str(it.path),
                "documents": len(it.known_documents()) - 1,
                "tokens": it.num_tokens,
                "dtype": it.dtype.name,
                "content": content_hash(it),
            }
            for it in written
        ]
        line = "{file}: {documents:,} documents, {tokens:,} tokens ({dtype}), content {content}"
        self.show(found, "\n".join(line.format(**row) for row in found))


def inspect(file: str, /, *, png: Path | None = None, unsaid: Unsaid) -> None:
    """Statistics of tokenized documents: counts, lengths, EOS, duplicates.

    Args:
        file: a .npy token file, a .bin/.idx pair or a .ds file.
        png: draw the lengths of the documents into this file.
    """
    found = tokens.describe(unsaid.open(file), unsaid.eos_token_id)
    if png is not None:
        _draw_lengths(found["length_histogram"], png)
    unsaid.show(found, tokens.as_text(found))


def _draw_lengths(histogram: list[tuple[int, int, int]], path: Path) -> None:
    """Documents by length, in ranges that double, as a PNG."""
    from nanoset_ref.orders.pictures import new_figure  # loads numba

    figure = new_figure(7, 3.5)
    bars = {f"{first:,} to {last:,}": count for first, last, count in histogram}
    axes = figure.subplots()
    axes.bar_label(axes.bar(list(bars), list(bars.values())), fmt="{:,.0f}", padding=2, fontsize=8)
    axes.tick_params(axis="x", rotation=30)
    axes.set(xlabel="tokens per document", ylabel="documents")
    with atomic_write(path) as image:
        figure.savefig(image, format="png")


def verify_files(
    *files: str,
    vocab_size: Annotated[int, at_least(1)] | None = None,
    seal: bool = False,
    unsaid: Unsaid,
) -> bool:
    """Compare files with what is recorded about them: checksum, size, boundaries, range of the ids.

    Args:
        files: .npy token files, .bin/.idx pairs or .ds files.
        vocab_size: ids must be below it, for a file without this fact.
        seal: write a .seal file with the checksum beside each file that has none and passes the other checks.
    """
    from nanoset_ref.tokens.description import keep_seal  # imported lazily

    results: list[dict[str, Any]] = []
    for file in tokens.without_companions(files):
        try:
            opened = unsaid.open(file)
            ok = True
            detail = tokens.verify(opened, vocab_size, unsaid.eos_token_id)
            if seal and keep_seal(opened):
                detail += ", sealed as it is now"
        except (ValueError, OSError) as error:
            ok = False
            detail = str(error)
        results.append({"file": file, "ok": ok, "detail": detail})
    words = {True: "ok    ", False: "BROKEN"}
    lines = [f"{words[row['ok']]}  {row['file']}: {row['detail']}" for row in results]
    unsaid.show(results, "\n".join(lines))
    return not all(row["ok"] for row in results)


@dataclasses.dataclass(kw_only=True)
class Copying(Unsaid):
    """The options of copying documents.

    Args:
        dtype: of the ids in the target, such as int32; default: as in the source.
        tokenizer: name or folder of the tokenizer of the ids, for sources without this fact.
        overwrite: replace an existing target.
    """

    dtype: IdDtype | None = None
    tokenizer: str | None = None
    overwrite: bool = False


def convert_file(source: str, target: str, /, *, copying: Copying) -> None:
    """Convert between .npy, .bin/.idx and .ds, proven by a hash of ids and boundaries.

    Args:
        source: a .npy token file, a .bin/.idx pair or a .ds file.
        target: the file to write; its suffix (.npy, .bin, .ds) is its format.
    """
    merge_files(source, target, copying=copying)


def merge_files(*sources_and_target: str, copying: Copying) -> None:
    """Put the documents of several files one after another into one file.

    From .bin/.idx pairs to a pair, the sequences of a document and their modes are kept.

    Args:
        sources_and_target: .npy token files, .bin/.idx pairs (by either name or their prefix) or .ds files, and last
            the file to write, whose suffix (.npy, .bin, .ds) is its format.
    """
    *names, target = sources_and_target
    sources = [copying.open(source) for source in tokens.without_companions(names)]
    to_pair = target.endswith(".bin") and not copying.dtype
    if to_pair and all(isinstance(it, tokens.MMapIndexedDataset) for it in sources):
        prefixes = [source.path.with_suffix("") for source in sources]
        merged = target.removesuffix(".bin")
        pair = tokens.merge_corpora(prefixes, merged, overwrite=copying.overwrite)
        copying.show_written(pair)
        return
    facts = None
    if copying.tokenizer and not tokens.agreed_facts(sources).get("tokenizer"):
        facts = facts_of_tokenizer(copying.tokenizer, sources)
    copying.show_written(
        tokens.convert(
            sources, target, dtype=copying.dtype, overwrite=copying.overwrite, facts=facts
        )
    )


def split_file(
    source: str,
    train: Path,
    valid: Path,
    /,
    *,
    held_out: float,
    seed: Annotated[int, at_least(0)] = 1234,
    overwrite: bool = False,
    unsaid: Unsaid,
) -> None:
    """Hold out documents: write a file without them, and one of them.

    Args:
        source: a .npy token file, a .bin/.idx pair or a .ds file.
        train: the file for the rest.
        valid: the file for the documents held out.
        held_out: a share such as 0.01, or a number of documents such as 500.
        seed: of the choice.
        overwrite: replace existing targets.
    """
    file = unsaid.open(source)
    if train.resolve() == valid.resolve():
        raise ValueError(f"train and valid are two files, got {train} for both")
    rest, chosen = tokens.split(
        file, int(held_out) if held_out.is_integer() else held_out, seed=seed
    )
    parts = tokens.convert_parts([file], {train: [rest], valid: [chosen]}, overwrite=overwrite)
    unsaid.show_written(*parts)


def facts_of_tokenizer(name: str, sources: Sequence[Tokens]) -> dict[str, Any]:
    """The facts of a manifest that follow from the tokenizer of its ids."""
    from nanoset_ref.preprocess import load_tokenizer  # needs the extra `text`

    tokenizer = load_tokenizer(name)
    eos = tokenizer.eos_token_id
    lasts = []
    for source in sources:
        offsets = source.known_documents()
        lasts.append(source.tokens[offsets[1:][np.diff(offsets) > 0] - 1])
    closed = eos is not None and all(np.all(last == eos) for last in lasts)
    return {
        "tokenizer": name,
        "vocab_size": len(tokenizer),
        "eos_token_id": eos,
        "appended_eod": closed,
    }
