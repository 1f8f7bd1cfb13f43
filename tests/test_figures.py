"""Every picture of the notebooks draws and says what it should, within its frame."""

import re
from pathlib import Path

import pytest
from figure_examples import PICTURES, draw
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import figures
from figures.draw import WIDTH


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_draws_and_says_what_it_should_within_its_frame(picture: str) -> None:
    *arguments, words = PICTURES[picture]
    figure = draw(picture, arguments)
    figure.draw_without_rendering()
    frame = figure.bbox.padded(1)
    shown = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and lies_in(frame, text)
    ]
    assert {text.get_text() for text in shown} >= {*words.split("|")}
    assert min(text.get_fontsize() for text in shown if text.get_text().strip()) >= 9
    assert figure.get_figwidth() == WIDTH


def lies_in(frame: Bbox, text: Text) -> bool:
    return all(
        frame.contains(*corner) for corner in text.get_window_extent().get_points()
    )


def test_every_picture_is_here() -> None:
    drawn = {
        f"{path.stem}.{name}"
        for path in Path(figures.__file__).parent.glob("[a-z]*.py")
        for name in re.findall(r"^def ([a-z]\w*)", path.read_text(), re.M)
        if path.stem
        not in (
            "cells",
            "draw",
            "moving",
        )  # tests/test_moving_figures.py has what moves
    }
    assert drawn == PICTURES.keys()
