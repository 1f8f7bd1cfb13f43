"""TokenStream: text tokenised while training, in the rows a token file would have.

Position p of an epoch holds row p of the text, as preprocessing and a Nanoset in sequential order would give it; rank r
of W reads positions c + r, c + r + W, ... from the global count c on. This holds for every number of ranks, workers and
every micro-batch size.

1. A rank's micro-batch t, its rows t B ... t B + B - 1, is made by worker t mod N. The DataLoader asks its workers in
   turn, so batches arrive in order, and no worker number shows in the data.
2. To know where row p begins one must have encoded everything before it: with shards=1 every worker of every rank
   encodes the whole text and hands out its part. That costs W x N times the work of one.
3. With shards=K the text is K texts (block b belongs to b mod K), each packed by itself; position p holds row p // K of
   shard p mod K. A worker encodes the shards its positions fall on: each is one worker's own if K is a multiple of
   W x B x N, and the order is the same for all of them. Shards end at different times, so each begins again by itself,
   and the stream has no end.
4. `shuffle_buffer` = M rows of a shard are gathered and given out in an order keyed by (seed, epoch, shard, first row).
5. The state is the epoch and the count. Cursors, one per shard, spare the way: a resume encodes again one document
   and at most M rows. Where there is no cursor, the text is encoded from its beginning, with the same result.

The rejected alternative, a buffer from which a random row is taken and replaced, holds rows of any age, so that its
state is the rows themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import torch.utils.data
import xxhash

from nanoset_ref.dataloader import check_plan
from nanoset_ref.streaming.layout import EpochCounter, at_least, rank_and_world_size, worker_and_workers
from nanoset_ref.streaming.packed import Cursor, PackedRows, Row
from nanoset_ref.streaming.shards import Shard
from nanoset_ref.text import TextSource, open_text
from nanoset_ref.tokenise.encode import Backend, Encoder, TokenizerError, load_tokenizer

PROBE_DOCUMENTS = 64
# {shard: {"row", "epoch", "block", "document", "offset"}}, JSON-serialisable
Cursors = dict[str, dict[str, int]]


class TokenStream(torch.utils.data.IterableDataset[Row]):
    """Packed rows of sequence_length + 1 tokens, for one rank.

    Args:
        text: a TextSource, or whatever `open_text` takes (a .jsonl file, a folder, a list, the name of a dataset, ...).
        tokenizer: a transformers tokenizer, or what `load_tokenizer` takes.
        sequence_length: S, in tokens.
        micro_batch_size: B, rows per batch of one rank; a DataLoader has to have the same one.
        rank, world_size: r and W, among the data-parallel ranks; default: torch.distributed's, else 0 and 1.
        shards: K; 1 gives the order of a token file and a `for` of one epoch; more give a `for` without end.
        shuffle_buffer: M, in rows; 0: no shuffle.
        seed: of the shuffle.
        position_ids: rows come with "position_ids", from 0 in each document.
        append_eod: the EOS id after each document. add_special_tokens, backend: see Encoder.
        start_from_epoch, consumed_train_samples, cursors: see `seek`.

    Yields {"input_ids": int32 [S + 1]} (and "position_ids": int64 [S + 1]). With shards=1 the last rows of an epoch
    that are too few for all ranks are left out. Workers encode on one thread each: they are the parallelism.

    Raises:
        ValueError: an argument out of its range; while reading, a text too short for one row or with too few blocks.
        TokenizerError, InputError, FileNotFoundError: see load_tokenizer and open_text.
    """

    def __init__(
        self,
        text: TextSource | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        tokenizer: Any,
        sequence_length: int,
        *,
        micro_batch_size: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        shards: int = 1,
        shuffle_buffer: int = 0,
        seed: int = 1234,
        position_ids: bool = False,
        append_eod: bool = True,
        add_special_tokens: bool = False,
        backend: Backend = "auto",
        start_from_epoch: int = 0,
        consumed_train_samples: int = 0,
        cursors: Mapping[str, dict[str, int]] | None = None,
    ) -> None:
        self.source = text if isinstance(text, TextSource) else open_text(text)
        self.tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, (str, os.PathLike)) else tokenizer
        if append_eod and self.tokenizer.eos_token_id is None:
            raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none; pass append_eod=False")
        self.sequence_length = at_least(1, "sequence_length", sequence_length)
        self.micro_batch_size = at_least(1, "micro_batch_size", micro_batch_size)
        self.rank, self.world_size = rank_and_world_size(rank, world_size)
        self.shards = at_least(1, "shards", shards)
        self.shuffle_buffer = at_least(0, "shuffle_buffer", shuffle_buffer)
        self.seed, self.position_ids = seed, position_ids
        self._encoder_options: dict[str, Any] = {
            "backend": backend, "append_eod": append_eod, "add_special_tokens": add_special_tokens
        }  # fmt: skip
        self._encoder: tuple[int, Encoder] | None = None  # the process that made it, and the encoder
        self._epochs = EpochCounter()
        self._reading: _Reading | None = None
        self._resume: dict[str, Any] | None = None
        self.plan: dict[str, Any] = {
            "text": [[os.path.basename(part.path), part.num_bytes] for part in self.source.parts],
            "column": self.source.column,
            "tokenizer": xxhash.xxh3_64_hexdigest(repr(sorted(self.tokenizer.get_vocab().items())).encode()),
            "append_eod": append_eod,
            "add_special_tokens": add_special_tokens,
            "sequence_length": self.sequence_length,
            "shards": self.shards,
            "shuffle_buffer": self.shuffle_buffer,
            "seed": seed,
        }
        self.seek(start_from_epoch, consumed_train_samples, cursors)

    def __repr__(self) -> str:
        what = f"sequence_length={self.sequence_length}, shards={self.shards}, shuffle_buffer={self.shuffle_buffer}"
        text = ", ".join(os.path.basename(part.path) for part in self.source.parts[:3])
        place = f"rank {self.rank} of {self.world_size}, from epoch {self.start_from_epoch}"
        return f"TokenStream({text}; {what}; {place}, consumed_train_samples={self.consumed_train_samples})"

    def seek(
        self,
        start_from_epoch: int = 0,
        consumed_train_samples: int = 0,
        cursors: Mapping[str, dict[str, int]] | None = None,
    ) -> None:
        """Let the next `for` begin at a global count; with any number of ranks and workers.

        Args:
            start_from_epoch: the epoch, from 0.
            consumed_train_samples: rows of that epoch that all ranks together have had.
            cursors: of a stream of the same plan, from any rank; they save time and change nothing else.
        """
        self.start_from_epoch = at_least(0, "start_from_epoch", start_from_epoch)
        self.consumed_train_samples = at_least(0, "consumed_train_samples", consumed_train_samples)
        self._start_cursors: Cursors = dict(cursors or {})
        self._epochs.restart(self.start_from_epoch)
        self._reading = self._resume = None

    @property
    def cursors(self) -> Cursors:
        """Where the shards that this process (with workers: this worker) has open stand."""
        return self._reading.cursors() if self._reading else self._start_cursors

    def state_dict(self) -> dict[str, Any]:
        """Where this process (with workers: this worker) stands; JSON-serialisable, and good on every rank."""
        if self._resume:
            return self._resume
        _, workers = worker_and_workers()
        reading = self._reading
        return {
            "epoch": reading.epoch if reading else self.start_from_epoch,
            "consumed_train_samples": reading.consumed if reading else self.consumed_train_samples,
            "taken": reading.taken if reading else 0,
            "cursors": self.cursors,
            "layout": self._layout(workers),
            "plan": self.plan,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `for` continue at a `state_dict` of a stream with as many ranks and workers.

        Raises:
            PlanMismatch: the state of another text, tokenizer or order.
            ValueError: another number of ranks or workers, another micro_batch_size. (`seek` takes any of them.)
        """
        check_plan(state["plan"], self.plan)
        _, workers = worker_and_workers()
        if state["layout"] != self._layout(workers):
            raise ValueError(
                f"the state is one of {state['layout']}, this stream has {self._layout(workers)}; to change the layout "
                "resume from the count: TokenStreamDataLoader, or seek(epoch, consumed_train_samples, cursors)"
            )
        self._resume = state

    def __iter__(self) -> Iterator[Row]:
        worker, _ = worker_and_workers()
        resume, self._resume = self._resume, None
        if resume:
            epoch, consumed, taken = resume["epoch"], resume["consumed_train_samples"], resume["taken"]
            cursors = resume["cursors"]
            self._epochs.resume(worker, epoch)
        else:
            epoch, taken = self._epochs.begin(worker), 0
            first = epoch == self.start_from_epoch
            consumed, cursors = (self.consumed_train_samples, self._start_cursors) if first else (0, {})
        self._reading = _Reading(self, epoch, consumed, taken, cursors)
        return self._reading.rows()

    def encoder(self) -> Encoder:
        """This process's encoder. A parent's threads do not survive a fork: a worker makes its own, without any."""
        if self._encoder is None or self._encoder[0] != os.getpid():
            if torch.utils.data.get_worker_info() is not None:
                os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
            probe = [document.text for document in islice(self.source.documents(), PROBE_DOCUMENTS)]
            self._encoder = os.getpid(), Encoder(self.tokenizer, probe=probe, **self._encoder_options)
        return self._encoder[1]

    def shard(self, number: int, epoch: int = 0, cursor: dict[str, int] | None = None) -> Shard:
        """The rows of one shard, from its beginning or from a cursor on."""

        def rows_from(start: Cursor) -> PackedRows:
            blocks = islice(self.source.blocks(), number, None, self.shards)
            return PackedRows(blocks, self.encoder(), self.sequence_length, start, self.position_ids)

        endless = self.shards > 1
        return Shard(rows_from, number, endless, self.shuffle_buffer, self.seed, 0 if endless else epoch, cursor)

    def _layout(self, workers: int) -> dict[str, int]:
        return {
            "world_size": self.world_size, "num_workers": workers, "micro_batch_size": self.micro_batch_size
        }  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_encoder": None, "_reading": None}


