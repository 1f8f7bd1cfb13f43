"""The command for `from_text.preprocess`, with Megatron-LM's flags.

    python -m nanoset_ref.megatron.preprocess --input my_corpus.json --output-prefix my-llama2-dataset \\
        --tokenizer-type Llama2Tokenizer --tokenizer-model /models/Llama-2-7b-chat-hf/tokenizer.model \\
        --append-eod --workers 6

writes `my-llama2-dataset_text_document.bin` and `.idx`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from nanoset_ref.megatron.from_text import TOKENIZER_TYPES, preprocess
from nanoset_ref.preprocess import print_counts, run_command, shared_options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nanoset_ref.megatron.preprocess",
        description="Tokenise text into the files that Megatron-LM trains on, "
        "<output-prefix>_<json-key>_document.bin and .idx.",
        parents=[shared_options()],
    )
    add = parser.add_argument
    add("--output-prefix", required=True, help="where to write; the folder is made if need be")
    add(
        "--json-key",
        "--json-keys",
        nargs="+",
        default=["text"],
        help="the column with the text; several give a pair of files each (default: text)",
    )
    add("--tokenizer-type", required=True, help=f"one of {', '.join(TOKENIZER_TYPES)}")
    add("--tokenizer-model", help="the tokenizer: a folder, a file in it such as tokenizer.model, or a name on the Hub")
    add(
        "--tokenizer-hf-include-special-tokens",
        dest="include_special_tokens",
        action="store_true",
        help="put what the tokenizer itself adds (such as BOS) around each document",
    )
    add(
        "--workers",
        type=int,
        default=1,
        help="processes; the output does not depend on their number (default: %(default)s)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(arguments))
    for key in options.pop("json_key"):
        counts = run_command("nanoset_ref.megatron.preprocess", partial(preprocess, json_key=key, **options))
        print_counts(f"{options['output_prefix']}_{key}_document", counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
