"""Text to a .bin/.idx pair, with Megatron-LM's flags.

    python -m nanoset_ref.megatron.preprocess --input my_corpus.json \\
        --output-prefix my-llama2-dataset --tokenizer-type Llama2Tokenizer \\
        --tokenizer-model /models/Llama-2-7b-chat-hf/tokenizer.model --append-eod --workers 6

writes `my-llama2-dataset_text_document.bin` and `.idx`. The flags of `nanoset_ref.preprocess` also
work. Input, encoding, errors, progress and the distribution of the work are the same; only the sink
differs. Any number of workers (or ranks of torchrun) writes the same bytes. As in Megatron-LM, a
document is one sequence, an empty text is a document without sequences, and ids are uint16 for
vocabularies below 65,500, else int32.
"""

import contextlib
import dataclasses
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from nanoset_ref.cli.command import command_line, run
from nanoset_ref.io.files import write_together
from nanoset_ref.io.overwriting import refuse_existing
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.preprocess import (
    Backend,
    Counts,
    Encoder,
    SpecialTokens,
    in_rank_0,
    open_tokenizer,
    report_counts,
    tokenize_documents,
)
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.text_blocks import OnError
from nanoset_ref.tokens.manifest import TokenFileError

# Megatron-LM's names; AutoTokenizer loads all of them, from --tokenizer-model or its folder
TokenizerType = Literal[
    "HuggingFaceTokenizer",
    "Llama2Tokenizer",
    "GPT2BPETokenizer",
    "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer",
]
NARROW_VOCABULARY = 65_500
UPSTREAM_FLAGS = {  # flags of nanoset_ref.preprocess -> flags of Megatron-LM
    "--tokenizer-name-or-path": "--tokenizer-model",
    "--column": "--json-keys",
    "--num-workers": "--workers",
    "--add-special-tokens": "--tokenizer-hf-include-special-tokens",
}


@contextlib.contextmanager
def document_sink(
    path_prefix: str, encoder: Encoder, *, overwrite: bool = False
) -> Iterator[Any]:
    """Write the ids of `encoder` to a pair, which appears when it is complete."""
    # imported here: --help does not need numba
    from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder

    dtype = np.uint16 if encoder.vocab_size < NARROW_VOCABULARY else np.int32
    only_eod = 0 if encoder.prefix else len(encoder.suffix)  # tokens of an empty text
    with MMapIndexedDatasetBuilder(
        f"{path_prefix}.bin", dtype, overwrite=overwrite
    ) as builder:

        def write(ids: Array, lengths: Int64Array) -> None:
            full = lengths != only_eod
            builder.write(ids[np.repeat(full, lengths)], lengths * full)
            sink.num_documents += len(lengths)
            sink.num_tokens += int(lengths[full].sum())

        sink = SimpleNamespace(write=write, num_documents=0, num_tokens=0)
        yield sink
        if builder.num_sequences == 0:
            raise TokenFileError(f"{path_prefix}: the input has no tokens")


@in_rank_0
def preprocess_corpus(
    input: Sequence[PathLike] | PathLike,
    output_prefix: PathLike,
    *,
    tokenizer_model: PathLike,
    tokenizer_type: TokenizerType = "HuggingFaceTokenizer",
    json_keys: Sequence[str] | str = ("text",),
    split: str | None = None,
    append_eod: bool = False,
    tokenizer_hf_include_special_tokens: bool = False,
    special_tokens: SpecialTokens = "keep",
    backend: Backend = "auto",
    on_error: OnError = "raise",
    overwrite: bool = False,
    workers: int = 1,
    progress: bool | None = None,
) -> dict[str, Counts]:
    """Tokenize text into Megatron-LM's files, <output-prefix>_<json-key>_document.bin and .idx.

    Args:
        input, split, append_eod, backend, on_error, overwrite, progress: see
            nanoset_ref.preprocess.
        output_prefix: where to write; the folder is created if needed.
        tokenizer_type: Megatron-LM's name for the kind of tokenizer; AutoTokenizer loads any kind.
        tokenizer_model: the tokenizer: a folder, a file in it such as tokenizer.model, or a name on
            the Hub.
        json_keys: Megatron-LM's word for the column with the text; several columns give a pair of
            files each, and after an error none does.
        workers: Megatron-LM's word for `num_workers` of nanoset_ref.preprocess.
        tokenizer_hf_include_special_tokens: add the tokenizer's own special tokens (such as BOS) to
            each document.
        special_tokens: for a document that contains a special token as text, such as </s>. keep: it
            becomes that token, as in Megatron-LM; split: it is encoded as plain text; refuse: stop
            at the first.

    Returns:
        {prefix of a pair: its Counts}. None in the ranks of torchrun other than 0.

    Raises:
        ValueError: json_keys is empty or names a column twice, or several although documents may be
            left out.
        FileExistsError, ValueError, OSError: see `nanoset_ref.preprocess.tokenize_documents`.
    """
    counts = {}
    columns = _columns(json_keys, on_error)
    prefixes = _new_prefixes(output_prefix, columns, overwrite)
    with write_together(*(Path(f"{prefix}.idx") for prefix in prefixes.values())):
        for key, prefix in prefixes.items():
            source = open_text(input, column=key, split=split, on_error=on_error)
            encoder = Encoder(
                open_tokenizer(tokenizer_model),
                backend=backend,
                add_special_tokens=tokenizer_hf_include_special_tokens,
                append_eod=append_eod,
                probe_texts=source.probe_texts(),
                special_tokens=special_tokens,
            )
            counts[prefix] = tokenize_documents(
                source,
                encoder,
                document_sink(prefix, encoder, overwrite=overwrite),
                f"{prefix}.bin",
                num_workers=workers,
                progress=progress,
            )
    return counts


def _columns(json_keys: Sequence[str] | str, on_error: OnError) -> list[str]:
    """The columns as a list; ValueError if there is none, or one twice, or documents may differ."""
    columns = as_list(json_keys)
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"json_keys must name one or more different columns, got {columns}"
        )
    if len(columns) > 1 and on_error == "skip":
        raise ValueError(
            f"on_error='skip' would leave out other lines in each column of {columns}, so that "
            "documents of one number differ: mend the lines, or give one of json_keys at a time"
        )
    return columns


def _new_prefixes(
    output_prefix: PathLike, columns: Sequence[str], overwrite: bool
) -> dict[str, str]:
    """{column: prefix of its pair}, for pairs that do not exist."""
    prefixes = {}
    for key in columns:
        prefixes[key] = f"{os.fspath(output_prefix)}_{key}_document"
        refuse_existing(Path(f"{prefixes[key]}.idx"), overwrite)
    return prefixes


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "nanoset_ref.megatron.preprocess",
) -> int:
    """Run the command; return the exit code."""
    words = command_line(arguments)
    words = [
        re.sub(r"^--[\w-]+", lambda name: UPSTREAM_FLAGS.get(name[0], name[0]), word)
        for word in words
    ]
    return run(
        preprocess_corpus, words, prog, report=report_all, log_level=logging.INFO
    )


def report_all(counts: dict[str, Counts] | None, **options: Any) -> int:
    """Print the counts of each column; return the exit code."""
    codes = [
        report_counts(dataclasses.replace(counted, target=prefix))
        for prefix, counted in (counts or {}).items()
    ]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
