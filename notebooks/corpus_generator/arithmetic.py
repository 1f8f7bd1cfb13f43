"""Worked arithmetic: every `=` in these texts is true, and every step is one that a pupil would write down."""

import math
from collections.abc import Callable

from corpus_generator.dice import Dice

NAMES = "Ada Bruno Clara Dario Edith Felix Greta Hugo Ines Jonas Leila Milan Nora Omar Petra Samir".split()
GOODS = "apples pencils stamps marbles tickets cards eggs bricks candles buttons coins shells".split()
VESSELS = "boxes bags crates baskets drawers jars".split()


def addition(dice: Dice) -> str:
    """Column by column, with the carry spelt out."""
    digits = dice.between(2, 5)
    a, b = dice.between(10 ** (digits - 1), 10**digits - 1), dice.between(10, 10**digits - 1)
    lines, carry = [f"Add {a} and {b}, column by column from the right."], 0
    for column in range(len(str(max(a, b)))):
        x, y = a // 10**column % 10, b // 10**column % 10
        total = x + y + carry
        step = f"{x} + {y} + {carry} = {total}" if carry else f"{x} + {y} = {total}"
        carry = total // 10
        lines.append(f"{step}: write {total % 10}" + (f", carry {carry}." if carry else "."))
    return "\n".join([*lines, f"So {a} + {b} = {a + b}."])


