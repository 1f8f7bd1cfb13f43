"""Adapters: a user describes a loader to the laws by one function and the laws that it claims.

@adapter(claims="once ranks workers repeat owned resume", state_of=lambda loader: loader.state_dict())
def make(data, *, rank, world_size, workers, seed, epoch, batch_size, state=None):
    loader = MyLoader(range(data), rank, world_size, workers, seed, epoch, batch_size)
    if state is not None:
        loader.load_state_dict(state)
    return loader
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

BASE = "once ranks workers repeat owned data"


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A loader as the laws see it.

    Args:
        make: (data, *, rank, world_size, workers, seed, epoch, batch_size, state=None) -> the batches of one epoch on
            one rank, from the state on. `data` is what `format` says.
        state_of: loader -> all that a checkpoint keeps of it, after the batches delivered so far. It must pickle.
        claims: names of the laws that the loader claims, see `nanoset_ref.laws.LAWS`. Others are not judged.
        format: "rows" (`data` is the number of rows), or a format of files (`data` is a `Corpus`): npy, bin, ds, jsonl,
            parquet, tar, mds, litdata.
        tail: what happens to rows that do not fill a last batch on every rank: "drop" leaves them out, "pad" fills up
            with rows that were read before, "keep" makes shorter batches.
        rows_of: batch -> the row numbers in it; None: they are found, see `nanoset_ref.laws.identity`.
        mask: name of the field of a batch that is true at every token and false at padding.
        same_epochs: every epoch has the same order, as declared.
        most_rows: the largest number of rows to try.
        largest: the law `once` is also tried at 4^k + 1 rows up to this number, where ciphers change their width; with
            the format "rows" only.
        most_ranks: the largest number of ranks.
        most_workers: the largest number of workers.
        most_batch: the largest number of rows in a batch.
        limit: seconds after which a loader that has not answered hangs.
    """

    make: Callable[..., Iterable[Any]]
    state_of: Callable[[Any], Any] | None = None
    claims: str = BASE
    format: str = "rows"
    tail: Literal["drop", "pad", "keep"] = "keep"
    rows_of: Callable[[Any], Iterable[Any]] | None = None
    mask: str = ""
    same_epochs: bool = False
    most_rows: int = 200
    largest: int = 65_537
    most_ranks: int = 4
    most_workers: int = 3
    most_batch: int = 5
    limit: float = 20.0

    def __call__(self, data: Any, **place: Any) -> Iterable[Any]:
        return self.make(data, **place)


def adapter(**options: Any) -> Callable[[Callable[..., Iterable[Any]]], Adapter]:
    """Make an `Adapter` of the function below it; the options are the fields of `Adapter`."""

    def decorate(make: Callable[..., Iterable[Any]]) -> Adapter:
        return Adapter(make=make, **options)

    return decorate
