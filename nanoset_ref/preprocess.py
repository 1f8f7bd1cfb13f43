"""Text to one token file, with one process or many.

    torchrun --nproc-per-node 16 -m nanoset_ref.preprocess --input HuggingFaceH4/testing_alpaca_small --split train \\
        --column completion --output-prefix datasets/testing_alpaca_small --tokenizer-name-or-path openai-community/gpt2

writes `datasets/testing_alpaca_small_input_ids.npy` with its manifest and document boundaries (see `tokens`), the same
bytes with any number of processes. `python -m nanoset_ref.preprocess ...` does it in one process that uses all cores.
The work is done by `tokenise`.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from nanoset_ref.launcher import end_with_launcher, is_main_rank, under_torchrun
from nanoset_ref.text import OnError, open_text
from nanoset_ref.tokenise import Counts, EncoderConfig, JobError, StoppedError, tokenise
from nanoset_ref.tokenise.encode import Backend, Encoder
from nanoset_ref.tokens import TokenFileWriter

NO_SEPARATOR = (
    "neither --append-eod nor --add-special-tokens is on: documents stand back to back with nothing between them, "
    "and a model trained on them cannot tell where one ends"
)
logger = logging.getLogger(__name__)


def preprocess(
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output_prefix: str | os.PathLike[str],
    tokenizer_name_or_path: str | os.PathLike[str],
    *,
    column: str = "text",
    split: str | None = None,
    config: str | None = None,
    add_special_tokens: bool = False,
    append_eod: bool = False,
    backend: Backend = "auto",
    on_error: OnError = "raise",
    overwrite: bool = False,
    workers: int = 1,
    progress: bool | None = None,
) -> Counts | None:
    """Tokenise `input` into `<output_prefix>_input_ids.npy`.

    The arguments are those of `open_text`, `Encoder`, `TokenFileWriter` and `tokenise`. The folder of `output_prefix`
    is created if need be.

    Returns:
        Counts; None in the ranks of torchrun other than 0.

    Raises:
        FileNotFoundError, FileExistsError, and what `tokenise` raises. Nothing is left under the output's name then.
    """
    path = Path(f"{os.fspath(output_prefix)}_input_ids.npy")
    if not (add_special_tokens or append_eod) and is_main_rank():
        logger.warning(NO_SEPARATOR)

    def open_sink(encoder: Encoder) -> TokenFileWriter:
        return TokenFileWriter(
            path,
            dtype=encoder.dtype,
            vocab_size=encoder.vocab_size,
            tokenizer=os.fspath(tokenizer_name_or_path),
            eos_token_id=encoder.eos_token_id,
            appended_eod=append_eod,
            added_special_tokens=add_special_tokens,
            overwrite=overwrite,
        )

    return tokenise(
        partial(open_text, input, column=column, split=split, on_error=on_error, config=config),
        EncoderConfig(
            tokenizer=os.fspath(tokenizer_name_or_path),
            backend=backend,
            add_special_tokens=add_special_tokens,
            append_eod=append_eod,
        ),
        open_sink,
        path,
        workers=workers,
        progress=progress,
    )


def shared_options() -> argparse.ArgumentParser:
    """What every command that tokenises text understands; a parent of its parser."""
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add(
        "--input",
        required=True,
        nargs="+",
        help="a .json or .jsonl file with one JSON object per line (.gz and .zst too), a .parquet file, a folder or a "
        "glob of such files, a folder written by Dataset.save_to_disk, or the name of a dataset on the Hub",
    )
    add("--split", help="the split of a dataset, such as train; needed where there is more than one")
    add("--append-eod", action="store_true", help="put the EOS token after each document")
    add(
        "--backend",
        choices=get_args(Backend),
        default="auto",
        help="hf: the tokenizers library; gigatoken: much faster, for tokenizers it can load; auto: gigatoken, if it "
        "gives the same ids on the beginning of this very input, else hf (default: %(default)s)",
    )
    add(
        "--on-error",
        choices=get_args(OnError),
        default="raise",
        help="raise: stop at the first line that cannot be used, naming file and line; skip: leave such lines out and "
        "count them (default: %(default)s)",
    )
    add("--overwrite", action="store_true", help="replace an existing output")
    add(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a progress bar (default: if standard error is a terminal)",
    )
    return parser


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Tokenise text into <output-prefix>_input_ids.npy: raw token ids, with a manifest and the document "
        "boundaries beside it. Start it with torchrun to share the work among processes; the result is the same.",
        parents=[shared_options()],
    )
    add = parser.add_argument
    add("--column", default="text", help="the column that holds the text (default: %(default)s)")
    add("--dataset-config", help="the configuration of a Hub dataset, where it has several")
    add(
        "--output-prefix",
        required=True,
        help="where to write: datasets/a gives datasets/a_input_ids.npy; the folder is created if need be",
    )
    add(
        "--tokenizer-name-or-path",
        required=True,
        help="a tokenizer on the Hub or a folder, as AutoTokenizer.from_pretrained takes it",
    )
    add(
        "--add-special-tokens",
        action="store_true",
        help="put what the tokenizer itself adds around a text (such as BOS) around each document",
    )
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.preprocess") -> int:
    options = vars(_parser(prog).parse_args(arguments))
    options["config"] = options.pop("dataset_config")
    counts = run_command(prog, lambda: preprocess(**options))
    print_counts(f"{options['output_prefix']}_input_ids.npy", counts)
    return 0


def print_counts(output: str, counts: Counts | None) -> None:
    """What a command has done; nothing in ranks that have no counts."""
    if counts is None:
        return
    print(
        f"{output}: {counts.documents:,} documents, {counts.tokens:,} tokens "
        f"in {counts.seconds:.1f} s ({counts.backend} backend)"
    )
    for kind, number in counts.skipped.items():
        print(f"skipped {number:,}: {kind}")


def run_command(name: str, work: Callable[[], Any]) -> Any:
    """Do the work of a command: errors of the input or the job become one line on standard error and exit code 1.

    SIGTERM, which torchrun sends to the other ranks when one has died, ends it in good order.
    """

    def terminated(number: int, frame: object) -> None:
        why = " (torchrun ends all ranks when one dies, and reports which)" if under_torchrun() else ""
        sys.exit(f"{name}: error: ended by SIGTERM{why}; nothing was written" if is_main_rank() else 1)

    end_with_launcher()
    level = logging.INFO if is_main_rank() else logging.ERROR
    logging.basicConfig(level=level, format=f"{name}: %(levelname)s: %(message)s")
    signal.signal(signal.SIGTERM, terminated)
    try:
        return work()
    except StoppedError:
        sys.exit(1)  # the rank that failed has said why
    except (ValueError, OSError, JobError) as error:
        sys.exit(f"{name}: error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: error: interrupted; nothing was written")


if __name__ == "__main__":
    sys.exit(main())
