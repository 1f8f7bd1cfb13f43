"""Of the appendix of notebook 17: what blocks of one source cost at two widths."""

from course.order_runs import TEXTS, apart, blocks_found, cost_of_blocks, star
from course.order_tables import as_table, interval

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks import order_blocks

PARAMETERS = {"small": "107,000", "small, wide": "324,000"}  # by size


def blocks():
    """What file order in 1, 10 and 100 rounds costs, and what a step to shorter blocks changes."""
    lines = []
    for text, label in TEXTS.items():
        for size, parameters in PARAMETERS.items():
            found = [blocks_found()[size, text, it.label] for it in order_blocks.asked()]
            cells = [interval(it.mean, it.reach, star(it)) for it in found]
            lines.append([f"{label}: {parameters}", *cells])
    head = ["text: parameters", "1 round", "10 rounds", "100 rounds", "10 less 1", "100 less 10"]
    return as_table(head, lines)


def shares_saved(rounds):
    """By text, the shares of one round's cost that so many rounds save, of the narrower and of the wider model."""
    place = (1, 10, 100).index(rounds)
    shares = {}
    for text in TEXTS:
        costs = [[*cost_of_blocks(size, text).values()] for size in PARAMETERS]
        shares[text] = [1 - it[place].mean() / it[0].mean() for it in costs]
    return shares


def more_when_wider(text):
    """By how much more one round costs the wider model, and half of the 95% interval."""
    narrow, wide = (cost_of_blocks(size, text)["in file order"] for size in PARAMETERS)
    return apart(wide, narrow)


def of_the_blocks():
    """What the page says of blocks at two widths."""
    found = blocks_found()
    costs = [it for (_, _, label), it in found.items() if label in order_blocks.WAYS]
    steps = [
        it
        for (_, _, label), it in found.items()
        if label.startswith(order_blocks.WAYS[2] + " less")
    ]
    ten, hundred = (shares_saved(rounds) for rounds in (10, 100))
    apart_most = max(abs(narrow - wide) for it in (ten, hundred) for narrow, wide in it.values())
    wider = [more_when_wider(text) for text in TEXTS]
    return {
        "block_parameters": PARAMETERS["small, wide"],
        "block_seeds": len(order_blocks.SEEDS),
        "block_stars": f"{sum(it.has_star for it in costs)} of {len(costs)}",
        "ten_saved": [shares_said(it) for it in ten.values()],
        "hundred_saved": "; ".join(map(shares_said, hundred.values())),
        "hundred_stars": sum(it.has_star and it.mean < 0 for it in steps),
        "wider_blocks": ", ".join(f"{mean:+.2f} \u00b1 {half:.2f}" for mean, half in wider),
        "block_apart": 100 * apart_most,
        **{source: costs_said(source) for source in ("stories", "programs")},
    }


def costs_said(source):
    """What one round and ten cost the narrower model on a source of the corpus."""
    one, ten, _ = cost_of_blocks("small", "corpus", source).values()
    return [f"{it.mean():.2f}" for it in (one, ten)]


def shares_said(shares):
    return " and ".join(f"{share:.0%}" for share in shares)
