"""What the ranks of torchrun tell each other: what to do, that they are alive, and that one has failed.

They speak through the store of torchrun's agent, over as many nodes as the job has, with no process group and no
collectives. The store ends with the agent, and so do the ranks (see `launcher`): no later job can join this one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any

from nanoset_ref.launcher import under_torchrun
from nanoset_ref.tokenise.processes import JobError

PATIENCE_S = 300.0
CALLS = count()  # of this process


class StoppedError(JobError):
    """Another rank failed, and has said why; this one has nothing to say."""

    reported_elsewhere = True


class Ranks:
    """The ranks of one torchrun job during one call; alone, rank 0 of 1. Every rank makes the same calls in order."""

    def __init__(self) -> None:
        self.rank, self.size, self._store = 0, 1, None
        if under_torchrun():
            self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            self._store = _store_of_call()

    def publish(self, key: str, value: str) -> None:
        """Tell the other ranks."""
        self._ask("set", key, value)

    def wait_for(self, key: str) -> str:
        """What another rank has published, once it has.

        Raises:
            StoppedError: a rank has failed.
            JobError: the ranks that were at work gave no sign of life for five minutes.
        """
        last, since = 0, time.monotonic()
        while not self._ask("check", [key]):
            signs = self.beat(0)
            if signs != last:
                last, since = signs, time.monotonic()
            elif signs and time.monotonic() - since > PATIENCE_S:
                raise JobError(f"nothing heard for {PATIENCE_S:.0f} s of {key}: a rank or its node is gone")
            time.sleep(0.05)
        return self._ask("get", key).decode()

    def beat(self, signs: int = 1) -> int:
        """Give a sign of life, return how many there were. Raises StoppedError if a rank has failed."""
        if self._ask("check", ["failed"]):
            raise StoppedError
        return self._ask("add", "signs", signs)

    @contextmanager
    def one_fails_all(self) -> Iterator[None]:
        """Tell all ranks if this one fails."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, StoppedError):
                with suppress(StoppedError):  # the store may be what failed
                    self.publish("failed", "")
            raise

    def agree(self, decide: Callable[[], str]) -> str:
        """Rank 0 decides, and all ranks get its answer. Raises StoppedError in the others if it fails."""
        if self.rank:
            return self.wait_for("answer")
        with self.one_fails_all():
            answer = decide()
        self.publish("answer", answer)
        return answer

    def _ask(self, method: str, *arguments: Any) -> Any:
        if self._store is None:
            return None
        from torch.distributed import DistError

        try:
            return getattr(self._store, method)(*arguments)
        except DistError as error:
            raise StoppedError(f"the store of the job is gone, and with it rank 0 or its node ({error})") from error


@cache
def _store() -> Any:
    """The store that torchrun set up."""
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://", timeout=timedelta(minutes=5)))[0]


def _store_of_call() -> Any:
    from torch.distributed.distributed_c10d import PrefixStore

    return PrefixStore(f"nanoset_ref/{next(CALLS)}", _store())
