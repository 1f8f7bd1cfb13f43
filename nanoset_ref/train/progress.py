"""The progress of a run: a bar on a terminal, a line every few steps in a log or a pipe."""

import datetime
import logging
import time
from typing import Any, Self

from nanoset_ref.io.extras import extra
from nanoset_ref.io.types import Json

with extra("train", "a training run"):
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm


logger = logging.getLogger(__name__)


class Progress:
    """A bar if standard error is a terminal, else a line every `interval` steps and after the last.

    Both show the step's loss, tokens per second, and the fraction of time spent waiting for data.
    The last two are measured since the last line, without checkpoints. A line also shows the time
    left, which includes them.

    Args:
        done: steps that an earlier run has done.
        last: the last step.
        interval: steps between two lines.
        is_shown: False in processes that print nothing.
    """

    def __init__(self, done: int, last: int, interval: int, is_shown: bool) -> None:
        self.done = done
        self.last = last
        self.interval = interval
        # None: no bar unless standard error is a terminal
        disable = None if is_shown else True
        self.bar = tqdm(total=last, initial=done, unit="step", disable=disable)
        self.writes_lines = is_shown and self.bar.disable
        self._redirected = logging_redirect_tqdm()  # messages appear above the bar
        self.began = time.perf_counter()
        self._reset_counts()

    def __enter__(self) -> Self:
        self._redirected.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._redirected.__exit__(*error)
        self.bar.close()

    def _reset_counts(self) -> None:
        """Count tokens and seconds from 0 again, for the next line."""
        self.tokens = 0
        self.seconds = 0.0
        self.waited = 0.0

    def update(self, line: Json, tokens: int, seconds: float, waited: float) -> None:
        """Show a finished step.

        Args:
            line: the step's "step", "stage" and "loss".
            tokens: the tokens in its global batch.
            seconds: its duration.
            waited: the seconds of it spent waiting for data.
        """
        self.tokens += tokens
        self.seconds += seconds
        self.waited += waited
        step = line["step"]
        loss = line["loss"]
        text = "no loss" if loss is None else f"loss {loss:.4f}"
        text += f", {self.tokens / self.seconds:,.0f} tokens/s"
        text += f", waiting for data {self.waited / self.seconds:.1%}"
        self.bar.set_postfix_str(f"{line['stage']}: {text}", refresh=False)
        self.bar.update()
        if step % self.interval and step != self.last:
            return
        if self.writes_lines:
            per_step = (time.perf_counter() - self.began) / (step - self.done)
            left = datetime.timedelta(seconds=round(per_step * (self.last - step)))
            stage = line["stage"]
            logger.info(
                "step %d of %d (%s): %s, %s left", step, self.last, stage, text, left
            )
        self._reset_counts()
