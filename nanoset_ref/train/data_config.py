"""The `data` section of a stage: what a run can read.

    dataset: {dataset_path: ...}                  token files, .bin/.idx pairs, .ds files or folders
    dataset: {data_path: ..., split: "949,50,1"}  Megatron's documents, split and shuffled
    dataset: {data_path_per_split: [...]}         the same, with separate corpora for each split
    dataset: {chunks: folder}                     one chunk after another, each as a separate stage
    dataset: {text: ...}                          text, tokenized while the model trains

Each is a `DatasetConfig`; the two forms for Megatron's documents share one. The modules that read
the data are imported only if a config uses them. `staged_loader` opens text, and token
files, which may continue an earlier stage.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from nanoset_ref import load, megatron, tokens  # each loads its modules when used
from nanoset_ref.io.error_text import short_repr
from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import as_list, location_of
from nanoset_ref.io.urls import absolute, local_path
from nanoset_ref.tokens import Tokens, open_tokens
from nanoset_ref.tokens.companions import bin_of_pair
from nanoset_ref.train.strict_yaml import ConfigError

with extra("train", "a training run"):
    from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from nanoset_ref.load.rows import Rows

Count = Annotated[int, Field(ge=1, lt=2**63)]
Size = Annotated[int, Field(ge=1, lt=2**20)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
WeightByPath = dict[str, NonNegativeFloat | None]


class Section(BaseModel):
    """A mapping in the YAML file: strict ("15" is not an integer), frozen, no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class DatasetConfig(Section):
    """One kind of data: token files, Megatron's documents, chunks or text.

    Attributes:
        names_token_files: whether it is a `TokenFilesConfig`, which a later stage may continue.
        checkpoint_at_end: whether a checkpoint is saved after its last step.
        streams_text: whether it has text instead of rows.
        continues: whether a stage continues an earlier one with the same files or order.
    """

    names_token_files: ClassVar[bool] = False
    checkpoint_at_end: ClassVar[bool] = False
    streams_text: ClassVar[bool] = False

    @property
    def continues(self) -> bool:
        """See the class."""
        return False

    @abstractmethod
    def open_files(self) -> list[Tokens]:
        """Open the token files, to check them before the run begins."""

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Rows:
        """Open the rows of a stage.

        Args:
            sequence_length: tokens per sample.
            num_samples: the samples that the stage reads.
            seed: the order's seed.
        """
        raise NotImplementedError  # of text, which has no rows


def _weight_by_path(dataset_path: Any) -> dict[str, Any]:
    """Normalize the three forms of dataset_path to {absolute path: weight or None}."""
    weights = dataset_path if isinstance(dataset_path, dict) else {}
    try:
        paths = as_list(list(weights) or dataset_path)
        by_path = {_stored_path(path): weights.get(path) for path in paths}
    except TypeError:
        by_path = {}
    # a checkpoint records a list as {path: null}
    if not by_path or "" in paths or {None} < set(weights.values()):
        raise ValueError(
            "must be one path, a list of paths or a mapping of paths to weights, "
            f"got {short_repr(dataset_path)}"
        )
    if len(set(map(without_links, by_path))) < len(paths):
        raise ValueError(f"a file may be named once, got {short_repr(dataset_path)}")
    if all(weight == 0 for weight in by_path.values()):
        raise ValueError("must name at least one file with a weight above 0")
    return by_path


def _stored_path(path: str) -> str:
    """The absolute path; for a .bin/.idx pair, the path of its .bin under any of its names."""
    path = absolute(path)
    return bin_of_pair(path) or path


def without_links(path: str) -> Any:
    """What all names of a file share: the path with all links followed, or a `BucketPath`."""
    location = location_of(path)
    return os.path.realpath(path) if isinstance(location, str) else location


