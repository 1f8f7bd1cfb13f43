"""TokenStream: text tokenised while training, in the rows a token file would have.

Position p of an epoch holds row p of the text, as preprocessing and a Nanoset in sequential order would give it; ranks
share positions as `nanoset_ref.schedule` says. This holds for any number of ranks and workers and any micro-batch size.

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
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import xxhash
from torch.utils.data import get_worker_info

from nanoset_ref.files import PathLike
from nanoset_ref.schedule import Schedule, worker_item
from nanoset_ref.streaming.packed import Row, Shard, StreamOptions, windows
from nanoset_ref.streaming.resumable import Resumable, State, at_least, worker_and_workers
from nanoset_ref.text import TextSource, open_text
from nanoset_ref.tokenise.encode import Encoder, TokenizerError, load_tokenizer

PROBE_DOCUMENTS = 64
Cursors = dict[str, dict[str, int]]  # {shard: {"row", "epoch", "block", "document", "offset"}}


class TokenStream(Resumable):
    """Packed rows of sequence_length + 1 tokens, for one rank.

    Args:
        text: a TextSource, or whatever `open_text` takes (a .jsonl file, a folder, a list, the name of a dataset, ...).
        tokenizer: a transformers tokenizer, or what `load_tokenizer` takes.
        sequence_length: S, in tokens.
        rank, world_size: r and W, among the data-parallel ranks; default: torch.distributed's, else 0 and 1.
        start_from_epoch, consumed_train_samples: see `seek`.
        **options: micro_batch_size, shards, repeat, shuffle_buffer, seed, position_ids, append_eod, add_special_tokens,
            backend: the fields of `StreamOptions`, which explains them.

    Yields {"input_ids": int32 [S + 1]} (and "position_ids": int64 [S + 1]). The last rows of an epoch that are too few
    for all ranks are left out. Workers encode on one thread each: they are the parallelism.

    Raises:
        ValueError: an argument out of its range; while reading, a text too short for one row or with too few blocks.
        TypeError: an option that does not exist.
        TokenizerError, InputError, FileNotFoundError: see load_tokenizer and open_text.
    """

    def __init__(
        self,
        text: TextSource | PathLike | Sequence[PathLike],
        tokenizer: Any,
        sequence_length: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        start_from_epoch: int = 0,
        consumed_train_samples: int = 0,
        **options: Any,
    ) -> None:
        self.options = StreamOptions(sequence_length=sequence_length, **options)
        super().__init__(self.options.micro_batch_size, rank, world_size)
        self.source = text if isinstance(text, TextSource) else open_text(text)
        self.tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, (str, os.PathLike)) else tokenizer
        if self.options.append_eod and self.tokenizer.eos_token_id is None:
            raise TokenizerError("append_eod needs an EOS token, and this tokenizer has none; pass append_eod=False")
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        self.plan = {
            "text": [[os.path.basename(part.path), part.num_bytes] for part in self.source.parts],
            "column": self.source.column,
            "tokenizer": xxhash.xxh3_64_hexdigest(repr(vocabulary).encode()),
            **dataclasses.asdict(self.options),
        }
        for irrelevant in ("micro_batch_size", "position_ids", "backend"):  # to the ids and their order
            del self.plan[irrelevant]
        self._encoder: tuple[int, Encoder] | None = None  # the process that made it, and the encoder
        self.seek(start_from_epoch, consumed_train_samples)

    def seek(
        self,
        epoch: int = 0,
        consumed_train_samples: int = 0,
        cursors: Mapping[str, dict[str, int]] | None = None,
    ) -> None:
        """Let the next `for` begin at a count, with any number of ranks and workers.

        Args:
            epoch: from 0.
            consumed_train_samples: rows of that epoch that all ranks together have had.
            cursors: of a stream of the same plan, from any rank; they save time and change nothing else.
        """
        self.start: State = {
            "epoch": at_least(0, "epoch", epoch),
            "consumed_train_samples": at_least(0, "consumed_train_samples", consumed_train_samples),
            "cursors": dict(cursors or {}),
        }
        self.restart(epoch)

    @property
    def cursors(self) -> Cursors:
        """Where the shards that this process (with workers: this worker) has read stand."""
        return self.state_dict()["cursors"]

    def first_place(self, epoch: int, worker: int, workers: int) -> State:
        # `taken` counts the rows that this worker has made since the count
        start = self.start if epoch == self.start["epoch"] else {}
        return {"consumed_train_samples": 0, "cursors": {}, **start, "taken": 0}

    def read(self, place: State) -> Iterator[Row]:
        cursors = place["cursors"] = dict(place["cursors"])
        schedule = Schedule(dp_size=self.world_size, micro_batch_size=self.micro_batch_size)
        worker, workers = worker_and_workers()
        shards: dict[int, Shard] = {}
        for taken in count(place["taken"]):
            item = worker_item(taken, worker, workers, self.micro_batch_size)
            position = schedule.position_at(place["consumed_train_samples"], self.rank, item)
            index, number = divmod(position, self.options.shards)
            if number not in shards:
                shards[number] = self._open(number, index, place)
            row = shards[number].row(index)
            last_of_group = position - self.rank + self.world_size - 1
            if row is None or not (self.options.repeat or shards[number].row(last_of_group)):
                return  # the last group of ranks is not complete
            place["taken"] = taken + 1
            cursors[str(number)] = shards[number].cursor
            yield row

    def encoder(self) -> Encoder:
        """This process's encoder. A parent's threads do not survive a fork: a worker makes its own, without any."""
        if self._encoder is None or self._encoder[0] != os.getpid():
            if get_worker_info() is not None:
                os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
            options = {name: getattr(self.options, name) for name in ("backend", "append_eod", "add_special_tokens")}
            probe = [document.text for document in islice(self.source.documents(), PROBE_DOCUMENTS)]
            self._encoder = os.getpid(), Encoder(self.tokenizer, probe=probe, **options)
        return self._encoder[1]

    def _open(self, number: int, index: int, place: State) -> Shard:
        """A shard, opened at the latest known place from which row `index` lies ahead."""
        endless = self.options.repeat
        cursor = place["cursors"].get(str(number))
        if not cursor or cursor["row"] > index or not (endless or cursor["epoch"] == place["epoch"]):
            cursor = {"epoch": 0 if endless else place["epoch"]}
        return Shard(windows(self.source, self.encoder(), self.options, number, **cursor))

    def __getstate__(self) -> State:
        return {**vars(self), "_encoder": None}
