"""Guesses: a reader commits to one before unfolding the answer, and sees at the end how many were right.

They are kept in a small file of the user's cache folder, for the tally of the whole course. Where it
cannot be written nothing is lost but that tally. The command `python -m course` prints it.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from course.registry import ANSWERS, page

KEPT = Path.home() / ".cache" / "nanoset_ref" / "guesses.json"
_here: dict[str, bool] = {}  # the guesses of this kernel: whether each was right


def guess(key: str, guessed: Any) -> None:
    """Compare a guess with what the fold below it says, and keep the outcome.

    Args:
        key: of the question, such as "05.3".
        guessed: a number, a word, True or False, or a tuple of these. `...` is no guess yet, and
            prints nothing: a page that nobody has worked through has no output below its questions.
    """
    if guessed is ...:
        return
    page(key)
    is_right = agrees(guessed, key)
    _here[key] = is_right
    _keep(key, is_right)
    print("right" if is_right else "not so", "- now unfold the answer")


def agrees(guessed: Any, key: str) -> bool:
    """Whether a guess is the answer: words without regard to case, numbers to within a margin."""
    wanted = ANSWERS[key].expects
    if isinstance(wanted, tuple):
        return isinstance(guessed, tuple | list) and tuple(guessed) == wanted
    if isinstance(wanted, str):
        return str(guessed).strip().lower() == wanted.lower()
    if isinstance(wanted, bool) or isinstance(guessed, bool):
        return guessed is wanted
    try:
        return abs(float(guessed) - wanted) <= ANSWERS[key].within
    except (TypeError, ValueError, OverflowError):
        return False


def tally(number: str) -> None:
    """Print how many guesses of a page were right since it was opened, and how many are open.

    It prints nothing before the first guess.
    """
    page(number)
    asked = [key for key in ANSWERS if key[:2] == number]
    guessed = [key for key in asked if key in _here]
    right = sum(_here[key] for key in guessed)
    if guessed:
        print(f"you guessed {right} of {len(asked)} right; {len(asked) - len(guessed)} are open")


def kept() -> dict[str, bool]:
    """The guesses of all pages, as they were kept; none where the file is missing or damaged."""
    try:
        found = json.loads(KEPT.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: right for key, right in found.items() if isinstance(right, bool)}


def summary() -> str:
    """How many of all guesses were right, the latest for each question."""
    found = kept()
    pages = {key[:2] for key in found}
    return f"you guessed {sum(found.values())} of {len(found)} right, on {len(pages)} pages"


def _keep(key: str, is_right: bool) -> None:
    with contextlib.suppress(OSError):
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(kept() | {key: is_right}), encoding="utf-8")
