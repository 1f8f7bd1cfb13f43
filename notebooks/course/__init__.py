"""What every notebook of the course shares: a tiny corpus, pictures with captions, exercises that check themselves."""

from course.exercises import check
from course.pictures import show, show_source
from course.tiny import DOCUMENTS, pieces, tiny_corpus

__all__ = ["DOCUMENTS", "check", "pieces", "show", "show_source", "tiny_corpus"]
