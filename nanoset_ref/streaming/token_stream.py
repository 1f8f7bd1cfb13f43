"""TokenStream, which tokenizes text during training; `stream_loader` has its DataLoader.

Position p of an epoch is row p of the text, as a Nanoset with order="identity" reads it from the
preprocessed text, unless there are several shards or a shuffle buffer (3 and 4). W ranks with N
workers each share the positions in micro-batches of B rows, as in `nanoset_ref.load.schedule`, for
any W, N and B. K is the number of shards.

1. Worker t mod N makes micro-batch t of a rank. The DataLoader asks its workers in turn, so batches
   arrive in order and the data do not depend on the number of workers.
2. Row p cannot be located until all preceding text has been encoded. With K = 1 every worker of
   every rank therefore encodes the whole text and returns its part: W x N times the work of one.
3. With K > 1 the text is split into K texts (block b belongs to shard b mod K), which are packed
   separately. Position p is row p // K of shard p mod K, for any W, N and B. A worker encodes the
   shards of its positions; each shard has one worker if K is a multiple of W x B x N. Shards end at
   different times, so they require repeat=True and the stream is endless.
4. `shuffle_buffer` = M gathers M rows of a shard and returns them in an order that is keyed by
   (seed, epoch, shard, first row).
5. The state is the epoch and the count of rows. Cursors, one per shard, only save time: with them a
   resume encodes one document and at most M rows again. Without a cursor the text is encoded from
   its start, with the same result.

torchdata's StatefulDataLoader also works with a TokenStream. It keeps one state per worker, so a
resume requires the same numbers of ranks and workers.
"""

import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import count
from typing import Any

import xxhash
from torch.utils.data import get_worker_info

from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.paths import PathLike, checksum
from nanoset_ref.io.types import Int32Array
from nanoset_ref.orders.plans import PLAN_VERSION
from nanoset_ref.preprocess.encoder import Backend, Encoder
from nanoset_ref.preprocess.text import TextSource, open_text
from nanoset_ref.preprocess.text_blocks import TextPart
from nanoset_ref.preprocess.tokenizer import load_tokenizer
from nanoset_ref.streaming.resumable import (
    Resumable,
    State,
    position_at,
    rank_item,
    worker_and_num_workers,
)
from nanoset_ref.streaming.row_stream import (
    ALGORITHM,
    Cursor,
    StreamOptions,
    shuffled_rows,
)

RowSample = dict[str, Int32Array]
# options that a plan leaves out: two do not affect ids, two are in the encoder's identity
NOT_IN_PLAN = "micro_batch_size", "backend", "append_eod", "add_special_tokens"