class TokenFilesConfig(DatasetConfig):
    """Which token files a stage reads, and in which order.

    Args:
        dataset_path: one path, a list of paths (an epoch reads every sample of each once), or
            {path: weight}. It is stored as {absolute path: weight}, with weights None in the first
            two forms. A path names a token file, a .ds file, a .bin/.idx pair (either file, or on
            the disk their common prefix), or a folder of .ds files, which is read as
            Nanotron read it until April 2025.
        order: "nanotron" (that of the Nanosets of 2024) or "stateless" (see `orders`); folders
            require "nanotron".
        reuse: how to read files that an earlier stage read: "continue" starts where that stage
            stopped; "restart" starts at the beginning, like the Nanosets of 2024. None: "continue"
            for the stateless order, "restart" for Nanotron's.
        token_dtype: the dtype of files that do not record it (default: uint16).
    """

    names_token_files = True
    dataset_path: Annotated[WeightByPath, BeforeValidator(_weight_by_path)]
    order: Literal["nanotron", "stateless"] = "nanotron"
    reuse: Literal["continue", "restart"] | None = None
    token_dtype: Literal["uint16", "int32"] | None = None

    @property
    def continues(self) -> bool:
        """See `DatasetConfig`; `reuse`, or the default of the order."""
        if self.reuse is None:
            return self.order == "stateless"
        return self.reuse == "continue"

    @property
    def names_folders(self) -> bool:
        """Whether the paths are folders of .ds files."""
        return all(map(os.path.isdir, self.dataset_path))

    @property
    def files_read(self) -> set[Any]:
        """Its files `without_links`, also those in folders."""
        paths: Any = self.dataset_path
        if self.names_folders:
            paths = [file.path for folder in paths for file in _ds_files(folder)]
        return {without_links(str(path)) for path in paths}

    @model_validator(mode="after")
    def _check(self) -> TokenFilesConfig:
        if self.names_folders and self.order != "nanotron":
            raise ValueError(
                "folders of .ds files have Nanotron's order; name the files for another order"
            )
        return self

    def open_files(self) -> list[Tokens]:
        """Open every file, or the first file of every folder."""
        if self.names_folders:
            return [_ds_files(folder)[0] for folder in self.dataset_path]
        return [open_tokens(path, self.token_dtype) for path in self.dataset_path]

    def count_samples(self, opened: list[Tokens], sequence_length: int) -> int:
        """Count the samples in one epoch of all files whose weight is not 0.

        Args:
            opened: the result of `open_files`.
            sequence_length: tokens per sample.
        """
        total = 0
        for (path, weight), file in zip(self.dataset_path.items(), opened, strict=True):
            if weight == 0:
                continue
            files = _ds_files(path) if self.names_folders else [file]
            total += sum(file.num_samples(sequence_length) for file in files)
        return total

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Rows:
        """Open the rows of folders of .ds files.

        Token files are opened by `stage_rows`, as a stage may continue an earlier one.
        """
        folders = list(self.dataset_path)
        weights = [
            weight for weight in self.dataset_path.values() if weight is not None
        ]
        return load.DatatroveNanoset(
            folders, weights or None, sequence_length, num_samples, seed
        )


def _ds_files(folder: str) -> list[Any]:
    """The .ds files of a folder, as Nanotron reads them."""
    return tokens.datatrove_files(folder, recursive=False)


class MegatronConfig(DatasetConfig):
    """Megatron-style data; a run reads its train split. See `NanosetConfig`.

    Args:
        data_path: a prefix, a list of prefixes, or {prefix: weight}; requires `split`.
        data_path_per_split: instead of data_path and split, three such values (or null), for train,
            valid and test.
        split: relative sizes of train, valid and test.
        num_samples: samples in the three indexes; default: as many as the stage reads. Megatron's
            order depends on this number, so set it if the run may become longer.
        path_to_cache: see NanosetConfig.
    """

    data_path: Any = None
    data_path_per_split: Any = None
    split: str | None = None
    num_samples: Count | None = None
    path_to_cache: str | None = None

    @model_validator(mode="after")
    def _check(self) -> MegatronConfig:
        self.nanoset_config(1, 1, 0)
        cache = self.path_to_cache
        if cache and local_path(cache, "path_to_cache").is_file():
            raise ValueError(f"path_to_cache must be a folder, got the file {cache}")
        return self

    def nanoset_config(self, sequence_length: int, num_samples: int, seed: int) -> Any:
        """The NanosetConfig of a stage; for the arguments see `open`."""
        return megatron.NanosetConfig(
            random_seed=seed,
            sequence_length=sequence_length,
            split_num_samples=(self.num_samples or num_samples, 0, 0),
            **self.model_dump(exclude={"num_samples"}),
        )

    def open_files(self) -> list[Tokens]:
        """Open every .bin/.idx pair."""
        prefixes: dict[str, None] = {}  # in their order, each once
        for plan in self.nanoset_config(1, 1, 0).splits:
            if plan.blend:
                prefixes |= dict.fromkeys(plan.blend.prefixes)
        return [megatron.MMapIndexedDataset(prefix) for prefix in prefixes]

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Rows:
        """Open the rows of the train split."""
        config = self.nanoset_config(sequence_length, num_samples, seed)
        rows: Any = megatron.NanosetBuilder(config).build(["train"])[0]
        available = len(rows or ())
        if available < num_samples:
            raise ConfigError(
                f"the stage reads {num_samples} samples, but its train split has only {available}: "
                "give weights (a blend without weights is one epoch), a larger num_samples "
                "or fewer steps"
            )
        return rows


