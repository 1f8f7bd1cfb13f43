"""Commands on files of tokenized documents: inspect, verify, convert, merge, split."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from nanoset_ref import preprocess, tokens  # each loads its modules when used
from nanoset_ref.cli.arguments import NotNegative, Positive, UsageError, share_or_count
from nanoset_ref.io.error_text import redact
from nanoset_ref.io.files import atomic_write
from nanoset_ref.io.overwriting import refuse_existing, refuse_input, refuse_same
from nanoset_ref.io.types import Json

if TYPE_CHECKING:
    from nanoset_ref.tokens import Tokens

IdDtype = Literal[
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"
]


@dataclasses.dataclass(kw_only=True)
class FileOptions:
    """Facts that a file may not record, and the form of the results.

    Args:
        token_dtype: dtype of the ids, for a .npy or .ds file that does not record it (default:
            uint16).
        eos_token_id: the end-of-document id, for a file that does not record it; a .npy file
            without a manifest is cut after it.
        json: print JSON instead of text.
    """

    token_dtype: IdDtype | None = None
    eos_token_id: NotNegative | None = None
    json: bool = False

    def open(self, path: str) -> Tokens:
        """Open a file with these facts."""
        return tokens.open_tokens(path, self.token_dtype, self.eos_token_id)

    def print_result(self, value: Any, *lines: str) -> None:
        """Print the lines, or with --json the value: dataclasses, lists and dicts of them."""
        text = "\n".join(lines)
        if self.json:
            as_dict = dataclasses.asdict
            text = json.dumps(value, indent=1, ensure_ascii=False, default=as_dict)
        print(text)

    def show_written(self, *files: Tokens) -> None:
        """Print the size and the content hash of token files."""
        # only commands that write need it
        from nanoset_ref.tokens.document_blocks import content_hash

        facts = [
            {
                "file": str(file.path),
                "documents": len(file.require_document_offsets()) - 1,
                "tokens": file.num_tokens,
                "dtype": file.dtype.name,
                "content": content_hash(file),
            }
            for file in files
        ]
        line = "{file}: {documents:,} documents, {tokens:,} tokens ({dtype}), content {content}"
        self.print_result(facts, *(line.format(**file_facts) for file_facts in facts))


def inspect(
    file: str,
    /,
    *,
    png: Path | None = None,
    overwrite: bool = False,
    options: FileOptions,
) -> None:
    """Statistics of tokenized documents: counts, lengths, EOS, duplicates.

    Args:
        file: a .npy token file, a .bin/.idx pair or a .ds file.
        png: draw the lengths of the documents into this file.
        overwrite: replace an existing picture.
    """
    opened = options.open(file)
    if png is not None:
        refuse_input(png, [opened.path, *tokens.companions_of(opened.path)])
        refuse_existing(png, overwrite)
    statistics = tokens.describe(opened, options.eos_token_id)
    if png is not None:
        _draw_lengths(statistics["length_histogram"], png)
    options.print_result(statistics, tokens.as_text(statistics))


def _draw_lengths(histogram: list[tuple[int, int, int]], path: Path) -> None:
    """Draw documents by length, in ranges that double, as a PNG.

    Args:
        histogram: (first length, last length, documents) of each range.
        path: the file to write.
    """
    from nanoset_ref.orders.plots import new_figure  # loads numba

    figure = new_figure(7, 3.5)
    bars = {f"{first:,} to {last:,}": count for first, last, count in histogram}
    axes = figure.subplots()
    drawn = axes.bar(list(bars), list(bars.values()))
    axes.bar_label(drawn, fmt="{:,.0f}", padding=2, fontsize=8)
    axes.tick_params(axis="x", rotation=30)
    axes.set(xlabel="tokens per document", ylabel="documents")
    with atomic_write(path) as image:
        figure.savefig(image, format="png")


def verify(
    *files: str,
    vocab_size: Positive | None = None,
    seal: bool = False,
    options: FileOptions,
) -> int:
    """Compare files with what is recorded about them: checksum, size, boundaries, range of the ids.

    Args:
        files: .npy token files, .bin/.idx pairs or .ds files.
        vocab_size: ids must be below it; for a file that does not record it.
        seal: write a .seal file with the checksum next to each file that has none and passes the
            other checks.
    """
    from nanoset_ref.tokens.verification import write_seal  # only --seal needs it

    results: list[Json] = []
    for file in tokens.without_companions(files):
        try:
            opened = options.open(file)
            detail = tokens.verify(opened, vocab_size, options.eos_token_id)
            if seal and write_seal(opened):
                detail += ", sealed as it is now"
            ok = True
        except (ValueError, OSError) as error:
            ok = False
            detail = str(error)
        results.append({"file": redact(file), "ok": ok, "detail": detail})
    verdicts = {True: "ok    ", False: "BROKEN"}
    lines = [
        f"{verdicts[row['ok']]}  {row['file']}: {row['detail']}" for row in results
    ]
    options.print_result(results, *lines)
    return 0 if all(row["ok"] for row in results) else 1


@dataclasses.dataclass(kw_only=True)
class CopyOptions(FileOptions):
    """The options of copying documents.

    Args:
        dtype: dtype of the ids in the target, such as int32; default: as in the source.
        tokenizer: name or folder of the tokenizer of the ids, for sources that do not name it.
        overwrite: replace an existing target.
    """

    dtype: IdDtype | None = None
    tokenizer: str | None = None
    overwrite: bool = False


def convert(source: str, target: str, /, *, options: CopyOptions) -> None:
    """Convert between .npy, .bin/.idx and .ds, verified by a hash of ids and boundaries.

    Args:
        source: a .npy token file, a .bin/.idx pair or a .ds file.
        target: the file to write; its suffix (.npy, .bin, .ds) is its format.
    """
    merge(source, target, options=options)


def merge(*sources_and_target: str, options: CopyOptions) -> None:
    """Join the documents of several files, one after another, into one file.

    From .bin/.idx pairs to a pair, the sequences of a document and their modes are kept.

    Args:
        sources_and_target: .npy token files, .bin/.idx pairs (by either name or their prefix) or
            .ds files, and last the file to write, whose suffix (.npy, .bin, .ds) is its format.
    """
    *names, target = sources_and_target
    if options.tokenizer and target.endswith(".bin"):
        raise UsageError("a .bin/.idx pair records no tokenizer; drop --tokenizer")
    sources = [options.open(name) for name in tokens.without_companions(names)]
    are_pairs = all(isinstance(source, tokens.MMapIndexedDataset) for source in sources)
    if are_pairs and target.endswith(".bin") and not options.dtype:
        prefixes = [source.path.with_suffix("") for source in sources]
        merged = target.removesuffix(".bin")
        written: Tokens = tokens.merge_corpora(
            prefixes, merged, overwrite=options.overwrite
        )
    else:
        facts = None
        known = tokens.agreed_facts(sources)
        if options.tokenizer and not known.get("tokenizer"):
            tokenizer = preprocess.load_tokenizer(options.tokenizer)
            facts = _facts_of_eos(tokenizer.eos_token_id, sources)
            facts["tokenizer"] = options.tokenizer
            facts["vocab_size"] = preprocess.vocabulary_size(tokenizer)
        elif options.eos_token_id is not None:
            facts = _facts_of_eos(options.eos_token_id, sources)
        written = tokens.convert(
            sources,
            target,
            dtype=options.dtype,
            overwrite=options.overwrite,
            facts=facts,
        )
    options.show_written(written)


def split(
    source: str,
    train: Path,
    valid: Path,
    /,
    *,
    held_out: Annotated[float, share_or_count],
    seed: NotNegative = 1234,
    overwrite: bool = False,
    options: FileOptions,
) -> None:
    """Hold out documents: write them to one file, and all others to another.

    Args:
        source: a .npy token file, a .bin/.idx pair or a .ds file.
        train: the file for the rest.
        valid: the file for the documents held out.
        held_out: a share such as 0.01, or a number of documents such as 500 (without a point).
        seed: the seed of the choice.
        overwrite: replace existing targets.
    """
    file = options.open(source)
    refuse_same(train, valid, "train and valid")
    rest, chosen = tokens.split(file, held_out, seed=seed)
    facts = None
    if options.eos_token_id is not None:
        facts = _facts_of_eos(options.eos_token_id, [file])
    parts = tokens.convert_parts(
        [file], {train: [rest], valid: [chosen]}, overwrite=overwrite, facts=facts
    )
    options.show_written(*parts)


def _facts_of_eos(eos_token_id: int | None, sources: Sequence[Tokens]) -> Json:
    """The facts of a manifest that follow from the EOS id."""
    appended = eos_token_id is not None and _all_end_with(eos_token_id, sources)
    return {"eos_token_id": eos_token_id, "appended_eod": appended}


def _all_end_with(eos_token_id: int, sources: Sequence[Tokens]) -> bool:
    """Whether every document that has tokens ends with the EOS id."""
    for source in sources:
        offsets = source.require_document_offsets()
        has_tokens = np.diff(offsets) > 0
        last_ids = source.tokens[offsets[1:][has_tokens] - 1]
        if not np.all(last_ids == eos_token_id):
            return False
    return True
