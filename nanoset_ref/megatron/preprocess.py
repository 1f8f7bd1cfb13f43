"""The command for `from_text.preprocess_corpus`, with Megatron-LM's flags.

    python -m nanoset_ref.megatron.preprocess --input my_corpus.json --output-prefix my-llama2-dataset \\
        --tokenizer-type Llama2Tokenizer --tokenizer-model /models/Llama-2-7b-chat-hf/tokenizer.model \\
        --append-eod --workers 6

writes `my-llama2-dataset_text_document.bin` and `.idx`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from nanoset_ref.command import run
from nanoset_ref.megatron.from_text import preprocess_corpus
from nanoset_ref.preprocess import print_counts
from nanoset_ref.tokenise import Counts


def main(arguments: Sequence[str] | None = None) -> int:
    return run(preprocess_corpus, arguments, "nanoset_ref.megatron.preprocess", report=report, says=logging.INFO)


def report(counts: dict[str, Counts | None], **options: Any) -> None:
    for prefix, counted in counts.items():
        print_counts(prefix, counted)


if __name__ == "__main__":
    sys.exit(main())
