"""Search token files for ids or for a piece of text.

All passages are searched for in one pass over a file. `find` compares the ids of all documents with
the wanted ids. `find_text` searches for the tokens in the middle of a text and decodes around each
hit, because the tokens at its ends depend on the text around them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nanoset_ref.io.types import Array, Int64Array
from nanoset_ref.tokens import Tokens
from nanoset_ref.tokens.document_blocks import document_blocks

FEW_SEQUENCES = 16  # as many sequences are found faster in ids that are not sorted
Passage = str | Sequence[int]  # a text, or ids


def _candidates(
    block: Array,
    sequences: Sequence[Int64Array],
) -> Iterator[Int64Array]:
    """Yield the offsets in a block of ids at which each sequence may start: it has an id there.

    Of many sequences, that is the rarest id of each, found in the sorted ids.
    """
    are_many = len(sequences) > FEW_SEQUENCES
    if are_many:
        places = np.argsort(block, kind="stable")
        ascending = block[places]
    for sequence in sequences:
        ids = sequence.astype(block.dtype)
        if are_many:
            firsts = np.searchsorted(ascending, ids)
            stops = np.searchsorted(ascending, ids, side="right")
            rarest = np.argmin(stops - firsts)
            yield places[firsts[rarest] : stops[rarest]] - rarest
        else:
            yield np.flatnonzero(block == ids[0])


class PassageSearch:
    """Passages that are searched for together.

    1. Search for the ids of each passage; of a text, for the ids of its inner words.
    2. Decode a few more tokens on both sides; keep a hit if the whole text is there.
    3. Cut the tokens where the decoded text starts and stops.

    A text of one or two words is searched for as a whole, at the beginning of a line and after a
    space.

    Args:
        passages: {number: ids, or a text; white space around it is ignored}.
        tokenizer: a tokenizer with `encode` and `decode`, as in transformers; None will do for ids.

    Raises:
        ValueError: a passage is empty, its ids are not integers, or a text has no tokenizer.
    """

    def __init__(self, passages: Mapping[int, Passage], tokenizer: Any = None) -> None:
        self.tokenizer = tokenizer
        self.texts: dict[int, str] = {}  # searched for by their inner words
        self.numbers = []  # of the passage of each sequence
        self.sequences = []
        for number, passage in passages.items():
            for ids in self._ids_of(number, passage):
                sequence = np.array(ids)
                if sequence.dtype.kind not in "iu" or sequence.ndim != 1:
                    raise ValueError(
                        f"search for at least one id, a list of integers, got {ids!r:.80}"
                    )
                self.sequences.append(sequence)
                self.numbers.append(number)

    def _ids_of(self, number: int, passage: Passage) -> list[Sequence[int]]:
        """The sequences to search for, of one passage."""
        if not isinstance(passage, str):
            return [passage]
        text = passage.strip()
        if not text:
            raise ValueError("search for a text of at least one word, got none")
        if self.tokenizer is None:
            raise ValueError(
                f"the text {text!r:.80} needs a tokenizer: give one, or ids"
            )
        spellings = [text, f" {text}"]
        words = text.split(" ")
        if len(words) > 2:
            self.texts[number] = text
            spellings = [" ".join(["", *words[1:-1]])]
        return [
            self.tokenizer.encode(spelling, add_special_tokens=False)
            for spelling in spellings
        ]

    def matches_in(self, file: Tokens) -> Iterator[tuple[int, list[Any]]]:
        """Search a file, a few million ids at a time.

        Yields:
            (documents searched so far, new matches), sorted; a match is (number of the passage,
            document, start, stop), in tokens of the document.

        Raises:
            TokenFileError: the file has no document boundaries.
        """
        first_document = 0  # of the block
        for block, lengths in document_blocks(file):
            ends = np.cumsum(lengths)
            firsts = ends - lengths
            matches = set()
            for number, ids, starts in zip(
                self.numbers,
                self.sequences,
                _candidates(block, self.sequences),
                strict=True,
            ):
                for n, wanted in enumerate(ids.tolist()):
                    is_wanted = block.take(starts + n, mode="clip") == wanted
                    starts = starts[is_wanted]
                documents = np.searchsorted(ends, starts, side="right")
                is_inside = (starts >= 0) & (starts + len(ids) <= ends[documents])
                places = np.stack([documents, starts - firsts[documents]], axis=1)
                for document, start in places[is_inside].tolist():
                    tokens = block[firsts[document] : ends[document]]
                    bounds = self._bounds_of(number, tokens, start, start + len(ids))
                    if bounds:
                        matches.add((number, first_document + document, *bounds))
            first_document += len(lengths)
            yield first_document, sorted(matches)

    def _bounds_of(
        self,
        number: int,
        tokens: Array,
        start: int,
        stop: int,
    ) -> tuple[int, int] | None:
        """Where passage `number` lies around the hit tokens[start:stop]; None: it is not there."""
        text = self.texts.get(number)
        if text is None:
            return start, stop
        first, *_, last = text.split(" ")
        # no word has more tokens than bytes
        reach = max(len(first.encode()), len(last.encode())) + 2
        low = max(start - reach, 0)
        window = tokens[low : stop + reach].tolist()
        start -= low
        stop -= low
        first_char = len(self._decode(window[:start])) - len(first)
        if first_char < 0:
            return None
        if not self._decode(window).startswith(text, first_char):
            return None
        while len(self._decode(window[:start])) > first_char:
            start -= 1
        # compare text, not lengths: half of a character decodes to one character
        while not self._decode(window[:stop]).startswith(text, first_char):
            stop += 1
        return low + start, low + stop

    def _decode(self, ids: list[int]) -> str:
        """The text of ids, without changes of its spaces."""
        decode = self.tokenizer.decode
        return decode(ids, clean_up_tokenization_spaces=False)


def find(file: Tokens, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Find a sequence of ids within documents.

    Args:
        file: a file with document boundaries.
        ids: the ids, in order.

    Returns:
        (document, offset of the first token in the document) of every hit, sorted.

    Raises:
        ValueError: there are no ids, or the file has no document boundaries.
    """
    blocks = PassageSearch({0: ids}).matches_in(file)
    return [(match[1], match[2]) for _, matches in blocks for match in matches]


def find_text(
    file: Tokens,
    tokenizer: Any,
    text: str,
) -> list[tuple[int, int, int]]:
    """Find the tokens that hold a text; see `PassageSearch`.

    Args:
        file: a file with document boundaries.
        tokenizer: a tokenizer with `encode` and `decode`, as in transformers.
        text: the text; white space around it is ignored.

    Returns:
        (document, start, stop) of every hit, in tokens of the document, sorted.

    Raises:
        ValueError: the text is empty; see also `find`.
    """
    blocks = PassageSearch({0: text}, tokenizer).matches_in(file)
    return [match[1:] for _, matches in blocks for match in matches]
