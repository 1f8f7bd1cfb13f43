"""Little programs: Python functions with names and numbers thrown by dice, each followed by assertions that hold.

A recipe gives the source of one function and the arguments of its calls. The writer runs them and puts what they return
into an `assert`, so every text tells the truth.
"""

from collections.abc import Callable
from typing import NamedTuple

from corpus_generator.dice import Dice

NOUNS = "items values numbers scores prices lengths ages points sizes weights marks levels".split()
VERBS = "count find get compute collect make read build".split()
LETTERS = "apple bread candle dragon engine forest garden harbor island jacket kitten ladder magnet needle".split()
KEYS = "red blue green north south east west salt sugar flour iron copper".split()


class Function(NamedTuple):
    """A function as text: its name, its source, and the arguments of its calls."""

    name: str
    source: str
    calls: list[str]


def numbers(dice: Dice, low: int = -9, high: int = 40) -> list[int]:
    """Between three and nine integers."""
    return [dice.between(low, high) for _ in range(dice.between(3, 9))]


def total_above(dice: Dice) -> Function:
    noun, limit, data = dice.pick(NOUNS), dice.between(0, 20), numbers(dice)
    name = f"{dice.pick(('sum', 'total'))}_{noun}_above"
    source = (
        f"def {name}({noun}, limit={limit}):\n"
        f'    """The sum of the {noun} above the limit."""\n'
        f"    total = 0\n    for value in {noun}:\n        if value > limit:\n            total += value\n"
        "    return total\n"
    )
    return Function(name, source, [f"{data}", f"{data}, limit=0"])


def filtered(dice: Dice) -> Function:
    noun, step, data = dice.pick(NOUNS), dice.between(2, 7), numbers(dice, 0, 60)
    name = f"{dice.pick(VERBS)}_multiples_of_{step}"
    source = f"def {name}({noun}):\n    return [value for value in {noun} if value % {step} == 0]\n"
    return Function(name, source, [f"{data}"])


def scaled(dice: Dice) -> Function:
    noun, factor, shift, data = dice.pick(NOUNS), dice.between(2, 9), dice.between(1, 30), numbers(dice)
    source = (
        f"def scale_{noun}({noun}):\n"
        f"    result = []\n    for value in {noun}:\n        result.append({factor} * value + {shift})\n"
        "    return result\n"
    )
    return Function(f"scale_{noun}", source, [f"{data}"])


def largest(dice: Dice) -> Function:
    word, compare = dice.pick((("largest", ">"), ("smallest", "<")))
    noun, data = dice.pick(NOUNS), numbers(dice)
    name = f"{word}_of_{noun}"
    source = (
        f"def {name}({noun}):\n"
        f"    if not {noun}:\n        return None\n"
        f"    best = {noun}[0]\n    for value in {noun}[1:]:\n        if value {compare} best:\n"
        "            best = value\n    return best\n"
    )
    return Function(name, source, [f"{data}", "[]"])


def divisor(dice: Dice) -> Function:
    a, b = dice.between(6, 400), dice.between(6, 400)
    name = dice.pick(("gcd", "common_divisor", "euclid"))
    source = f"def {name}(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n"
    return Function(name, source, [f"{a}, {b}", f"{a}, 0"])


def recursion(dice: Dice) -> Function:
    count = dice.between(3, 11)
    recipes = ("factorial", 1, "n *"), ("triangle", 0, "n +"), ("power_of_two", 1, "2 *")
    name, base, step = dice.pick(recipes)
    source = f"def {name}(n):\n    if n == 0:\n        return {base}\n    return {step} {name}(n - 1)\n"
    return Function(name, source, [f"{count}", "0"])


def sequence(dice: Dice) -> Function:
    first, second, count = dice.between(0, 5), dice.between(1, 9), dice.between(4, 12)
    name = dice.pick(("fibonacci", "sequence", "growing_terms"))
    source = (
        f"def {name}(count):\n"
        f"    terms = [{first}, {second}]\n    while len(terms) < count:\n        terms.append(terms[-2] + terms[-1])\n"
        f"    return terms[:count]\n"
    )
    return Function(name, source, [f"{count}", "1"])


def letters(dice: Dice) -> Function:
    letter, word = dice.pick("aeioun"), " ".join(dice.several(LETTERS, dice.between(1, 4)))
    name = f"{dice.pick(('count', 'number_of'))}_{letter}"
    source = (
        f"def {name}(text):\n"
        f"    found = 0\n    for letter in text:\n        if letter == {letter!r}:\n            found += 1\n"
        "    return found\n"
    )
    return Function(name, source, [repr(word)])


def backwards(dice: Dice) -> Function:
    words = dice.several(LETTERS, dice.between(2, 5))
    separator = dice.pick((" ", "-", ", ", "_"))
    name = dice.pick(("reverse_words", "backwards", "turn_around"))
    source = (
        f"def {name}(text):\n    words = text.split({separator!r})\n"
        f"    return {separator!r}.join(reversed(words))\n"
    )
    return Function(name, source, [repr(separator.join(words))])


