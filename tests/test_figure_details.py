"""What stands where in a picture: dots and their numbers, titles, means, panels, widths."""

from figure_examples import RATES, draw
from matplotlib.collections import PathCollection

from figures.draw import GREY, INK, LINES, RED, lift_title
from figures.packing import LOST, PADDING


def test_two_workers_are_an_open_dot_in_the_row_of_the_same_reader() -> None:
    (axes,) = draw(
        "reading.rates",
        [{"512": RATES | {"grain, 2 workers": [3, 4, 5]}}, "memcpy", "the limit"],
    ).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "grain",
        "nanoset_ref",
    ]
    dots = [drawn for drawn in axes.collections if isinstance(drawn, PathCollection)]
    white = {
        tuple(map(float, dot.get_offsets()[0])): bool((dot.get_facecolor() == 1).all())
        for dot in dots
    }
    assert white == {(30.0, 0.0): False, (900.0, 1.0): False, (4.0, 0.0): True}


def test_a_number_stands_at_its_own_dot() -> None:
    """The slower of two dots has its number at the left, the faster one at the right."""
    (axes,) = draw(
        "reading.rates",
        [{"512": RATES | {"grain, 2 workers": [3, 4, 5]}}, "memcpy", "the limit"],
    ).axes
    places = {text.get_text(): text.xy[0] for text in axes.texts if hasattr(text, "xy")}
    assert places == {"4.0": 3.5, "30": 30.5, "900": 925}


def test_no_number_stands_on_the_yardstick() -> None:
    """Right of its dot it would: then it stands left of both dots, above the number of the slower one."""
    near = {"grain": [1500, 1501, 1502], "grain, 2 workers": [1400, 1401, 1402]}
    (axes,) = draw("reading.rates", [{"512": RATES | near}, "memcpy", "the limit"]).axes
    places = {text.get_text(): text.xyann for text in axes.texts if hasattr(text, "xy")}
    assert places["1,500"] == (-7, 6) and places["1,400"] == (-7, -6)


def test_the_only_panel_s_title_becomes_a_headline_at_the_left_edge() -> None:
    figure = draw("megatron.passes", [{"stories": 2.38}, "twice"])
    lift_title(figure)
    assert figure.get_suptitle() == "twice"
    assert figure.axes[0].get_title(loc="left") == ""
    two = draw("orders.epochs", [{"first": [0, 1], "second": [1, 0]}, 2, 0])
    lift_title(two)
    assert [axes.get_title(loc="left") for axes in two.axes] == ["first", "second"]


def test_each_mean_stands_at_the_right_of_its_panel() -> None:
    found = {"file order": ([1.0, 1.5], True), "blended": ([-0.5, 0.0], False)}
    (axes,) = draw(
        "experiments.differences", [{"text": found}, "cost", "shuffled"]
    ).axes
    said = [(text.get_text(), text.xy, text.get_color()) for text in axes.texts]
    assert said == [
        ("+1.25", (1, 0), RED),
        ("\u2217", (1, 0), RED),
        ("-0.25", (1, 1), GREY),
        ("", (1, 1), GREY),
    ]


def test_zero_lies_within_a_panel_of_intervals() -> None:
    rows = {
        "against a full shuffle:": None,
        "against a full shuffle:| a": (2.0, 0.1, ""),
    }
    (axes,) = draw("experiments.intervals", [{"text": rows}, "costs"]).axes
    low, high = axes.get_xlim()
    assert low < 0 < 2.1 < high


def test_what_was_not_tested_is_black_and_a_panel_may_lack_a_way() -> None:
    contents = {
        "short": {"a": ([2.0], None)},
        "long": {"a": ([3.0], None), "b": ([-1.0], True)},
    }
    said = [contents, "cost", "shuffled", "not run"]
    short, long = draw("experiments.differences", said).axes
    assert [text.get_text() for text in short.texts] == ["+2.00", "", "not run"]
    colours = [
        (text.get_text(), text.get_color()) for text in long.texts if text.get_text()
    ]
    assert colours == [("+3.00", INK), ("-1.00", LINES[0]), ("\u2217", LINES[0])]


def test_what_a_way_to_pack_costs_is_counted() -> None:
    rows = [
        [("a", 0, 4), ("b", 1, 1)],
        [("rest", LOST, 2)],
        [("c", 2, 3), ("", PADDING, 2)],
    ]
    *_, table = draw(
        "packing.ways", [{"Truncate: loses": rows, "Pad": rows[:1] * 4}, 5, "T"]
    ).axes
    assert [text.get_text() for text in table.texts[4:8]] == ["Truncate", "1", "2", "2"]


def test_passes_are_as_wide_as_they_are_many() -> None:
    (axes,) = draw(
        "megatron.passes", [{"stories": 2.38, "programs": 0.7}, "title"]
    ).axes
    assert [patch.get_width() for patch in axes.patches] == [2.38, 0.7]


def test_a_killed_run_is_drawn_as_it_was_on_the_whole_one() -> None:
    starts = {"first": [(1, 8.0)], "second": [(1, 8.0), (2, 6.75)]}
    (axes,) = draw("resume.same_losses", [[8.0, 6.5], starts, {"stories": 1}, 1]).axes
    drawn = [list(line.get_ydata()) for line in axes.lines[:3]]
    assert drawn == [[8.0, 6.5], [8.0], [8.0, 6.75]]
