"""Short stories: a context-free grammar with a memory.

`{name}` in a pattern is looked up in the memory of the story first (who the hero is, where the hero stands, what was
lost) and in the grammar otherwise, where one alternative is picked and expanded in turn. The memory is what keeps a
story about the same people and things from its first sentence to its last.
"""

import re

from corpus_generator.dice import Dice

PEOPLE = {
    "she": "Ada Amina Clara Dora Edith Greta Hana Ines Jasmin Leila Mara Nora Olga Petra Rosa Signe Tilda Vera Yara",
    "he": "Anton Bruno Cyrus Dario Emil Felix Goran Hugo Idris Jonas Kofi Leo Milan Nils Omar Pavel Rafi Samir Tomas",
}
HIM = {"she": "her", "he": "him"}
PLACES = (
    "harbour mill market bridge lighthouse orchard bakery library station garden forest meadow workshop castle "
    "chapel quarry ferry village theatre observatory river island cellar attic school"
).split()
THINGS = (
    "lantern key map violin compass letter kettle ladder blanket coin bell book basket umbrella mirror clock boat "
    "whistle kite ring saddle teapot notebook hammer telescope"
).split()
WORKS = (
    "baker sailor teacher gardener carpenter miller shepherd clockmaker painter fisher postman weaver musician "
    "beekeeper blacksmith librarian"
).split()