def table(dice: Dice) -> Function:
    keys = dice.several(KEYS, dice.between(2, 5))
    stock = {key: dice.between(1, 50) for key in keys}
    key, more = dice.pick(keys), dice.between(1, 30)
    name = dice.pick(("add_to_stock", "store", "put"))
    source = (
        f"def {name}(stock, key, amount):\n"
        f'    """A new table with more of one thing."""\n'
        f"    stock = dict(stock)\n    stock[key] = stock.get(key, 0) + amount\n    return stock\n"
    )
    return Function(name, source, [f"{stock}, {key!r}, {more}"])


def counted(dice: Dice) -> Function:
    data = [dice.pick(KEYS[:5]) for _ in range(dice.between(3, 8))]
    name = dice.pick(("tally", "histogram", "count_each"))
    source = (
        f"def {name}(words):\n"
        f"    counts = {{}}\n    for word in words:\n        counts[word] = counts.get(word, 0) + 1\n"
        "    return counts\n"
    )
    return Function(name, source, [f"{data}"])


def sorting(dice: Dice) -> Function:
    noun, data = dice.pick(NOUNS), numbers(dice)
    name = f"{dice.pick(('sort', 'order', 'arrange'))}_{noun}"
    source = (
        f"def {name}({noun}):\n"
        f"    {noun} = list({noun})\n    for i in range(1, len({noun})):\n        j = i\n"
        f"        while j > 0 and {noun}[j - 1] > {noun}[j]:\n"
        f"            {noun}[j - 1], {noun}[j] = {noun}[j], {noun}[j - 1]\n            j -= 1\n    return {noun}\n"
    )
    return Function(name, source, [f"{data}"])


def search(dice: Dice) -> Function:
    data = sorted(set(numbers(dice, 0, 90)))
    source = (
        "def binary_search(values, wanted):\n    low, high = 0, len(values)\n    while low < high:\n"
        "        middle = (low + high) // 2\n        if values[middle] < wanted:\n            low = middle + 1\n"
        "        else:\n            high = middle\n    return low\n"
    )
    return Function("binary_search", source, [f"{data}, {dice.pick(data)}", f"{data}, -1"])


def primes(dice: Dice) -> Function:
    limit = dice.between(10, 60)
    name = dice.pick(("primes_below", "sieve"))
    source = (
        f"def {name}(limit):\n    found = []\n    for n in range(2, limit):\n"
        f"        if all(n % p for p in found):\n            found.append(n)\n    return found\n"
    )
    return Function(name, source, [f"{limit}"])


def digits(dice: Dice) -> Function:
    number, base = dice.between(20, 9999), dice.between(2, 9)
    name = f"digits_in_base_{base}"
    source = (
        f"def {name}(number):\n    digits = []\n    while number:\n        number, digit = divmod(number, {base})\n"
        f"        digits.append(digit)\n    return digits[::-1]\n"
    )
    return Function(name, source, [f"{number}"])


def account(dice: Dice) -> Function:
    start, paid, spent = dice.between(10, 200), dice.between(5, 90), dice.between(1, 300)
    name = dice.pick(("Account", "Purse", "Wallet"))
    source = (
        f"class {name}:\n    def __init__(self, balance):\n        self.balance = balance\n\n"
        f"    def pay_in(self, amount):\n        self.balance += amount\n        return self\n\n"
        f"    def spend(self, amount):\n        if amount <= self.balance:\n            self.balance -= amount\n"
        f"        return self.balance\n"
    )
    return Function(name, source, [f"{start}).pay_in({paid}).spend({spent}"])


RECIPES: tuple[Callable[[Dice], Function], ...] = (
    total_above, filtered, scaled, largest, divisor, recursion, sequence, letters, backwards, table, counted, sorting,
    search, primes, digits, account,
)  # fmt: skip


def one_line(dice: Dice) -> str:
    """A program of one line, with what it prints."""
    a, b, word = dice.between(2, 99), dice.between(2, 99), dice.pick(LETTERS)
    sums = f"{a} + {b}", f"{a} * {b}", f"{a} % {b}"
    calls = f"len({word!r})", f"{word!r}[::-1]", f"max({a}, {b})", f"sum(range({a}))"
    shown = dice.pick(sums + calls)
    return f"print({shown})  # {eval(shown)}\n"


def write_program(dice: Dice, words: int) -> tuple[str, str]:
    """A title and a program of about `words` words: one line, one function, or a module of many."""
    if words < 10:
        return "one line", one_line(dice)
    parts: list[str] = []
    names: list[str] = []
    count = 0
    while not parts or count < words:
        function = dice.pick(RECIPES)(dice)
        name = function.name if function.name not in names else f"{function.name}_{len(names)}"
        source, calls = function.source.replace(function.name, name), [f"{name}({it})" for it in function.calls]
        exec(source, made := dict[str, object]())
        checks = "".join(f"assert {call} == {eval(call, made)!r}\n" for call in calls)
        parts.append(f"{source}\n\n{checks}")
        names.append(name)
        count += len(parts[-1].split())
    if len(parts) == 1:
        return names[0], parts[0]
    title = f"{len(parts)} functions"
    return title, "\n\n".join([f'"""{title}: {names[0]} and others."""\n', *parts])
