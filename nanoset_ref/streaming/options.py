"""The options of a TokenStream, checked before anything is read."""

from __future__ import annotations

import dataclasses

from nanoset_ref.streaming.resumable import at_least
from nanoset_ref.tokenise.encode import Backend


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How text becomes rows, and in which order they come.

    Args:
        sequence_length: S, in tokens; rows have S + 1.
        micro_batch_size: B, rows per batch of one rank; a DataLoader must use the same.
        shards: K; the text is cut into K texts that are encoded apart (see `stream`).
        repeat: at the end of the text begin again: one `for` never ends. Without it a `for` is one epoch. The shards of
            a text end at different times, so more than one of them can only repeat.
        shuffle_buffer: M, in rows; 0: no shuffle.
        seed: of the shuffle.
        position_ids: rows come with "position_ids", from 0 in each document.
        append_eod: put the EOS id after each document.
        add_special_tokens, backend: see Encoder.

    Raises:
        ValueError: a number out of its range, several shards without `repeat`.
    """

    sequence_length: int
    micro_batch_size: int = 1
    shards: int = 1
    repeat: bool = False
    shuffle_buffer: int = 0
    seed: int = 1234
    position_ids: bool = False
    append_eod: bool = True
    add_special_tokens: bool = False
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        for name in ("sequence_length", "micro_batch_size", "shards"):
            at_least(1, name, getattr(self, name))
        at_least(0, "shuffle_buffer", self.shuffle_buffer)
        if self.shards > 1 and not self.repeat:
            raise ValueError(
                f"shards={self.shards} end at different times, so no epoch ends for all ranks at once; "
                "pass repeat=True and train for a number of steps"
            )

    @property
    def order(self) -> dict[str, object]:
        """The options on which the ids and their order depend."""
        others = ("micro_batch_size", "position_ids", "backend")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in others}
