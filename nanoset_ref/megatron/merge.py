"""Several .bin/.idx pairs into one, in the order given.

    python -m nanoset_ref.megatron.merge --input part0_text_document part1_text_document \\
        --output-prefix all_text_document
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from nanoset_ref.command import run
from nanoset_ref.files import PathLike
from nanoset_ref.megatron.indexed_dataset import MMapIndexedDataset, bin_path, idx_path, read_index, require
from nanoset_ref.megatron.indexed_writer import MMapIndexedDatasetBuilder


def merge_corpora(prefixes: Iterable[PathLike], output_prefix: PathLike, *, overwrite: bool = False) -> None:
    """Concatenate pairs, in the order given, into a new one of the same dtype.

    Raises:
        IndexedDatasetError: no prefix, different dtypes, damaged parts.
        FileExistsError: the output exists and `overwrite` is False.
    """
    prefixes = list(prefixes)
    require(bool(prefixes), "there is nothing to merge: give at least one prefix")
    dtype, *_, modes = read_index(prefixes[0])
    with MMapIndexedDatasetBuilder(bin_path(output_prefix), dtype, modes is not None, overwrite=overwrite) as merged:
        for prefix in prefixes:
            merged.add_index(prefix)
        merged.finalize(idx_path(output_prefix))


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