GRAMMAR: dict[str, list[str]] = {
    "colour": "red blue green yellow grey white brown silver golden black".split(),
    "size": "small little large tall narrow heavy tiny broad".split(),
    "state": "old new broken forgotten rusty polished dusty painted wooden strange empty borrowed".split(),
    "mood": "tired hungry curious worried cheerful nervous proud quiet lonely patient brave surprised".split(),
    "beast": "dog cat fox goose horse owl hedgehog donkey crow rabbit otter mouse goat heron".split(),
    "food": "bread soup apples cheese porridge plums honey cake fish beans walnuts pears".split(),
    "drink": "tea milk water cider cocoa".split(),
    "time": ["morning", "evening", "afternoon", "night", "day"],
    "when": ["in the morning", "in the evening", "at noon", "at night", "before dawn", "after dark"],
    "number": "two three four five six seven eight nine ten twelve twenty".split(),
    "season": ["spring", "summer", "autumn", "winter"],
    "weather": [
        "The rain had stopped", "A cold wind blew", "Snow was falling", "The sun was warm", "Fog lay over the {place}",
        "Thunder rolled far away", "The sky was clear", "Clouds hung low above the {place}",
    ],
    "quickly": ["quickly", "slowly", "quietly", "carefully", "gladly", "at once", "without a word"],
    "went": ["walked", "ran", "hurried", "went", "rode", "wandered", "came", "climbed"],
    "said": ["said", "whispered", "answered", "called", "replied", "muttered", "shouted"],
    "asked": ["asked", "wondered", "wanted to know", "said", "cried"],
    "because": [
        "because the door was locked", "because nobody had asked", "because it was getting dark",
        "because the {animal} was still asleep", "because {he} had promised it", "because the {work} was waiting",
        "because the {food} was all eaten", "because it was the first day of {season}",
    ],
    "object": ["the {size} {thing}", "a {state} {thing2}", "a {colour} feather", "the {thing}"],
    "somewhere": [
        "under a stone", "behind the {state} door", "in a {size} box", "between two books", "at the end of the road",
        "on the roof of the {place}", "below the stairs", "beside the water", "near the {colour} gate", "in the snow",
    ],
    "thought": [
        "that the {work} would be {mood}", "that nothing was ever really lost",
        "of the {place2} and the long road back",
        "of the {food} on the table at home", "that {friend} must have taken it", "that it was too late to turn back",
        "of the {season} when {he} first saw the {place}",
    ],
    "open": [
        "Once there was a {mood} {trade} called {hero} who lived near the {place}.",
        "In the {season} of that year, {hero} the {trade} came to the {place} with nothing but a {state} {thing}.",
        "{hero} was a {trade}, and everybody at the {place} knew {him}.",
        "Every {time}, {hero} {went} from the {place} to the {place2} and back.",
        "Long ago, in a {size} house beside the {place}, lived {hero} and a {colour} {beast}.",
    ],
    "want": [
        "{He} wanted only one thing: to find the {thing} of the {work}.",
        "More than anything, {he} wished to see the {place2} before the {season} was over.",
        "One {time} the {thing} was gone, and {hero} could not sleep.",
        "Then {friend} sent a letter: \"Come to the {place2}, and bring the {thing}.\"",
        "But the {thing} that {he} had kept for {number} years did not work any more.",
    ],
    "arrive": [
        "{weather} when {hero} {went} to the {place}. {detail}",
        "After {number} days {hero} reached the {place}. {detail} {detail}",
        "{hero} came to the {place} {when}. {detail} {He} looked for the {thing} {somewhere}.",
    ],
    "detail": [
        "A {colour} {beast} sat {somewhere}.", "The windows of the {place} were {colour} and {size}.",
        "There was a smell of {food} and {drink}.", "Somebody had left {object} {somewhere}.",
        "Nobody spoke, for everyone was {mood}.", "The bell rang {number} times.",
        "{weather}, and the {animal} was {mood}.",
        "Someone was mending {object}.",
    ],
    "find": [
        "{Somewhere} {he} found {object}. {He} picked it up and thought {thought}.",
        "{hero} looked {somewhere}, and there lay {object}. \"{saying},\" {said} {friend}.",
        "The {animal} ran ahead and stopped. {Somewhere}, {hero} saw {object}.",
    ],
    "talk": [
        "\"{question}?\" {asked} {friend}.\n\n\"{saying},\" {said} {hero}. \"{promise}.\"",
        "\"{saying},\" {said} {friend}, {because}.\n\n{hero} was {mood} and thought {thought}.",
        "\"{question}?\"\n\n\"{saying},\" {said} the {work}.\n\n\"Then {promise2},\" {said} {hero}, and {he} smiled.",
    ],
    "question": [
        "Where is the {thing}", "Have you seen my {animal}", "How far is it to the {place2}", "Who lives {somewhere}",
        "Why are you so {mood}", "Did the {work} give you {object}", "Do you remember the {season} at the {place2}",
    ],
    "saying": [
        "I have not seen it since {season}", "It is {somewhere}, where it always was", "You should ask the {work}",
        "We shall need {food} and a {state} {thing2}", "I came back {because}",
        "There are {number} of them, and all are {colour}",
        "A {mood} {beast} told me so", "Nobody goes to the {place2} {when}",
    ],
    "promise": [
        "I will bring it back before {season}", "We can share the {food}", "You may keep {object}",
        "I shall wait for you at the {place2}", "Tomorrow we go to the {place2}",
    ],
    "promise2": [
        "we must go {quickly}", "I will look {somewhere}", "let us eat the {food} first", "take {object} and follow me",
    ],
    "trouble": [
        "But the road to the {place} was closed, {because}. {hero} felt {mood}.",
        "That {time} the {thing} fell into the water. {hero} {went} after it, but it was gone.",
        "{friend} did not come. {hero} waited {number} hours with the {animal} and ate {food}.",
        "A {mood} stranger stopped them. \"{question}?\" And nobody knew the answer.",
    ],
    "help": [
        "Then {friend} had an idea: they tied a {colour} rope to the {thing2}, and {quickly} the door opened.",
        "The {animal} knew the way. It {went} {quickly} past the {place}, and {hero} followed.",
        "{hero} gave {food} to the {work}, and the {work} gave {him} {object} for it.",
        "Together they carried the {thing} to the {place}. It took {number} hours, but {friend} never complained.",
    ],
    "rest": [
        "{When} they sat down and shared {food} and {drink}. {detail}",
        "{hero} slept {somewhere} and dreamt of a {colour} {beast}.",
        "{weather}. {friend} told a story about a {mood} {work} and {number} {colour} boats.",
    ],
    "end": [
        "And so the {thing} came home, and {hero} was never {mood} again.",
        "{hero} put the {thing} {somewhere}, and there it is to this day.",
        "When {season} came, {hero} and {friend} still talked about the {thing} of the {place}.",
        "\"{saying},\" {said} {friend}, and they both laughed.",
        "From then on the {work} kept {object} near the {place}, {because}.",
    ],
    "line": [
        "The {thing} was {state}.", "{hero} {went} home {quickly}.", "{weather}, and {hero} was {mood}.",
        "Nobody at the {place} had seen the {animal}.", "\"{saying},\" {said} {hero}.",
        "A {mood} {trade} needs {food}.",
        "{hero} found {object} {somewhere}.", "For sale: {object}, {state}, {number} coins.",
    ],
    "title": [
        "The {State} {Thing}", "{hero} and the {Animal}", "The {Trade} of the {Place}", "A {Thing} in {Season}",
        "{hero} at the {Place}",
    ],
}
SCENES = ("find", "talk", "trouble", "help", "rest", "arrive")
SYMBOL = re.compile(r"\{(\w+)\}")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")


class Story:
    """One story being told: the dice, and the memory that the patterns look names up in."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        he = dice.pick(("she", "he"))
        hero, friend = dice.several(PEOPLE[he].split(), 2)
        self.memory = {"hero": hero, "friend": friend, "he": he, "him": HIM[he]}
        self.memory["trade"], self.memory["work"] = dice.several(WORKS, 2)
        self.memory["thing"], self.memory["thing2"] = dice.several(THINGS, 2)
        self.move()

    def move(self) -> None:
        """Go to another place, meet another animal there, and hear of the place after it."""
        self.memory["animal"] = self.dice.pick(GRAMMAR["beast"])
        self.memory["place"], self.memory["place2"] = self.dice.several(PLACES, 2)

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