class _Reading:
    """One epoch as one worker of one rank reads it."""

    def __init__(self, stream: TokenStream, epoch: int, consumed: int, taken: int, cursors: Cursors) -> None:
        self.stream, self.epoch, self.consumed, self.taken = stream, epoch, consumed, taken
        self._cursors = dict(cursors)  # of shards that are not open yet
        self._open: dict[int, Shard] = {}

    def rows(self) -> Iterator[Row]:
        stream = self.stream
        world_size, batch, shards = stream.world_size, stream.micro_batch_size, stream.shards
        worker, workers = worker_and_workers()
        for taken in count(self.taken):
            local = (worker + workers * (taken // batch)) * batch + taken % batch  # the rank's rows, counted from 0
            group = self.consumed + local * world_size
            position = group + stream.rank
            shard, index = self._shard(position % shards, position // shards), position // shards
            row = shard.row(index)
            if row is None or (shards == 1 and shard.row(group + world_size - 1) is None):
                return  # the last group is not complete
            self.taken = taken + 1
            yield {name: values.copy() for name, values in row.items()}

    def cursors(self) -> Cursors:
        return {**self._cursors, **{str(number): shard.cursor() for number, shard in self._open.items()}}

    def _shard(self, number: int, index: int) -> Shard:
        """The shard, opened at the latest known place from which row `index` lies ahead."""
        if number not in self._open:
            cursor = self._cursors.pop(str(number), None)
            if cursor and (cursor["row"] > index or (self.stream.shards == 1 and cursor["epoch"] != self.epoch)):
                cursor = None
            self._open[number] = self.stream.shard(number, self.epoch, cursor)
        return self._open[number]
