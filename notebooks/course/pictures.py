"""How every picture of the course is shown: one width, 200 dots per inch, a caption, and words in its place."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any

from IPython.display import Markdown, display
from matplotlib.figure import Figure
from PIL import Image

from figures.draw import DPI, WIDTH, lift_title
from figures.moving import Moving


def show(shown: Figure | Moving, caption: str, alt: str) -> None:
    """Show a picture with its caption below it.

    Args:
        shown: `WIDTH` inches wide; one that moves brings its still picture with it.
        caption: what to see in it, in Markdown; one or two sentences.
        alt: what it shows, for readers who cannot see it. nbval compares it, as the picture's text.
    """
    figure = shown.still() if isinstance(shown, Moving) else shown
    if figure.get_figwidth() != WIDTH:
        raise ValueError(
            f"the picture is {figure.get_figwidth()} inches wide; the course has one width, {WIDTH}"
        )
    lift_title(figure)
    file = BytesIO()
    figure.savefig(file, dpi=DPI, facecolor="white", metadata={"Software": None})
    size = {
        "width": round(figure.get_figwidth() * DPI / 2),
        "height": round(figure.get_figheight() * DPI / 2),
    }
    picture = {"image/png": file.getvalue(), "text/plain": f"Picture: {alt}"}
    if isinstance(shown, Moving):
        small = BytesIO()
        Image.open(file).convert("RGB").quantize(64).save(small, "PNG")
        picture |= {"image/png": small.getvalue(), "text/html": shown.html(alt, small.getvalue())}
    display(picture, metadata={"image/png": {**size, "alt": alt}}, raw=True)
    display(Markdown(f"*{caption}*"))


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Show a table: the names in its first column, numbers at the right of the others."""
    lines = [head, [":---", *["---:"] * (len(head) - 1)], *rows]
    display(Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines)))


def show_source(*functions: Callable[..., Any]) -> None:
    """Show the source of functions, without the rest of their module, in the colors of code."""
    sources = "\n\n\n".join(inspect.getsource(function).strip() for function in functions)
    display(Markdown(f"```python\n{sources}\n```"))
