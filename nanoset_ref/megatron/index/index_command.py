"""Build the cached indexes in one process before a run, so that its ranks only map them.

    python -m nanoset_ref.megatron.index \\
        --data-path web_text_document=0.7 books_text_document=0.3 --split 949,50,1 \\
        --sequence-length 4096 --split-num-samples 1000000 1000 0 --random-seed 1234 \\
        --path-to-cache cache

The options are the fields of `NanosetConfig` on which the indexes depend. A run with the same
fields finds all its indexes; one with separate_final_epoch=False builds its own.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from nanoset_ref.cli.arguments import UsageError, at_least, paths_and_weights
from nanoset_ref.cli.command import run


def _count(text: str) -> int | None:
    """Parse a number of samples; "none" is None."""
    return None if text.lower() == "none" else at_least(0)(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """The options of the command.

    Args:
        data_path: one or several prefixes, or prefix=weight for each; an existing file whose own
            name ends in =NUMBER is taken as a file
        sequence_length: tokens per sample
        path_to_cache: the folder of the indexes
        split: sizes of train, valid and test
        split_num_samples: samples to draw for train, valid and test; none: one epoch
        random_seed: seed of every shuffle
        mid_level_dataset_surplus: fraction of samples that each corpus of a weighted blend has in
            reserve
        no_extra_token: cut samples of S tokens, not S + 1
        keep_last_partial: keep the last, partial sample of valid
    """

    data_path: list[str]
    sequence_length: int
    path_to_cache: str
    split: str = "949,50,1"
    # `_count` parses all three
    split_num_samples: tuple[Annotated[Any, _count], Any, Any] = (None, None, None)
    random_seed: int = 1234
    mid_level_dataset_surplus: float = 0.005
    no_extra_token: bool = False
    keep_last_partial: bool = False


def build_indexes(options: IndexOptions) -> None:
    """Build the cached indexes of a Megatron-style dataset."""
    # imported here: --help needs neither torch nor numba
    from nanoset_ref.megatron.builder import NanosetBuilder
    from nanoset_ref.megatron.nanoset_config import NanosetConfig, read_blend

    fields = vars(options) | {"data_path": parse_data_path(options.data_path)}
    if read_blend(fields["data_path"]).weights and None in options.split_num_samples:
        raise UsageError(
            "weights need --split-num-samples TRAIN VALID TEST, 0 for an unused split"
        )
    fields["add_extra_token_to_sequence"] = not fields.pop("no_extra_token")
    drops_partial = not fields.pop("keep_last_partial")
    fields["drop_last_partial_validation_sequence"] = drops_partial
    built = NanosetBuilder(NanosetConfig(**fields)).build()
    datasets = [dataset for dataset in built if dataset is not None]
    if not any(map(len, datasets)):
        raise ValueError(
            f"no split has a sample of {options.sequence_length} tokens: choose a smaller "
            "--sequence-length"
        )
    sys.stdout.writelines(f"{dataset}\n" for dataset in datasets)


def parse_data_path(items: Sequence[str]) -> list[Any]:
    """["a", "b"] -> ["a", "b"]; ["a=3", "b=1", "a=2"] -> [3.0, "a", 1.0, "b", 2.0, "a"]."""
    # imported here, as in `build_indexes`
    from nanoset_ref.megatron.nanoset_config import interleave_weights

    return interleave_weights(*paths_and_weights(items))


def main(
    arguments: Sequence[str] | None = None, prog: str = "nanoset_ref.megatron.index"
) -> int:
    """Run the command; return the exit code."""
    return run(build_indexes, arguments, prog)