def subtraction(dice: Dice) -> str:
    """By going up from the smaller number to the larger one."""
    b, a = sorted((dice.between(11, 899), dice.between(900, 5000)))
    ten = -(-b // 10) * 10
    hundred = -(-ten // 100) * 100
    jumps = [stop - start for start, stop in ((b, ten), (ten, hundred), (hundred, a)) if stop > start]
    return (
        f"Subtract {b} from {a}. From {b} go up to {ten}, then to {hundred}, then to {a}.\n"
        f"The jumps are {', '.join(map(str, jumps))}, and {' + '.join(map(str, jumps))} = {a - b}.\n"
        f"So {a} - {b} = {a - b}. Check: {a - b} + {b} = {a}."
    )


def multiplication(dice: Dice) -> str:
    """By splitting the second factor into its digits."""
    a, b = dice.between(12, 999), dice.between(11, 999)
    parts = [int(digit) * 10 ** (len(str(b)) - 1 - place) for place, digit in enumerate(str(b)) if digit != "0"]
    lines = [f"Multiply {a} by {b}. Split {b}: {' + '.join(map(str, parts))} = {b}."]
    lines += [f"{a} * {part} = {a * part}" for part in parts]
    return "\n".join([*lines, f"{' + '.join(str(a * part) for part in parts)} = {a * b}, so {a} * {b} = {a * b}."])


def division(dice: Dice) -> str:
    """Long division, digit by digit, with the remainder."""
    divisor, dividend = dice.between(3, 25), dice.between(100, 99999)
    lines, rest = [f"Divide {dividend} by {divisor}."], 0
    for digit in str(dividend):
        rest = rest * 10 + int(digit)
        times = rest // divisor
        if times:
            lines.append(f"{divisor} goes {times} times into {rest}: {rest} - {times} * {divisor} = {rest % divisor}.")
        else:
            lines.append(f"{divisor} does not go into {rest}.")
        rest %= divisor
    quotient = dividend // divisor
    check = f"{quotient} * {divisor} + {rest} = {dividend}"
    return "\n".join([*lines, f"The quotient is {quotient} and the remainder is {rest}: {check}."])


def common_divisor(dice: Dice) -> str:
    """Euclid's algorithm."""
    common = dice.between(2, 30)
    a, b = common * dice.between(10, 90), common * dice.between(2, 60)
    a, b = max(a, b), min(a, b)
    lines, x, y = [f"Find the greatest common divisor of {a} and {b} with Euclid's algorithm."], a, b
    while y:
        lines.append(f"{x} = {x // y} * {y} + {x % y}")
        x, y = y, x % y
    return "\n".join([*lines, f"The last remainder that is not zero is {x}, so gcd({a}, {b}) is {x}."])


def factors(dice: Dice) -> str:
    """Trial division by the small primes."""
    number = dice.between(20, 3000)
    lines, rest, prime, found = [f"Write {number} as a product of primes."], number, 2, []
    while rest > 1:
        if rest % prime:
            prime = prime + 1 if prime * prime <= rest else rest
            continue
        found.append(prime)
        lines.append(f"{rest} / {prime} = {rest // prime}")
        rest //= prime
    if len(found) == 1:
        return f"{lines[0]}\nNo smaller prime divides it: {number} is a prime."
    return "\n".join([*lines, f"So {number} = {' * '.join(map(str, found))}."])


def fractions(dice: Dice) -> str:
    """Two fractions over their least common denominator."""
    b, d = dice.between(2, 12), dice.between(2, 12)
    a, c = dice.between(1, b), dice.between(1, d)
    common = math.lcm(b, d)
    x, y = a * common // b, c * common // d
    shrink = math.gcd(x + y, common)
    lines = [
        f"Add {a}/{b} and {c}/{d}. The least common denominator of {b} and {d} is {common}.",
        f"{a}/{b} = {x}/{common} and {c}/{d} = {y}/{common}.",
        f"{x}/{common} + {y}/{common} = {x + y}/{common}",
    ]
    if shrink > 1:
        lines.append(f"Divide above and below by {shrink}: {x + y}/{common} = {(x + y) // shrink}/{common // shrink}.")
    return "\n".join(lines)


def equation(dice: Dice) -> str:
    """a x + b = c with a whole solution."""
    a, x, b = dice.between(2, 19), dice.between(2, 60), dice.between(1, 99)
    c = a * x + b
    return (
        f"Solve {a} times x plus {b} is {c}.\n"
        f"Take away {b} on both sides: {c} - {b} = {c - b}, so {a} times x is {c - b}.\n"
        f"Divide by {a}: {c - b} / {a} = {x}, so x is {x}.\nCheck: {a} * {x} + {b} = {c}."
    )


def word_problem(dice: Dice) -> str:
    """Somebody has things in vessels, gives some away, and somebody else gets an equal share."""
    (name, other), good, vessel = dice.several(NAMES, 2), dice.pick(GOODS), dice.pick(VESSELS)
    boxes, each, friends = dice.between(3, 24), dice.between(4, 40), dice.between(2, 9)
    total = boxes * each
    gift = dice.between(1, total // 2)
    rest = total - gift
    return (
        f"{name} has {boxes} {vessel} with {each} {good} in each, and gives {gift} {good} to {other}. "
        f"The others are shared among {friends} friends. How many {good} does each friend get?\n"
        f"At first there are {boxes} * {each} = {total} {good}. "
        f"After the gift there are {total} - {gift} = {rest} {good}.\n"
        f"{friends} * {rest // friends} + {rest % friends} = {rest}, so each friend gets {rest // friends} {good} "
        f"and {rest % friends} are left over."
    )


def series(dice: Dice) -> str:
    """The sum of an arithmetic sequence, term by term and at a stroke."""
    first, step, count = dice.between(1, 30), dice.between(2, 12), dice.between(4, 10)
    terms = [first + step * k for k in range(count)]
    return (
        f"Add the {count} terms that begin with {first} and grow by {step}: {', '.join(map(str, terms))}.\n"
        f"{' + '.join(map(str, terms))} = {sum(terms)}\n"
        f"At a stroke: the first and the last make {first} + {terms[-1]} = {first + terms[-1]}, "
        f"and {count} * {first + terms[-1]} / 2 = {sum(terms)}."
    )


TASKS: tuple[Callable[[Dice], str], ...] = (
    addition, subtraction, multiplication, division, common_divisor, factors, fractions, equation, word_problem, series,
)


def fact(dice: Dice) -> str:
    """A line to be learnt by heart."""
    a, b = dice.between(2, 20), dice.between(2, 20)
    return dice.pick((f"{a} + {b} = {a + b}", f"{a} * {b} = {a * b}", f"{a + b} - {b} = {a}", f"{a * b} / {b} = {a}"))


def write_arithmetic(dice: Dice, words: int) -> tuple[str, str]:
    """A title and about `words` words of arithmetic: one fact, one task, or a sheet of numbered exercises."""
    if words < 12:
        return "Fact", "\n".join(fact(dice) for _ in range(1 + words // 7))
    parts = [dice.pick(TASKS)(dice)]
    count = len(parts[0].split())
    while count < words:
        parts.append(dice.pick(TASKS)(dice))
        count += len(parts[-1].split())
    if len(parts) == 1:
        return "Exercise", parts[0]
    return f"{len(parts)} exercises", "\n\n".join(f"Exercise {k}. {part}" for k, part in enumerate(parts, 1))
