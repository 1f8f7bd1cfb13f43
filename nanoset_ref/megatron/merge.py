"""Several .bin/.idx pairs into one, in the order given.

    python -m nanoset_ref.megatron.merge --input part0_text_document part1_text_document \\
        --output-prefix all_text_document
"""

import sys
from collections.abc import Sequence
from typing import Any

from nanoset_ref.command import run
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.megatron.indexed_writer import merge_corpora


def main(arguments: Sequence[str] | None = None) -> int:
    return run(merge_corpora, arguments, "nanoset_ref.megatron.merge", report=report)


def report(merged: MMapIndexedDataset, **options: Any) -> None:
    sys.stdout.write(f"{merged}\n")


if __name__ == "__main__":
    sys.exit(main())
