"""Short stories: a context-free grammar, which is in `stories.txt`, with a memory.

`{name}` in a pattern is looked up in the memory of the story first (who the hero is, where the hero stands, what was
lost) and in the grammar otherwise, where one alternative is picked and expanded in turn. The memory is what keeps a
story about the same people and things from its first sentence to its last.
"""

import re
from pathlib import Path

from corpus_generator.dice import Dice

HIM = {"she": "her", "he": "him"}


def read_grammar(text: str) -> dict[str, list[str]]:
    """The alternatives of every [name], in the order of the file."""
    found = {}
    for name, words, lines in re.findall(r"^\[(\w+)\](.*)\n((?:(?!\[).*\n)*)", text, re.MULTILINE):
        alternatives = [line.replace("\\n", "\n") for line in lines.splitlines() if line]
        found[name] = (words + " " + lines).split() if words else alternatives
    return found


GRAMMAR = read_grammar(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
SCENES = ("find", "talk", "trouble", "help", "rest", "arrive")
SYMBOL = re.compile(r"\{(\w+)\}")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")


class Story:
    """One story being told: the dice, and the memory that the patterns look names up in."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        he = dice.pick(("she", "he"))
        hero, friend = dice.several(GRAMMAR[he], 2)
        self.memory = {"hero": hero, "friend": friend, "he": he, "him": HIM[he]}
        self.memory["trade"], self.memory["work"] = dice.several(GRAMMAR["trades"], 2)
        self.memory["thing"], self.memory["thing2"] = dice.several(GRAMMAR["things"], 2)
        self.move()

    def move(self) -> None:
        """Go to another place, meet another animal there, and hear of the place after it."""
        self.memory["animal"] = self.dice.pick(GRAMMAR["beast"])
        self.memory["place"], self.memory["place2"] = self.dice.several(GRAMMAR["places"], 2)

    def tell(self, symbol: str) -> str:
        """Expand one symbol; a capital letter asks for a capital letter."""
        name = symbol.lower()
        text = self.memory[name] if name in self.memory else self.fill(self.dice.pick(GRAMMAR[name]))
        return text if symbol == name else text[:1].upper() + text[1:]

    def fill(self, pattern: str) -> str:
        """Expand every symbol of a pattern, from left to right."""
        return SYMBOL.sub(lambda match: self.tell(match[1]), pattern)


def write_story(dice: Dice, words: int) -> tuple[str, str]:
    """A title and a story of about `words` words: a line or two, a page, or chapters of some 300 words each."""
    story = Story(dice)
    title = story.tell("title")
    if words < 25:
        return polish(title), " ".join(polish(story.tell("line")) for _ in range(1 + words // 12))
    parts = [story.tell("open") + " " + story.tell("want")]
    count, chapter = len(parts[0].split()), 1
    while count < words:
        if count > 300 * chapter:
            story.move()
            chapter += 1
            parts.append(f"Chapter {chapter}: {story.tell('title')}")
            parts.append(story.tell("arrive"))
        else:
            parts.append(" ".join(polish(story.tell(scene)) for scene in dice.several(SCENES, dice.between(1, 3))))
        count += len(parts[-1].split())
    parts.append(story.tell("end"))
    return polish(title), "\n\n".join(map(polish, parts))


def polish(text: str) -> str:
    """A capital at the start, even behind a quotation mark, and "an" before vowels."""
    start = text.startswith('"')
    return ARTICLE.sub(r"\1n ", text[:start] + text[start : start + 1].upper() + text[start + 1 :])
