"""What every notebook of the course shares: a tiny corpus, pictures, guesses, exercises that check themselves."""

from course.corpus import token_files
from course.exercises import check
from course.guesses import guess, tally
from course.pictures import show, show_source
from course.registry import draw, opening, show_answer
from course.tiny import DOCUMENTS, pieces, tiny_corpus

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
