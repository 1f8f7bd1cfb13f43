"""What a run says while it trains: on a terminal a bar, in a log or a pipe a line every few steps."""

from __future__ import annotations

import datetime
import logging
import time
from types import TracebackType
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

logger = logging.getLogger(__name__)


class Progress:
    """A bar, where standard error is a terminal; else a line every `interval` steps and after the last one.

    Both say the loss of the step, and of the steps since the last line the tokens per second and the share of the time
    that was spent waiting for data, checkpoints not counted; the time left counts them.

    Args:
        done: steps done before.
        last: the last step.
        interval: steps from one line to the next.
        is_shown: False in processes that say nothing.
    """

    def __init__(self, done: int, last: int, interval: int, is_shown: bool) -> None:
        self.first, self.last, self.interval = done, last, interval
        # None: no bar where standard error is a file
        self.bar = tqdm(total=last, initial=done, unit="step", disable=None if is_shown else True)
        self.writes_lines = is_shown and self.bar.disable
        self._redirected = logging_redirect_tqdm()  # messages appear above the bar
        self.began = time.perf_counter()
        self._start_window()

    def __enter__(self) -> Progress:
        self._redirected.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redirected.__exit__(kind, error, trace)
        self.bar.close()

    def _start_window(self) -> None:
        self.tokens = 0
        self.seconds = self.waited = 0.0

    def update(self, line: dict[str, Any], tokens: int, seconds: float, waited: float) -> None:
        """A step is done.

        Args:
            line: its "step", "stage" and "loss".
            tokens: of its global batch.
            seconds, waited: its time, and how much of it was spent waiting for data.
        """
        self.tokens += tokens
        self.seconds += seconds
        self.waited += waited
        step, loss = line["step"], line["loss"]
        said = "no loss" if loss is None else f"loss {loss:.4f}"
        said += f", {self.tokens / self.seconds:,.0f} tokens/s, waiting for data {self.waited / self.seconds:.1%}"
        self.bar.set_postfix_str(f"{line['stage']}: {said}", refresh=False)
        self.bar.update()
        if step % self.interval and step != self.last:
            return
        if self.writes_lines:
            left = (time.perf_counter() - self.began) / (step - self.first) * (self.last - step)
            time_left = datetime.timedelta(seconds=round(left))
            logger.info("step %d of %d (%s): %s, %s left", step, self.last, line["stage"], said, time_left)
        self._start_window()
