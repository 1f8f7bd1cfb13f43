"""Several .bin/.idx pairs into one, in the order given: the command for `indexed_writer.merge_corpora`.

    python -m nanoset_ref.megatron.merge --input part0_text_document part1_text_document \\
        --output-prefix all_text_document
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nanoset_ref.command import run
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.megatron.indexed_writer import merge_corpora


def merge(*, input: list[str], output_prefix: str, overwrite: bool = False) -> None:
    """Concatenate .bin/.idx pairs of one dtype, in the order given.

    Args:
        input: prefixes (paths without .bin and .idx), or folders, which stand for all pairs in them, by name
        output_prefix: the pair to write
        overwrite: replace an existing output
    """
    prefixes: list[str] = []
    for item in input:
        inside = sorted(str(path.with_suffix("")) for path in Path(item).glob("*.idx"))
        if Path(item).is_dir() and not inside:
            raise FileNotFoundError(f"there is no .bin/.idx pair in the folder {item}")
        prefixes += inside or [item]
    merge_corpora(prefixes, output_prefix, overwrite=overwrite)
    sys.stdout.write(f"{MMapIndexedDataset(output_prefix)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(merge, arguments, "nanoset_ref.megatron.merge")


if __name__ == "__main__":
    sys.exit(main())
