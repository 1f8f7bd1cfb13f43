"""Several .bin/.idx pairs into one, in the order given: the command for `indexed_writer.merge_corpora`.

    python -m nanoset_ref.megatron.merge --input part0_text_document part1_text_document \\
        --output-prefix all_text_document
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nanoset_ref.files import PathLike
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset
from nanoset_ref.megatron.indexed_writer import merge_corpora
from nanoset_ref.preprocess import run_command


def prefixes_of(inputs: Sequence[PathLike]) -> list[str]:
    """Prefixes as they are; a folder stands for all pairs in it, by name.

    Raises:
        FileNotFoundError: a folder without a pair.
    """
    found: list[str] = []
    for item in inputs:
        if Path(item).is_dir():
            inside = sorted(str(path.with_suffix("")) for path in Path(item).glob("*.idx"))
            if not inside:
                raise FileNotFoundError(f"there is no .bin/.idx pair in the folder {item}")
            found += inside
        else:
            found.append(str(item))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="nanoset_ref.megatron.merge", description="Concatenate .bin/.idx pairs of one dtype, in the order given."
    )
    parser.add_argument(
        "--input", required=True, nargs="+", help="prefixes (paths without .bin and .idx), or folders of pairs"
    )
    parser.add_argument("--output-prefix", required=True, help="the pair to write")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")
    options = parser.parse_args(arguments)

    def work() -> MMapIndexedDataset:
        merge_corpora(prefixes_of(options.input), options.output_prefix, overwrite=options.overwrite)
        return MMapIndexedDataset(options.output_prefix)

    sys.stdout.write(f"{run_command('nanoset_ref.megatron.merge', work)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