class ChunksConfig(DatasetConfig):
    """A folder of chunks, read as in LLM360's runs: in file order, with a checkpoint per chunk.

    Args:
        chunks: a folder that `chunks mix` wrote. The chunks' token files are written into it.
        first_chunk: the number of the first chunk to read, from 0.
        vocab_size: the size of the vocabulary, for chunks without a manifest.
    """

    checkpoint_at_end = True
    chunks: str
    first_chunk: int = Field(default=0, ge=0)
    vocab_size: Count | None = None

    @property
    def paths(self) -> list[Path]:
        """The files of the chunks, starting with `first_chunk`."""
        return _chunk_conversion().chunk_files(self.chunks)[self.first_chunk :]

    def open_files(self) -> list[Tokens]:
        """Open the first chunk."""
        if not self.paths:
            raise ValueError(
                f"{self.chunks} has no chunk {self.first_chunk}; they are counted from 0"
            )
        return [_chunk_conversion().chunk_tokens(self.paths[0], self.vocab_size)]

    def each_chunk(self) -> Iterator[tuple[str, int, ChunksConfig]]:
        """Yield the name and samples of each chunk, and the section that begins with it."""
        count_rows = _chunk_conversion().count_rows
        for number, path in enumerate(self.paths, self.first_chunk):
            section = self.model_copy(update={"first_chunk": number})
            yield path.stem, count_rows(path), section

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Rows:
        """Open the rows of the first chunk."""
        # imported here: a check does not need torch
        from nanoset_ref.load.nanoset import Nanoset

        chunk = self.open_files()
        return Nanoset(
            chunk, None, sequence_length, num_samples, seed, order="identity"
        )


def _chunk_conversion() -> Any:
    # imported here: only a config with chunks needs this module
    from nanoset_ref.chunks import chunk_conversion

    return chunk_conversion


class TextConfig(DatasetConfig):
    """Text that is tokenized while the model trains, epoch after epoch.

    Every rank encodes the whole text.

    Args:
        text: a .jsonl or .parquet file, a folder, a glob, the name of a dataset, or a list of these
            (see `open_text`).
        column, split, config: see `open_text`.
        append_eod, add_special_tokens, special_tokens, shuffle_buffer: see
            `streaming.StreamOptions`.
    """

    streams_text = True
    text: str | list[str]
    column: str = "text"
    split: str | None = None
    config: str | None = None
    append_eod: bool = False
    add_special_tokens: bool = False
    special_tokens: Literal["keep", "split", "refuse"] = "keep"
    shuffle_buffer: int = Field(default=0, ge=0)

    def source(self) -> Any:
        """Open the text."""
        # imported here: only a config with text needs this module
        from nanoset_ref.preprocess.text import open_text

        return open_text(
            self.text, column=self.column, split=self.split, config=self.config
        )

    def open_files(self) -> list[Tokens]:
        """Check that the text exists; there are no token files."""
        self.source()
        return []


SECTION_BY_KEY: dict[str, type[Section]] = {
    "dataset_path": TokenFilesConfig,
    "data_path": MegatronConfig,
    "data_path_per_split": MegatronConfig,
    "chunks": ChunksConfig,
    "text": TextConfig,
}


def _section_by_key(value: Any) -> Any:
    """Validate the section that the mapping's key selects; a union would report all errors."""
    if isinstance(value, Section):
        return value
    for key, section in SECTION_BY_KEY.items():
        if isinstance(value, dict) and key in value:
            return section.model_validate(value)
    raise ValueError(
        f"must be a mapping with one of {', '.join(SECTION_BY_KEY)}, got {short_repr(value)}"
    )


class DataConfig(Section):
    """The data of a stage, and how it is read ahead.

    Args:
        dataset: the data to read.
        num_loading_workers: processes per rank that read ahead; 0: read in the training process.
        read_ahead: blocks that a thread of the training process reads ahead. For files in a bucket
            use 2, and no workers.
        seed: the order's seed.
    """

    dataset: Annotated[
        TokenFilesConfig | MegatronConfig | ChunksConfig | TextConfig,
        BeforeValidator(_section_by_key),
    ]
    num_loading_workers: int = Field(default=0, ge=0, lt=2**15)
    read_ahead: int = Field(default=0, ge=0, lt=2**10)
    seed: int = Field(default=1234, ge=0, lt=2**32)
