"""What a run says while it trains: a bar on a terminal, a line every few steps in a log or a pipe."""

from __future__ import annotations

import datetime
import logging
import time
from typing import Any

from nanoset_ref.io.extras import extra

with extra("train", "a training run"):
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm


logger = logging.getLogger(__name__)


class Progress:
    """A bar, where standard error is a terminal; else a line every `interval` steps and after the last.

    Both say the loss of the step; the tokens per second, and the share of the time that was spent
    waiting for data, of the steps since the last line, without checkpoints; and the time left, with them.

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

    def __exit__(self, *error: Any) -> None:
        self._redirected.__exit__(*error)
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
        said += f", {self.tokens / self.seconds:,.0f} tokens/s"
        said += f", waiting for data {self.waited / self.seconds:.1%}"
        self.bar.set_postfix_str(f"{line['stage']}: {said}", refresh=False)
        self.bar.update()
        if step % self.interval and step != self.last:
            return
        if self.writes_lines:
            left = (time.perf_counter() - self.began) / (step - self.first) * (self.last - step)
            said += f", {datetime.timedelta(seconds=round(left))} left"
            logger.info("step %d of %d (%s): %s", step, self.last, line["stage"], said)
        self._start_window()
