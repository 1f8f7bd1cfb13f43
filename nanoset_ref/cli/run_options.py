"""The options that name a run: a YAML file, a run card, or token files and their order."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from nanoset_ref import megatron, preprocess, provenance, tokens, train
from nanoset_ref.cli.arguments import (
    NotNegative,
    Positive,
    UsageError,
    at_least,
    paths_and_weights,
)
from nanoset_ref.cli.file_commands import FileOptions
from nanoset_ref.io.types import Array

# each loads its modules when used
from nanoset_ref.load.schedule import Layout, Schedule

if TYPE_CHECKING:
    from nanoset_ref.load.nanoset import Nanoset
    from nanoset_ref.load.rows import Rows
    from nanoset_ref.megatron import NanosetConfig
    from nanoset_ref.provenance import Card, QueryParser, RunSegment, StageReader
    from nanoset_ref.tokens import Tokens

CARD_FIELDS = "sequence_length", "row_length", "num_samples", "seed", "order", "split"
# the options that a run's card or config already fixes
FIXED_FIELDS = {
    "run": CARD_FIELDS,
    "config": (*CARD_FIELDS, "token_dtype", "eos_token_id"),
}


@dataclasses.dataclass(kw_only=True)
class RunOptions(FileOptions):
    """The options that name a run and its ranks.

    Args:
        config: the YAML file of nanoset_ref.train, which describes the whole run, or a folder of
            its checkpoints.
        run: a run card: a file, or the name of a shipped one (docs/cards.md). With --data its token
            files are read, too; --dp-size and the like ask about other ranks.
        sizes: the file that `nanoset-ref card complete` wrote, for a card without sizes:
            [[name, bytes], ...].
        data: FILE[=WEIGHT]: token files (.npy, or .ds in rows that share no token), or .bin/.idx
            pairs by either name or their prefix; give each a weight, or none. Pairs alone are
            Megatron-style data, unless --order or --row-length is given. A .bin without .idx is a
            raw token file. A number after the last "=" is a weight, unless the whole is a file
            that exists.
        sequence_length: tokens per sample (default: 2048).
        row_length: tokens per row if rows share none and the rest of a file is dropped (OLMo: its
            sequence length, Pythia: 2049), instead of --sequence-length.
        num_samples: samples of the run (default: one epoch).
        seed: the seed of the order (default: 1234).
        order: the order of token files: nanotron (the default; that of the Nanosets of 2024),
            stateless, identity, one of another loader (docs/loaders.md), or a .npy
            file of instance numbers, such as OLMo's global_indices.npy.
        split: the shares of Megatron-style data for train, valid, test; the first part is read
            (default: 1,0,0).
        tokenizer: name or folder; default: the config's, or else the file's.
        layout: how ranks share a micro-batch, if it is given; also an option of `Schedule`.
        schedule: the ranks and steps that options describe; None: no option does.
    """

    config: str | None = None
    run: str | None = None
    sizes: str | None = None
    data: Sequence[str] = ()
    sequence_length: Positive | None = None
    row_length: Annotated[int, at_least(2)] | None = None
    num_samples: NotNegative | None = None
    seed: int | None = None
    order: str | None = None
    split: str | None = None
    tokenizer: str | None = None
    layout: Layout | None = None
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        """Raise UsageError unless exactly one of --config, --run and --data names the run."""
        named_by_data = bool(self.data) and not self.run
        if [bool(self.config), bool(self.run), named_by_data].count(True) != 1:
            raise UsageError(
                "name a run: --config FILE.yaml, --run CARD, or --data FILE[=WEIGHT] ..."
            )
        if self.sizes and not self.run:
            raise UsageError("--sizes belongs to a card; name it with --run")
        kind = "run" if self.run else "config"
        fixed = () if named_by_data else FIXED_FIELDS[kind]
        for name in fixed:
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is fixed by --{kind}; drop one of them")
        if self.row_length and self.sequence_length:
            raise UsageError(
                "give either --row-length, for rows that share no token, or --sequence-length"
            )

    def read_config(self) -> train.Config:
        """Read the YAML file; UsageError if options describe the ranks, too."""
        if self.schedule is not None:
            raise UsageError(
                "the config determines ranks, batches and first steps; drop these options, or "
                "change the config"
            )
        return self._config

    def workers(self, num_loading_workers: int | None) -> int:
        """DataLoader workers per rank of a run named by --data; UsageError if another has them."""
        if num_loading_workers is not None and (self.config or self.run):
            raise UsageError("--num-loading-workers belongs to --data alone; drop it")
        return num_loading_workers or 0

    def segments(self, workers: int = 0) -> list[RunSegment]:
        """The stages of the YAML file or card, or a single segment over --data.

        Args:
            workers: DataLoader workers per rank, of a segment over --data.
        """
        if self.run:
            card = self.card
            if not self.data:
                raise UsageError(
                    f"this needs the token files of {card.name}: give them with --data"
                )
            return provenance.segments_of_card(card, self.data, self.open)
        if self.config:
            return provenance.segments_of_config(
                self.read_config(), train.recorded_data(self.config)
            )
        schedule = self.schedule or Schedule()
        rows = self._rows()
        samples = max(0, len(rows) - schedule.consumed_train_samples)
        steps = samples // schedule.global_batch_size
        return [provenance.RunSegment("run", rows, schedule, steps, workers)]

    @functools.cached_property
    def _config(self) -> train.Config:
        """The config of --config, loaded once."""
        return train.load_config(self.config or "")

    @functools.cached_property
    def _card(self) -> Card:
        """The card of --run with the sizes of --sizes, loaded once."""
        return provenance.Card.load(self.run or "", self.sizes)

    def open(self, path: str) -> Tokens:
        """Open a token file, with the dtype of --token-dtype, or else of the card."""
        dtype = self.token_dtype
        if dtype is None and self.run:
            dtype = self._card.facts["dtype"]
        return tokens.open_tokens(path, dtype, self.eos_token_id)

    @property
    def is_card_alone(self) -> bool:
        """Whether the run is a card without its token files."""
        return bool(self.run) and not self.data

    @property
    def card(self) -> Card:
        """The card of --run, with the sizes of --sizes or --data, and the ranks of the options."""
        card = self._card
        if self.data and "listed" in card.facts:
            card = card.with_files([self.open(path) for path in self.data])
        if self.schedule is None:
            return card
        if self.layout and self.schedule == Schedule(layout=self.layout):
            return card.with_layout(self.layout)  # --layout is the only option
        return card.with_ranks(self.schedule, self.layout)

    def readers(self, source: int) -> tuple[list[StageReader], QueryParser]:
        """The stages of the run and the parser of queries; see `provenance.readers_of_card`."""
        if self.is_card_alone:
            return provenance.readers_of_card(self.card, source)
        readers, parser = provenance.readers_of_segments(self.segments(), source)
        return readers, parser._replace(
            tokenizer_of=self.tokenizer_of, progress=show_progress
        )

    def parse_data(self) -> tuple[list[str], list[float] | None, bool]:
        """Parse --data.

        Returns:
            paths: the files, or the prefixes of pairs.
            weights: their weights, or None.
            are_pairs: whether Megatron's classes read them.
        """
        # only --data needs it
        from nanoset_ref.tokens.companions import bin_of_pair, prefix_of

        paths, weights = paths_and_weights(tokens.without_companions(self.data))
        are_pairs = all(map(bin_of_pair, paths))
        if are_pairs and not (self.order or self.row_length):
            return list(map(prefix_of, paths)), weights, True
        if self.split:
            raise UsageError(
                "--split applies to Megatron's samples of .bin/.idx pairs; divide other files with "
                "`nanoset-ref split`"
            )
        return paths, weights, False

    @property
    def resolved_sequence_length(self) -> int:
        """S: a row has S + 1 tokens."""
        if self.row_length:
            return self.row_length - 1
        return self.sequence_length or 2048

    @property
    def resolved_seed(self) -> int:
        """The seed of the order: the given one, or 1234."""
        return 1234 if self.seed is None else self.seed

    @property
    def resolved_num_samples(self) -> int | None:
        """The given number of samples, or of instances in the order's file; None: an epoch."""
        order = self.order or ""
        if self.num_samples is None and order.endswith(".npy"):
            from nanoset_ref.orders.published import open_instances  # only here

            return len(open_instances(order))
        return self.num_samples

    def _rows(self) -> Rows:
        """The rows of --data."""
        paths, weights, are_pairs = self.parse_data()
        if not are_pairs:
            return self.nanoset(paths, weights)
        config = self.megatron_config(paths, weights)
        rows = megatron.NanosetBuilder(config).build(["train"])[0]
        if rows is None:
            raise ValueError(
                f"--split {config.split} leaves no samples for train, the part this command reads"
            )
        return rows

    def nanoset(self, paths: list[str], weights: list[float] | None) -> Nanoset:
        """The Nanoset of --data, from the result of `parse_data`."""
        from nanoset_ref import Nanoset  # only token files need it

        return Nanoset(
            [self.open(path) for path in paths],
            weights,
            self.resolved_sequence_length,
            self.resolved_num_samples,
            self.resolved_seed,
            order=self.order or "nanotron",
            disjoint=bool(self.row_length),
        )

    def megatron_config(
        self, prefixes: list[str], weights: list[float] | None
    ) -> NanosetConfig:
        """The config of Megatron-style data.

        Args:
            prefixes: the .bin/.idx pairs.
            weights: their weights, or None.
        """
        if weights and self.num_samples is None:
            raise ValueError(
                "a weighted blend of .bin/.idx pairs has no epoch; give --num-samples"
            )
        # only pairs need it
        from nanoset_ref.megatron.nanoset_config import interleave_weights

        return megatron.NanosetConfig(
            random_seed=self.resolved_seed,
            sequence_length=self.resolved_sequence_length,
            data_path=interleave_weights(prefixes, weights),
            split=self.split or "1,0,0",
            split_num_samples=(self.num_samples, 0, 0),
        )

    def tokenizer_of(self, file: Tokens) -> Any:
        """The tokenizer of --tokenizer, or else of the config or card, or else of a file."""
        name = None
        if self.run:
            name = self._card.facts["tokenizer"]["name"]
        elif self.config and self._config.tokenizer:
            name = self._config.tokenizer.tokenizer_name_or_path
        return self.chosen_tokenizer(name or file.facts.get("tokenizer"))

    def chosen_tokenizer(self, name: str | None) -> Any:
        """The tokenizer of --tokenizer, or else of this name."""
        if self.tokenizer:
            return open_cached_tokenizer(self.tokenizer)
        if not name:
            raise ValueError("the tokenizer is unknown; give --tokenizer")
        try:
            return open_cached_tokenizer(name)
        except (OSError, ValueError) as error:
            raise ValueError(f"{error}; or name another with --tokenizer") from error

    def decode(self, file: Tokens, ids: Array) -> str:
        """The text of some ids."""
        return self.tokenizer_of(file).decode(ids.tolist())


def show_progress(text: str) -> None:
    """Show how far a command is, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="", file=sys.stderr)


@functools.cache
def open_cached_tokenizer(name: str) -> Any:
    """Load a tokenizer, once per process."""
    return preprocess.open_tokenizer(name)


def segment_at(segments: Sequence[RunSegment], step: int) -> RunSegment:
    """The segment that holds a step.

    Raises:
        IndexError: no segment holds it.
    """
    for segment in segments:
        if step in segment.steps:
            return segment
    first = segments[0].steps.start
    last = segments[-1].steps.stop - 1
    if last < first:
        raise IndexError(
            f"this run has no steps: its {len(segments[0].dataset)} samples do not fill one; give "
            "--num-samples"
        )
    raise IndexError(f"step {step} is not one of this run's steps {first} to {last}")


def require_one_of(**options: Any) -> None:
    """UsageError unless exactly one option is not None."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise UsageError(f"give exactly one of {names}")


def step_given_once(number: int | None, step: int | None) -> int:
    """The step of a command that takes it as its first word or as --step."""
    given = [value for value in (number, step) if value is not None]
    if len(given) != 1:
        raise UsageError(
            "give the step once: as a number before --data, or as --step NUMBER"
        )
    return given[0]
