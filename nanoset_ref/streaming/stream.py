"""TokenStream: text tokenised while training, in the rows a token file would have; and a DataLoader for it.

Position p of an epoch holds row p of the text, as preprocessing and a Nanoset in sequential order would give it; ranks
share positions as `nanoset_ref.load.schedule` says. This holds for any number of ranks and workers, and any
micro-batch size.

1. A rank's micro-batch t is made by worker t mod N. The DataLoader asks its workers in turn, so batches arrive in
   order, and no worker number shows in the data.
2. To know where row p begins one must have encoded everything before it: with shards=1 every worker of every rank
   encodes the whole text and hands out its part. That costs W x N times the work of one.
3. With shards=K the text is K texts (block b belongs to b mod K), each packed by itself; position p holds row p // K of
   shard p mod K. A worker encodes the shards its positions fall on: each is one worker's own if K is a multiple of
   W x B x N, and the order is the same for all of them. Shards end at different times, so each must begin again by
   itself (repeat=True), and the stream has no end.
4. `shuffle_buffer` = M rows of a shard are gathered and given out in an order keyed by (seed, epoch, shard, first row).
5. The state is the epoch and the count. Cursors, one per shard, only save time: a resume encodes one document and at
   most M rows again. Without a cursor the text is encoded from its beginning, with the same result.

Every batch of a TokenStreamDataLoader brings along the cursors of its worker, so a resume with any number of ranks,
workers and any micro-batch size goes on at once. torchdata's StatefulDataLoader works with a TokenStream as well; it
keeps a state per worker instead and needs as many ranks and workers as before.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from torch.utils.data import DataLoader, default_collate, get_worker_info

from nanoset_ref.io.files import PathLike, checksum
from nanoset_ref.load.dataloader import OneIterationLoader
from nanoset_ref.load.schedule import worker_item
from nanoset_ref.orders.plans import VERSION
from nanoset_ref.preprocess.encode import Backend, Encoder, load_tokenizer
from nanoset_ref.preprocess.text import TextPart, TextSource, open_text
from nanoset_ref.streaming.packed import ALGORITHM, Cursor, StreamOptions, shuffled_rows
from nanoset_ref.streaming.resumable import (
    Resumable,
    State,
    at_least,
    check_state,
    worker_and_workers,
)

Collate = Callable[[Any], Any]
Row = dict[str, NDArray[np.int32]]
# neither ids nor their order depend on the first two; the last two are seen in what the encoder says about itself
NOT_IN_PLAN = ("micro_batch_size", "backend", "append_eod", "add_special_tokens")


class TokenStream(Resumable):
    """Packed rows of sequence_length + 1 tokens, for one rank.

    Args:
        text: a TextSource, or a file, folder, dataset, ... for `open_text`, which takes a column and a split as well.
        tokenizer: a transformers tokenizer, or what `load_tokenizer` takes.
        sequence_length: S, in tokens.
        dp_rank, dp_size: r and W, among the data-parallel ranks; default: torch.distributed's, else 0 and 1.
        **options: micro_batch_size, shards, repeat, shuffle_buffer, seed, append_eod, add_special_tokens, backend,
            special_tokens: the fields of `StreamOptions`, which explains them.

    Yields {"input_ids": int32 [S + 1]}. The last rows of an epoch that are too few for all ranks are left out. Workers
    encode on one thread each: they are the parallelism. Position ids are the collator's (`documents` with an eod_id).

    Raises:
        ValueError: an argument out of its range; while reading, a text too short for one row or with too few blocks.
        TypeError: an option that does not exist.
        TokenizerError, InputError, FileNotFoundError: see load_tokenizer, Encoder and open_text.
    """

    def __init__(
        self,
        text: TextSource | PathLike | Sequence[PathLike],
        tokenizer: Any,
        sequence_length: int,
        *,
        dp_rank: int | None = None,
        dp_size: int | None = None,
        **options: Any,
    ) -> None:
        self.options = StreamOptions(sequence_length=sequence_length, **options)
        super().__init__(self.options.micro_batch_size, dp_rank, dp_size)
        self.source = text if isinstance(text, TextSource) else open_text(text)
        self.tokenizer = (
            load_tokenizer(tokenizer) if isinstance(tokenizer, (str, os.PathLike)) else tokenizer
        )
        self.seek()

    @property
    def plan(self) -> State:
        """What decides the tokens at every position: the content of the text, the tokenizer as it encodes (see
        `Encoder.identity`), and the options. The first access reads the whole text.
        """
        plan: State = json.loads(self._plan)
        return plan

    @cached_property
    def _plan(self) -> str:
        options = {
            name: value for name, value in asdict(self.options).items() if name not in NOT_IN_PLAN
        }
        if self.options.shuffle_buffer < 2:
            options |= {"shuffle_buffer": 0, "seed": None}  # nothing is shuffled
        if self.options.special_tokens == "refuse":
            options |= {"special_tokens": "keep"}  # what is read at all is the same
        files = [
            {"name": os.path.basename(part.path), "checksum": _content(part)}
            for part in self.source.parts
        ]
        encodes = self._encoder("hf").identity
        plan = {
            "version": VERSION,
            "algorithm": ALGORITHM,
            "files": files,
            "column": self.source.column,
        }
        return json.dumps(plan | encodes | options)

    def seek(
        self,
        epoch: int = 0,
        consumed_train_samples: int = 0,
        epoch_began_at: int = 0,
        cursors: Mapping[str, dict[str, int]] | None = None,
    ) -> None:
        """Let the next `for` begin at a count, with any number of ranks and workers.

        Args:
            epoch: from 0.
            consumed_train_samples: rows that all ranks together have had, over all epochs.
            epoch_began_at: that count when the epoch began.
            cursors: of a stream of the same plan, from any rank; they save time and change nothing else.
        """
        self.start: State = {
            "epoch": at_least(0, "epoch", epoch),
            "epoch_began_at": at_least(0, "epoch_began_at", epoch_began_at),
            "consumed_train_samples": at_least(
                epoch_began_at, "consumed_train_samples", consumed_train_samples
            ),
            "cursors": dict(cursors or {}),
        }
        self.restart(epoch)

    def first_place(self, epoch: int, worker: int, workers: int) -> State:
        # `taken` counts the rows that this worker has made since the count
        start = self.start if epoch == self.start["epoch"] else next_epoch(self.start)
        return {**start, "epoch": epoch, "taken": 0}

    def read(self, place: State) -> Iterator[Row]:
        begin = place["consumed_train_samples"] - place["epoch_began_at"]
        encoder = self._encoder(self.options.backend)
        worker, workers = worker_and_workers()
        if self.dp_rank == worker == 0:
            encoder.warn_without_separator()
        elif self.options.shards == 1:
            encoder.found.quiet = True  # the first worker of rank 0 reads the same documents
        shards: dict[int, Iterator[Any]] = {}
        for taken in count(place["taken"]):
            item = worker_item(taken, worker, workers, self.micro_batch_size)
            position, last_of_group = (
                self.schedule.position_at(begin, rank, item)
                for rank in (self.dp_rank, self.dp_size - 1)
            )
            index, number = divmod(position, self.options.shards)
            if number not in shards:
                cursor = Cursor(**place["cursors"].get(str(number), {"epoch": place["epoch"]}))
                cursor = Cursor(
                    *map(operator.index, cursor)
                )  # a TypeError where a damaged state has no integers
                if cursor.row > index:
                    cursor = Cursor(epoch=place["epoch"])
                shards[number] = shuffled_rows(self.source, encoder, self.options, number, cursor)
            found = _row_at(index, shards[number])
            alone = self.options.repeat or position == last_of_group
            if found is None or not (alone or _row_at(last_of_group, shards[number])):
                return  # the last group of ranks is not complete
            _, cursor_of_window, ids = found
            place["taken"] = taken + 1
            place["cursors"] = {**place["cursors"], str(number): cursor_of_window}
            yield {"input_ids": ids}

    def _encoder(self, backend: Backend) -> Encoder:
        """An encoder of this process: a parent's threads do not survive a fork. A worker's has none."""
        if get_worker_info() is not None:
            os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
        return Encoder(
            self.tokenizer,
            backend=backend,
            append_eod=self.options.append_eod,
            add_special_tokens=self.options.add_special_tokens,
            probe=self.source.beginning(),
            special_tokens=self.options.special_tokens,
        )


class TokenStreamDataLoader(OneIterationLoader):
    """The batches of a TokenStream, whole ones only.

    Args:
        stream: its micro_batch_size is the batch size.
        collate_fn: rows to a batch, in the worker, for example a DataCollatorForCLM.
        **options: of torch's DataLoader (num_workers, pin_memory, prefetch_factor, ...), but not persistent_workers:
            they would keep their place when an epoch begins.

    Each `for` is the rest of the current epoch, the next one a whole epoch (with repeat=True there is one without end).
    One at a time: a new one goes on after what has been delivered, and ends the one before.
    """

    def __init__(
        self,
        stream: TokenStream,
        collate_fn: Callable[[list[Row]], Any] = default_collate,
        **options: Any,
    ) -> None:
        options |= {"collate_fn": partial(_with_cursors, stream, collate_fn), "drop_last": True}
        super().__init__(stream, stream.micro_batch_size, persistent_workers=False, **options)
        self.stream, self._start = stream, dict(stream.start)

    def batches(self) -> Generator[Any, None, None]:
        start = self._start
        self.stream.seek(**start)
        for batch, cursors in DataLoader.__iter__(self):
            start["consumed_train_samples"] += self.stream.schedule.micro_step_size
            start["cursors"] = start["cursors"] | cursors
            yield batch
        self._start = next_epoch(start)

    @property
    def plan(self) -> State:
        """That of the stream."""
        return self.stream.plan

    @property
    def cursors(self) -> State:
        """Where each shard stands in the text: what `TokenStream.seek` takes."""
        return dict(self._start["cursors"])

    def seek(self, consumed_train_samples: int, cursors: Mapping[str, dict[str, int]]) -> None:
        """Let the next `for` begin at a count of the first epoch, as `TokenStream.seek`."""
        self.stream.seek(consumed_train_samples=consumed_train_samples, cursors=cursors)
        self._start = dict(self.stream.start)

    def state_dict(self) -> State:
        """{"epoch", "epoch_began_at", "consumed_train_samples", "cursors", "plan"}: good on every rank, JSON.

        consumed_train_samples counts the rows that all ranks together have had delivered, over all epochs, as a
        NanosetDataLoader's does.
        """
        return {**self._start, "plan": self.plan}

    def load_state_dict(self, state: State) -> None:
        """Continue after what `state` counts, with any number of ranks and workers. An iteration under way ends.

        Raises:
            PlanMismatch: the state of another text, tokenizer or order.
            ValueError: not a state of such a loader.
        """
        start = check_state(state, self.state_dict())
        del start["plan"]
        self.end_iteration()
        self._start = start


def next_epoch(start: State) -> State:
    """Where the epoch begins that follows the one of `start`."""
    consumed = start["consumed_train_samples"]
    return {**start, "epoch": start["epoch"] + 1, "epoch_began_at": consumed, "cursors": {}}


def _row_at(index: int, rows: Iterator[Any]) -> Any:
    """Row `index` of a shard, which lies ahead, with all that comes with it; None after the last one."""
    return next((found for found in rows if found[0] == index), None)


def _with_cursors(stream: TokenStream, collate_fn: Collate, rows: Any) -> tuple[Any, State]:
    """A batch, and where the stream of this process stands after it.

    A worker gets the loader's dataset and its collate function together, so `stream` is the copy that it reads.
    """
    return collate_fn(rows), stream.place["cursors"]


def _content(part: TextPart) -> str:
    """The checksum of a file of text, or of the texts of a dataset, each with its length."""
    if os.path.isfile(part.path):
        return checksum(part.path)
    digest = xxhash.xxh3_128()
    for block in part.kind(part):
        for document in block.documents():
            text = document.text.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
    return f"xxh3_128:{digest.hexdigest()}"
