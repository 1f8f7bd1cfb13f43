"""The colors of the figures: text can be read on them, and neighbors can be told apart in gray."""

import itertools

import numpy as np
import pytest

from figures.cells import ink_on
from figures.draw import COLOURS, GREY, INK, LINES, RED, SOURCES
from figures.megatron import SHADES


def luminance(color: str) -> float:
    """WCAG's relative luminance, 0 to 1."""
    parts = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("color", [*LINES, INK, GREY, RED])
def test_text_in_the_color_of_a_line_can_be_read_on_white(color: str) -> None:
    """WCAG's contrast of 4.5."""
    assert 1.05 / (luminance(color) + 0.05) >= 4.5


@pytest.mark.parametrize("color", COLOURS)
def test_dark_text_can_be_read_on_every_fill(color: str) -> None:
    assert (luminance(color) + 0.05) / (luminance(INK) + 0.05) >= 4.5


@pytest.mark.parametrize("shade", SHADES)
def test_text_can_be_read_on_every_document(shade: str) -> None:
    ink = {"white": "#ffffff"}.get(ink_on(shade), INK)
    lighter, darker = sorted((luminance(ink), luminance(shade)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_a_document_can_be_told_from_the_next_one_in_gray() -> None:
    lightness = [luminance(shade) + 0.05 for shade in SHADES]
    for a, b in itertools.pairwise(lightness):
        assert max(a, b) / min(a, b) >= 1.5


@pytest.mark.parametrize("side", [0, 1], ids=["fills", "lines"])
def test_sources_can_be_told_apart_in_gray(side: int) -> None:
    """A ratio of 1.25 between the contrasts of two fills, or two lines, can be seen without a hue."""
    lightness = sorted(luminance(colors[side]) + 0.05 for colors in SOURCES.values())
    assert min(b / a for a, b in itertools.pairwise(lightness)) >= 1.25
