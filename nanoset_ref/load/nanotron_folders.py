"""Folders of .ds files as datasets, in the order of Nanotron's Nanosets.

Nanotron's trainer read them until April 2025 (from 2e36d6f to pull request 341). Its main branch
(2411b022, April 2026) has the class, and no longer calls it.

A `DatatroveNanoset` has one dataset per folder. Its rows of S + 1 tokens are "disjoint", as in
datatrove and in Nanotron's Nanoset, or "overlapping", as elsewhere in this package: they share one
token, so that every token is a label once.

`context_parallel_collator` makes the batches.

Source: nanotron.data.nanoset of https://github.com/huggingface/nanotron.
"""

from collections.abc import Mapping, Sequence

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.paths import PathLike, as_list
from nanoset_ref.io.types import Int64Array
from nanoset_ref.load.document_masks import starts_after_eos
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Starts
from nanoset_ref.load.weighted_paths import separate_weights
from nanoset_ref.orders import NanotronOrder
from nanoset_ref.orders.base import Weights
from nanoset_ref.orders.folders import FolderOrder
from nanoset_ref.tokens import Windows, datatrove_files


class DatatroveNanoset(Nanoset):
    """A Nanoset whose datasets are folders of .ds files.

    Args:
        dataset_folders: the folders (or one), or {folder: weight}.
        dataset_weights, sequence_length, train_split_num_samples, random_seed: as in `Nanoset`;
            weights are per folder.
        eos_token_id: the id at the end of each document; by default the index has their ends.
        windows: "disjoint" (Nanotron's) or "overlapping".

    The order, the samples and the positions of tokens within documents
    (`document_masks.position_ids`) are those of the Nanoset of 2411b022 (April 2026), bit for
    bit. As there, the files of a folder are shuffled with datatrove's own seed, 42, and files in
    subfolders are left out.
    """

    def __init__(
        self,
        dataset_folders: PathLike | Sequence[PathLike] | Mapping[str, float],
        dataset_weights: Weights | None,
        sequence_length: int,
        train_split_num_samples: int,
        random_seed: int = 1234,
        *,
        eos_token_id: int | None = None,
        windows: Windows = "disjoint",
    ) -> None:
        dataset_folders, dataset_weights = separate_weights(
            dataset_folders, dataset_weights
        )
        files = []
        file_lengths = []
        for path in as_list(dataset_folders):
            folder = datatrove_files(
                path, windows=windows, recursive=False, shuffle=True
            )
            files += folder
            file_lengths.append([file.num_samples(sequence_length) for file in folder])
        folder_lengths = [sum(lengths) for lengths in file_lengths]
        order = NanotronOrder(
            folder_lengths, dataset_weights, train_split_num_samples, random_seed
        )
        super().__init__(
            files,
            None,
            sequence_length,
            train_split_num_samples,
            random_seed,
            order=FolderOrder(order, file_lengths),
        )
        if eos_token_id is not None:
            eos_token_id = whole_number(eos_token_id, "eos_token_id", 0)
        self.eos_token_id = eos_token_id

    def _starts(self, positions: Int64Array) -> Starts:
        """See `Rows._starts`: after each EOS id, or else by the indexes of the files."""
        if self.eos_token_id is None:
            return super()._starts(positions)
        return starts_after_eos(self.read(positions), self.eos_token_id)
