"""Tables of the appendix of notebook 17, and how a number is said in them."""

import numpy as np

from course.order_runs import reach


def as_table(head, rows):
    lines = [head, [":---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval(mean, half, mark=""):
    return f"{mean:+z.3f} \u00b1 {half:.3f}{mark}"


def cost_said(cost):
    """A cost, with its interval where there are several seeds."""
    if cost is None:
        return "not run"
    if np.ndim(cost) == 0:
        return f"{cost:+.2f} (one seed)"
    return f"{np.mean(cost):+.2f} \u00b1 {reach(cost):.2f}"


def saved_said(whole, rounds):
    return [""] if rounds is None else [f"{1 - np.mean(rounds) / np.mean(whole):.0%}"]
