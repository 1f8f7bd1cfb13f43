"""The `data` section of a stage: the five roads on which tokens come into a run.

    dataset: {dataset_path: ...}                    token files, .bin/.idx pairs, .ds files or folders of .ds files
    dataset: {data_path: ..., split: "949,50,1"}    Megatron's: documents cut into train, valid and test, and shuffled
    dataset: {data_path_per_split: [...]}           the same, with corpora of their own for each split
    dataset: {chunks: folder}                       chunk after chunk, each a stage with a checkpoint after it
    dataset: {text: ...}                            text, tokenised while training reads it

Each road is a class that opens its `tokens`, to look at before the run begins, and the rows of a stage (of token files
and text see `stages`). Chunks and text are imported where they are opened, `tokens` and `megatron` load their modules
when they are used: a config of token files needs none of them.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from nanoset_ref import megatron, tokens
from nanoset_ref.io.buckets import absolute
from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import listed
from nanoset_ref.tokens import Tokens, open_tokens
from nanoset_ref.train.strict_yaml import ConfigError

with extra("train", "a training run"):
    from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, lt=2**63)]
Size = Annotated[int, Field(ge=1, lt=2**20)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A mapping in the file. Strict: "15" is no integer. Frozen. Unknown keys are errors."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def _by_path(given: Any) -> dict[str, Any]:
    """The three forms of dataset_path as one: {absolute path: weight or None}."""
    weights = given if isinstance(given, dict) else {}
    try:
        paths = listed(given)
        named = {absolute(path): weights.get(path) for path in paths}
    except TypeError:
        named = {}
    if not named or None in weights.values():
        got = reprlib.repr(given)
        raise ValueError(
            f"must be one path, a list of paths or a mapping of paths to weights, got {got}"
        )
    if len(named) < len(paths):
        raise ValueError(f"a file may be named once, got {reprlib.repr(given)}")
    if all(weight == 0 for weight in named.values()):
        raise ValueError("must name at least one file with a weight above 0")
    return named


class DatasetConfig(Section):
    """Which token files a stage reads, and in which order.

    Args:
        dataset_path: one path; a list of paths (an epoch reads every sample of each once); or {path: weight}. Kept as
            {absolute path: weight}, weights None in the first two forms. A path is a token file, a .ds file, a
            .bin/.idx pair (by either name or their prefix), or a folder of .ds files, read as today's Nanotron does.
        order: "nanotron" or "stateless" (see `orders`); of folders "nanotron".
        reuse: of files that an earlier stage read: "continue" reads on where it stopped; "restart" begins again, as
            Nanotron originally did. None: "continue" for the stateless order, "restart" for Nanotron's.
        token_dtype: of files that do not say it themselves (default uint16).
    """

    dataset_path: Annotated[dict[str, NotNegative | None], BeforeValidator(_by_path)]
    order: Literal["nanotron", "stateless"] = "nanotron"
    reuse: Literal["continue", "restart"] | None = None
    token_dtype: Literal["uint16", "int32"] | None = None

    @property
    def continues(self) -> bool:
        return self.reuse == "continue" or (self.reuse is None and self.order == "stateless")

    @property
    def names_folders(self) -> bool:
        """Whether the paths are folders of .ds files."""
        return all(map(os.path.isdir, self.dataset_path))

    @model_validator(mode="after")
    def _check(self) -> DatasetConfig:
        if self.names_folders and self.order != "nanotron":
            raise ValueError(
                "folders of .ds files have Nanotron's order; name the files to have another"
            )
        return self

    def tokens(self) -> list[Tokens]:
        """Every file or, of folders, the first file in each."""
        if self.names_folders:
            return [
                tokens.datatrove_files(folder, recursive=False)[0] for folder in self.dataset_path
            ]
        return [open_tokens(path, self.token_dtype) for path in self.dataset_path]

    def samples(self, opened: list[Tokens], sequence_length: int) -> int:
        """Samples in one epoch of all files whose weight is not 0; of folders, of all their files.

        Args:
            opened: what `tokens` gave.
            sequence_length: in tokens.
        """
        read: list[Any] = []
        for (path, weight), file in zip(self.dataset_path.items(), opened, strict=True):
            if weight == 0:
                continue
            read += tokens.datatrove_files(path, recursive=False) if self.names_folders else [file]
        return sum(file.num_samples(sequence_length) for file in read)


class MegatronSection(Section):
    """Megatron-style data, of which a run reads the train split; the options are those of a `NanosetConfig`.

    Args:
        data_path: a prefix, a list of prefixes, or {prefix: weight}; with `split`. Or data_path_per_split: three of
            these (or null) for train, valid and test.
        split: relative sizes of train, valid and test.
        num_samples: for which the three indexes are built; default: what the stage reads. In Megatron it decides the
            order, so name it if the run may become longer.
        path_to_cache: see NanosetConfig.
    """

    data_path: Any = None
    data_path_per_split: Any = None
    split: str | None = None
    num_samples: Count | None = None
    path_to_cache: str | None = None

    @model_validator(mode="after")
    def _check(self) -> MegatronSection:
        self._config(1, 1, 0)
        return self

    def _config(self, sequence_length: int, num_samples: int, seed: int) -> Any:
        options = self.model_dump(exclude={"num_samples"})
        options["split_num_samples"] = self.num_samples or num_samples, 0, 0
        return megatron.NanosetConfig(random_seed=seed, sequence_length=sequence_length, **options)

    def tokens(self) -> list[Tokens]:
        """Every pair."""
        blends = [plan[1] for plan in self._config(1, 1, 0).splits]
        prefixes = dict.fromkeys(prefix for blend in blends if blend for prefix in blend.prefixes)
        return [megatron.MMapIndexedDataset(prefix) for prefix in prefixes]

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Any:
        """The train split."""
        rows = megatron.NanosetBuilder(self._config(sequence_length, num_samples, seed)).build(
            ["train"]
        )[0]
        if rows is None or len(rows) < num_samples:
            raise ConfigError(
                f"the stage reads {num_samples} samples, its train split has {len(rows or ())}: give weights (a blend "
                "without weights is one epoch), a larger num_samples or fewer steps"
            )
        return rows


class ChunksSection(Section):
    """A folder of chunks, as LLM360 trained: chunk after chunk in file order, and a checkpoint after each.

    Args:
        chunks: the folder, as `chunks mix` writes it; token files of the chunks are written into it.
        first_chunk: the number of the chunk to begin with, from 0.
        vocab_size: of chunks without a manifest.
    """

    chunks: str
    first_chunk: int = Field(default=0, ge=0)
    vocab_size: Count | None = None

    @property
    def paths(self) -> list[Path]:
        """The chunks to be read."""
        from nanoset_ref.chunks.chunk_rows import chunk_files

        return chunk_files(self.chunks)[self.first_chunk :]

    def tokens(self) -> list[Tokens]:
        """The first chunk."""
        from nanoset_ref.chunks.chunk_rows import chunk_tokens

        if not self.paths:
            raise ValueError(
                f"{self.chunks} has no chunk {self.first_chunk}; they are counted from 0"
            )
        return [chunk_tokens(self.paths[0], self.vocab_size)]

    def each(self) -> Iterator[tuple[str, int, ChunksSection]]:
        """Name, samples, and the section that begins with it, of every chunk."""
        from nanoset_ref.chunks.chunk_rows import count_rows

        for number, path in enumerate(self.paths, self.first_chunk):
            yield path.stem, count_rows(path), self.model_copy(update={"first_chunk": number})

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Any:
        """The rows of the first chunk."""
        from nanoset_ref.load.nanoset import Nanoset

        return Nanoset(self.tokens(), None, sequence_length, num_samples, seed, order="identity")


class TextSection(Section):
    """Text, tokenised while training reads it, again and again. Every rank encodes all of it.

    Args:
        text: what `open_text` takes: a .jsonl or .parquet file, a folder, a glob, the name of a dataset; or a list.
        column, split, config: of `open_text`.
        append_eod, add_special_tokens, special_tokens, shuffle_buffer: see `streaming.StreamOptions`.
    """

    text: str | list[str]
    column: str = "text"
    split: str | None = None
    config: str | None = None
    append_eod: bool = False
    add_special_tokens: bool = False
    special_tokens: Literal["keep", "split", "refuse"] = "keep"
    shuffle_buffer: int = Field(default=0, ge=0)

    def source(self) -> Any:
        """The text, opened."""
        from nanoset_ref.preprocess.text import open_text

        return open_text(self.text, column=self.column, split=self.split, config=self.config)

    def tokens(self) -> list[Tokens]:
        """None: the text is only looked for."""
        self.source()
        return []

    def open(self, sequence_length: int, num_samples: int, seed: int) -> Any:
        """ConfigError: who wants to know the rows has to preprocess the text."""
        raise ConfigError(
            "a stage that streams text has no rows to look at; preprocess the text to know them"
        )


ROADS: dict[str, type[Section]] = {
    "dataset_path": DatasetConfig,
    "data_path": MegatronSection,
    "data_path_per_split": MegatronSection,
    "chunks": ChunksSection,
    "text": TextSection,
}


def _by_key(given: Any) -> Any:
    """The section of the road whose key is in the mapping."""
    keys = given if isinstance(given, dict) else ()
    found = next((road for key, road in ROADS.items() if key in keys), None)
    if found is None and not isinstance(given, Section):
        raise ValueError(
            f"must be a mapping with one of {', '.join(ROADS)}, got {reprlib.repr(given)}"
        )
    return found.model_validate(given) if found else given


class DataConfig(Section):
    """
    Args:
        dataset: what is read.
        num_loading_workers: processes per rank that read ahead; 0 reads in the training process.
        read_ahead: blocks that a thread reads ahead in the training process; for files in a bucket 2, and no workers.
        seed: of the order.
    """

    dataset: Annotated[
        DatasetConfig | MegatronSection | ChunksSection | TextSection, BeforeValidator(_by_key)
    ]
    num_loading_workers: int = Field(default=0, ge=0, lt=2**15)
    read_ahead: int = Field(default=0, ge=0, lt=2**10)
    seed: int = Field(default=1234, ge=0, lt=2**32)