class TokenStream(Resumable):
    """Packed rows of sequence_length + 1 tokens, for one rank.

    Args:
        text: a TextSource; or a file, folder or dataset for `open_text`, which also takes a column
            and a split.
        tokenizer: a transformers tokenizer, or a name or folder for `load_tokenizer`.
        sequence_length: S, in tokens.
        dp_rank: this process's data-parallel rank; default: torch.distributed's, else 0.
        dp_size: W, the number of data-parallel ranks; default: torch.distributed's, else 1.
        **options: the fields of `StreamOptions`.

    It yields {"input_ids": int32 [S + 1]}. The last rows of an epoch are dropped if there are too
    few for all ranks. Each worker encodes on one thread. The collator computes position ids
    (`documents` with an eos_token_id).

    Raises:
        ValueError: an argument is out of range. While reading: the text is too short for one row,
            or has too few blocks.
        TypeError: an option does not exist.
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
        if isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = load_tokenizer(tokenizer)
        self.tokenizer = tokenizer
        self.seek()

    @property
    def plan(self) -> State:
        """A dict that determines the tokens at every position.

        It has the checksums of the text, the tokenizer (see `Encoder.identity`) and the options.
        The first access reads the whole text.
        """
        return json.loads(self._plan)

    @cached_property
    def _plan(self) -> str:
        """The `plan` as JSON text, made once."""
        options = asdict(self.options)
        for name in NOT_IN_PLAN:
            del options[name]
        if self.options.shuffle_buffer < 2:
            options |= {"shuffle_buffer": 0, "seed": None}  # nothing is shuffled
        if self.options.special_tokens == "refuse":
            options["special_tokens"] = "keep"  # the same tokens, if no text is refused
        files = [
            {"name": os.path.basename(part.path), "checksum": _text_checksum(part)}
            for part in self.source.parts
        ]
        plan = {
            "version": PLAN_VERSION,
            "algorithm": ALGORITHM,
            "files": files,
            "column": self.source.column,
        }
        return json.dumps(plan | self._encoder("hf").identity | options)

    def seek(
        self,
        epoch: int = 0,
        consumed_train_samples: int = 0,
        epoch_began_at: int = 0,
        cursors: Mapping[str, dict[str, int]] | None = None,
    ) -> None:
        """Start the next iteration at a count, with any number of ranks and workers.

        Args:
            epoch: from 0.
            consumed_train_samples: the rows delivered to all ranks together, over all epochs.
            epoch_began_at: consumed_train_samples when the epoch began.
            cursors: {shard: cursor} from any rank of a stream with the same plan; only saves time.
        """
        began = whole_number(epoch_began_at, "epoch_began_at", 0)
        consumed = whole_number(consumed_train_samples, "consumed_train_samples", began)
        self.start: State = {
            "epoch": whole_number(epoch, "epoch", 0),
            "epoch_began_at": began,
            "consumed_train_samples": consumed,
            "cursors": dict(cursors or {}),
        }
        self.restart(epoch)

    def first_progress(self, epoch: int) -> State:
        """The start of an epoch, and "taken", the number of rows that this worker has made."""
        start = self.start if epoch == self.start["epoch"] else next_epoch(self.start)
        return {**start, "epoch": epoch, "taken": 0}

    def read(self, progress: State) -> Iterator[RowSample]:
        """See `Resumable.read`."""
        encoder = self._encoder(self.options.backend)
        worker, workers = worker_and_num_workers()
        if self.dp_rank == worker == 0:
            encoder.warn_without_separator()
        elif self.options.shards == 1:
            # the first worker of rank 0 reads the same documents
            encoder.special_token_counts.quiet = True
        shards: dict[int, Iterator[Any]] = {}
        for taken in count(progress["taken"]):
            item = rank_item(taken, worker, workers, self.micro_batch_size)
            shard_row = self._row_of(item, progress, encoder, shards)
            if shard_row is None:
                return
            shard, buffer_cursor, ids = shard_row
            progress["taken"] = taken + 1
            progress["cursors"] = {**progress["cursors"], str(shard): buffer_cursor}
            yield {"input_ids": ids}

    def _row_of(
        self,
        item: int,
        progress: State,
        encoder: Encoder,
        shards: dict[int, Iterator[Any]],
    ) -> tuple[int, State, Int32Array] | None:
        """Read this rank's row number `item` since the start of `progress`.

        Args:
            item: the number of the row among this rank's rows.
            progress: where the stream started.
            encoder: encodes the text.
            shards: {shard: iterator over its rows}; an opened shard is added.

        Returns:
            (shard, cursor of the row's buffer, ids int32 [S + 1]). None if the text does not have a
            row for every rank.
        """
        consumed = progress["consumed_train_samples"] - progress["epoch_began_at"]
        position = position_at(self.schedule, consumed, self.dp_rank, item)
        row, shard = divmod(position, self.options.shards)
        if shard not in shards:
            # the saved cursor, or the shard's start if the cursor is beyond the row
            epoch = progress["epoch"]
            saved = progress["cursors"].get(str(shard), {"epoch": epoch})
            # TypeError for a value that is no integer, in a damaged state
            cursor = Cursor(*map(operator.index, Cursor(**saved)))
            # without `repeat` every epoch has its own rows
            is_of_epoch = self.options.repeat or cursor.epoch == epoch
            if cursor.row > row or not is_of_epoch:
                cursor = Cursor(epoch=epoch)
            shards[shard] = shuffled_rows(
                self.source, encoder, self.options, shard, cursor
            )
        entry = _row_at(row, shards[shard])
        if entry is None:
            return None
        last = position_at(self.schedule, consumed, self.dp_size - 1, item)
        # a text that ends must have a row for every rank; one that repeats has
        if not self.options.repeat and position != last:
            last_rank_row = _row_at(last, shards[shard])
            if last_rank_row is None:
                return None
        _, buffer_cursor, ids = entry
        return shard, buffer_cursor, ids

    def _encoder(self, backend: Backend) -> Encoder:
        """Make an encoder in this process: a parent's threads do not survive a fork.

        Workers use one thread.
        """
        if get_worker_info() is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
            os.environ["RAYON_NUM_THREADS"] = "1"
        return Encoder(
            self.tokenizer,
            backend=backend,
            append_eod=self.options.append_eod,
            add_special_tokens=self.options.add_special_tokens,
            probe_texts=self.source.probe_texts(),
            special_tokens=self.options.special_tokens,
        )


def next_epoch(start: State) -> State:
    """The start of the epoch that follows `start`."""
    consumed = start["consumed_train_samples"]
    return {
        **start,
        "epoch": start["epoch"] + 1,
        "epoch_began_at": consumed,
        "cursors": {},
    }


def _row_at(row: int, rows: Iterator[Any]) -> Any:
    """Advance to a row of a shard and return its entry; None after the last row."""
    return next((entry for entry in rows if entry[0] == row), None)


def _text_checksum(part: TextPart) -> str:
    """The checksum of a text file, or of a dataset's texts, each preceded by its length."""
    if os.path.isfile(part.path):
        return checksum(part.path)
    digest = xxhash.xxh3_128()
    for block in part.read_blocks(part):
        for document in block.documents():
            text = document.text.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
    return f"xxh3_128:{digest.hexdigest()}"
