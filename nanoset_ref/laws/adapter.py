"""Adapters: one function that makes a loader, and the laws that the loader claims.

@adapter(claims="once ranks workers repeat owned resume", state_of=MyLoader.state_dict)
def make(data, *, rank, world_size, workers, seed, epoch, batch_size, state=None):
    loader = MyLoader(range(data), rank, world_size, workers, seed, epoch, batch_size)
    if state is not None:
        loader.load_state_dict(state)
    return loader
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from nanoset_ref.io.checks import whole_number

DEFAULT_CLAIMS = "once ranks workers repeat owned data"
MINIMUMS = {
    "files": 1,
    "max_rows": 1,
    "largest": 0,
    "max_ranks": 1,
    "max_workers": 0,
    "max_batch_size": 1,
}
CHOICES = {
    "tail": ("drop", "pad", "pad and drop", "keep"),
    "same_epochs": (False, True),
}
MAX_LIMIT = 86_400  # seconds; a longer wait overflows


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A loader and its properties.

    Args:
        make: (data, *, rank, world_size, workers, seed, epoch, batch_size, state=None) -> the
            batches of one epoch on one rank, after the state. `format` determines `data`.
        state_of: loader -> its checkpoint after the batches delivered so far. It must be picklable.
        claims: names of the laws that the loader claims, see `nanoset_ref.laws.LAWS`. Others are
            not checked.
        format: "rows" (`data` is the number of rows), or a format of files (`data` is a `Corpus`):
            npy, bin, ds, jsonl, parquet, tar, mds, litdata.
        files: the number of files of the corpus, such as shards, or one per row if there are fewer
            rows. `data.paths` and `data.rows` have an item for each file.
        tail: the treatment of rows that do not fill a last batch on every rank: "drop" leaves them
            out, "pad" repeats earlier rows, "keep" makes shorter batches. "pad and drop" may do
            both, as torch's DistributedSampler and a DataLoader with drop_last together.
        rows_of: batch -> the row numbers in it; None: see `nanoset_ref.laws.batch_rows`.
        mask: name of the field of a batch that is true at every token and false at padding.
        same_epochs: whether every epoch has the same order.
        max_rows: the maximum number of rows.
        largest: the law `once` is also checked at 4^k + 1 rows up to this number, where ciphers
            change their width (only with the format "rows"), and which take less than `limit`.
        max_ranks: the maximum number of ranks.
        max_workers: the maximum number of workers.
        max_batch_size: the maximum number of rows in a batch.
        limit: seconds for an epoch on all ranks; a loader that takes longer counts as hanging.

    Raises:
        ValueError: a field is out of range.
    """

    make: Callable[..., Iterable[Any]]
    state_of: Callable[[Any], Any] | None = None
    claims: str = DEFAULT_CLAIMS
    format: str = "rows"
    files: int = 1
    tail: Literal["drop", "pad", "pad and drop", "keep"] = "keep"
    rows_of: Callable[[Any], Iterable[Any]] | None = None
    mask: str = ""
    same_epochs: bool = False
    max_rows: int = 200
    largest: int = 65_537
    max_ranks: int = 4
    max_workers: int = 3
    max_batch_size: int = 5
    limit: float = 20.0

    def __post_init__(self) -> None:
        for name, least in MINIMUMS.items():
            whole_number(getattr(self, name), name, least)
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {value!r:.80}")
        limit: Any = self.limit
        if not isinstance(limit, (int, float)) or not 0 < limit <= MAX_LIMIT:
            raise ValueError(
                f"limit must be a number of seconds above 0, up to {MAX_LIMIT} (a day), got "
                f"{limit!r:.80}"
            )

    def __call__(self, data: Any, **settings: Any) -> Iterable[Any]:
        return self.make(data, **settings)


def adapter(**options: Any) -> Callable[[Callable[..., Iterable[Any]]], Adapter]:
    """A decorator that makes an `Adapter` from `make`; the options are the fields of `Adapter`."""
    return lambda make: Adapter(make=make, **options)
