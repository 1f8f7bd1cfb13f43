"""What every notebook of the course shares: a tiny corpus, pictures, guesses, exercises that check themselves."""

import warnings

from course.corpus import token_files
from course.exercises import check
from course.guesses import guess, tally
from course.pictures import show, show_source
from course.registry import draw, opening, show_answer
from course.tiny import DOCUMENTS, pieces, tiny_corpus

# torch's advice where a page has more workers than the machine has cores
warnings.filterwarnings("ignore", message="This DataLoader will create")

__all__ = [
    "DOCUMENTS",
    "check",
    "draw",
    "guess",
    "opening",
    "pieces",
    "show",
    "show_answer",
    "show_source",
    "tally",
    "tiny_corpus",
    "token_files",
]
