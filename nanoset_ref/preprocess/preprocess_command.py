"""Text to one token file, with one process or many.

    torchrun --nproc-per-node 16 -m nanoset_ref.preprocess \\
        --input HuggingFaceH4/testing_alpaca_small --split train --column completion \\
        --output-prefix datasets/alpaca --tokenizer-name-or-path openai-community/gpt2

writes `datasets/alpaca_input_ids.npy` with its manifest and document boundaries (see `tokens`), the
same bytes with any number of processes. `python -m nanoset_ref.preprocess ...` does it in one
process that uses all cores. `tokenization.tokenize_documents` does the work.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

from nanoset_ref.cli.command import run
from nanoset_ref.io.overwriting import refuse_existing
from nanoset_ref.io.paths import PathLike, as_path
from nanoset_ref.preprocess.encoder import Backend, Encoder
from nanoset_ref.preprocess.encoding_processes import in_rank_0
from nanoset_ref.preprocess.special_tokens import SpecialTokens
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.preprocess.text_blocks import OnError
from nanoset_ref.preprocess.tokenization import (
    Counts,
    exit_code,
    tokenize_documents,
    too_many_skipped,
)
from nanoset_ref.preprocess.tokenizer import open_tokenizer
from nanoset_ref.tokens import TokenFileWriter


@in_rank_0
def preprocess(
    input: Sequence[PathLike] | PathLike,
    output_prefix: PathLike,
    tokenizer_name_or_path: PathLike,
    *,
    column: str = "text",
    split: str | None = None,
    dataset_config: str | None = None,
    add_special_tokens: bool = False,
    append_eod: bool = False,
    special_tokens: SpecialTokens = "keep",
    backend: Backend = "auto",
    on_error: OnError = "raise",
    overwrite: bool = False,
    num_workers: int = 1,
    progress: bool | None = None,
) -> Counts:
    """Tokenize text into <output-prefix>_input_ids.npy: raw ids, a manifest, document boundaries.

    Start it with torchrun to share the work among processes; the result is the same, byte for byte.

    Args:
        input: a .json or .jsonl file with one JSON object per line (.gz and .zst too), a .parquet
            file, a folder or a glob of such files, a folder written by Dataset.save_to_disk, or the
            name of a dataset on the Hub.
        output_prefix: where to write: datasets/a gives datasets/a_input_ids.npy; the folder is
            created if needed.
        tokenizer_name_or_path: a tokenizer on the Hub or a folder, as AutoTokenizer.from_pretrained
            takes it.
        column: the column that holds the text.
        split: the split of a dataset, such as train; needed if there is more than one. Files have
            only train.
        dataset_config: the configuration of a Hub dataset that has several; an error with files.
        add_special_tokens: put the special tokens that the tokenizer adds to a text (such as BOS)
            around each document.
        append_eod: put the EOS token after each document. Off by default, as in Nanotron's and
            Megatron-LM's own tools; a warning is logged if nothing else separates the documents.
        special_tokens: for a document that holds a special token as text, such as </s>. keep: it
            becomes that token, as in Nanotron's own tool, and a warning counts them; split: it is
            encoded as plain text; refuse: stop at the first.
        backend: hf: the tokenizers library; gigatoken: much faster, for tokenizers it can load;
            auto: gigatoken, if it produces the same ids on documents from all over this input, else
            hf. gigatoken is compared with hf throughout, and a difference stops the job: the ids
            are always those of hf.
        on_error: raise: stop at the first unusable line, naming file and line; skip: leave such
            lines out and count them. More than 1 % left out is a warning, and exit code 3 (0 under
            torchrun); the files are still complete.
        overwrite: replace an existing output.
        num_workers: processes that encode, each on its share of the cores. 1 uses all cores, too;
            more help if one process cannot parse and write as fast as the cores encode. torchrun's
            ranks take their place. The output does not depend on their number.
        progress: show a progress bar (default: if standard error is a terminal).

    Returns:
        Counts; None in the ranks of torchrun other than 0.

    Raises:
        FileNotFoundError, FileExistsError, and the errors of `tokenize_documents`; no output is
            left then.
    """
    path = as_path(f"{os.fspath(output_prefix)}_input_ids.npy")
    tokenizer = os.fspath(tokenizer_name_or_path)
    refuse_existing(path, overwrite)
    source = open_text(
        input, column=column, split=split, on_error=on_error, config=dataset_config
    )
    encoder = Encoder(
        open_tokenizer(tokenizer),
        backend=backend,
        add_special_tokens=add_special_tokens,
        append_eod=append_eod,
        probe_texts=source.probe_texts(),
        special_tokens=special_tokens,
    )
    sink = TokenFileWriter(
        path, overwrite=overwrite, tokenizer=tokenizer, **encoder.facts
    )
    return tokenize_documents(
        source, encoder, sink, path, num_workers=num_workers, progress=progress
    )


def main(
    arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.preprocess"
) -> int:
    """Run the command; return the exit code."""
    return run(
        preprocess, arguments, prog, report=report_counts, log_level=logging.INFO
    )


def report_counts(counts: Counts | None, **options: Any) -> int:
    """Print the counts, if this rank has any; return the exit code."""
    if counts is None:
        return 0
    print(
        f"{counts.target}: {counts.documents:,} documents, {counts.tokens:,} tokens "
        f"in {counts.seconds:.1f} s, not counting start-up ({counts.backend} backend)"
    )
    for reason, number in counts.skipped.items():
        print(f"skipped {number:,}: {reason}")
    skipped = sum(counts.skipped.values())
    return exit_code(too_many_skipped(skipped, counts.documents))
