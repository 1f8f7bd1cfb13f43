"""Pictures and tables of orders, datasets and loaders: what they show is what is read."""

import io
import sys

import numpy as np
import pytest
from token_files import write_range

from nanoset_ref.io.html_table import html_table
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import (
    MMapIndexedDatasetBuilder,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.orders import (
    IdentityOrder,
    Ledger,
    NanotronOrder,
    PublishedOrder,
    SkippingOrder,
    StatelessOrder,
)
from nanoset_ref.orders.plots import (
    COLORS,
    REST,
    draw_sources,
)


def bars(axes):
    """The bars of a chart, by color: (left, bottom, width, height) of each."""
    found = {}
    for bar in axes.patches:
        box = bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()
        found.setdefault(bar.get_facecolor(), []).append(box)
    return [np.array(boxes) for boxes in found.values()]


def drawn(figure):
    """Samples of each source in each bin, and how often each is read, as the charts show them."""
    top, bottom = figure.axes
    shares = [boxes[:, 2] * boxes[:, 3] for boxes in bars(top)]
    return np.array(shares), [boxes[:, 2].item() for boxes in bars(bottom)]


@pytest.mark.parametrize(
    "order",
    [
        NanotronOrder([30, 50], [3, 1], 200, 7),
        StatelessOrder([30, 50], None, 170, 7),
        StatelessOrder([30, 50], [1, 2], 300, 7, start=Ledger(100, (40, 60))),
        IdentityOrder([30, 0, 50], None, 100, 7),
        SkippingOrder(IdentityOrder([30, 50], None, 160, 7), [(10, 40)]),
    ],
)
def test_the_bars_are_the_samples_that_are_read(order):
    """The oracle: every position, counted."""
    figure = order.plot()
    datasets = order[order.first_position :][0]
    shares, passes = drawn(figure)
    lengths = order.dataset_lengths.tolist()
    assert shares.sum() == pytest.approx(len(datasets))
    for number, counted in enumerate(shares):
        assert counted.sum() == pytest.approx(np.count_nonzero(datasets == number))
    for number, times in enumerate(passes):
        read = np.count_nonzero(datasets == number)
        assert times * lengths[number] == pytest.approx(read)
    labels = [axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes[:1]] + [
        figure.axes[1].get_xlabel()
    ]
    assert all(labels) and figure.get_size_inches()[0] * figure.dpi == 750
    assert f"{len(datasets)} positions, every position counted" in figure.get_suptitle()


def test_a_long_order_is_drawn_from_a_part_and_says_so():
    lengths = [10**12 + k for k in range(20)]
    figure = StatelessOrder(lengths, [1] * 19 + [21], 10**14, 7).plot()
    assert (
        "100,000,000,000,000 positions, 245,760 of them counted, in 60 bins"
        in figure.get_suptitle()
    )
    shares, passes = drawn(figure)
    assert len(shares) == 8, "seven sources and the others"
    assert shares[-2].sum() / 10**14 == pytest.approx(21 / 40, abs=0.01)
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "13 others"
    assert len(passes) == 8
    texts = [text.get_text() for text in figure.axes[1].texts]
    assert texts[0].endswith(" x 1,000,000,000,000 samples")


def test_a_dataset_draws_the_names_of_its_files(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    paths = [
        write_range(tmp_path / name, 41) for name in ("one/a.npy", "two/a.npy", "b.npy")
    ]
    figure = Nanoset(paths, [1, 2, 3], 4, 60).plot()
    labels = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert (
        labels[0].endswith("/one/a.npy")
        and labels[1].endswith("/two/a.npy")
        and labels[2] == "b.npy"
    )
    image = figure._repr_png_()
    assert image.startswith(b"\x89PNG")
    with MMapIndexedDatasetBuilder(tmp_path / "m.bin", np.uint16) as builder:
        builder.add_document(np.arange(90), [90])
    prefix = str(tmp_path / "m")
    options = {
        "random_seed": 1,
        "sequence_length": 4,
        "split": "1,0,0",
        "split_num_samples": (30, 0, 0),
    }
    for data_path in (prefix, {prefix: 2.0}):
        rows = NanosetBuilder(NanosetConfig(data_path=data_path, **options)).build(
            ["train"]
        )[0]
        assert drawn(rows.plot())[0].sum() == pytest.approx(len(rows))
        assert (
            "Megatron's train split" in rows.plot().get_suptitle()
            and "<td" in rows._repr_html_()
        )


def test_an_order_without_positions_has_nothing_to_draw_and_a_missing_library_is_named(
    monkeypatch,
):
    with pytest.raises(ValueError, match="nothing to draw"):
        NanotronOrder([3], None, 0).plot()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        ImportError,
        match=r'^a picture needs the package matplotlib.*: pip install "nanoset_ref\[lab\]"$',
    ):
        NanotronOrder([3], None, 3).plot()


def test_every_color_can_be_read_on_white():
    """WCAG's contrast of 4.5."""

    def luminance(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in parts
        ]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    assert min(1.05 / (luminance(color) + 0.05) for color in (*COLORS, REST)) >= 4.5


def test_tables_for_notebooks_say_what_there_is_and_escape_it(tmp_path):
    path = write_range(tmp_path / "<b>&.npy", 41)
    dataset = Nanoset([path] * 25, None, 4, 60)
    loader = build_nanoset_dataloader(
        dataset, micro_batch_size=3, dp_rank=1, dp_size=2, consumed_train_samples=12
    )
    page = dataset._repr_html_() + dataset.order._repr_html_() + loader._repr_html_()
    assert "&lt;b&gt;&amp;.npy" in page and "<b>" not in page and "<script" not in page
    assert (
        "and 5 others" in page
        and ">60<" in page
        and ">1 of 2, strided<" in page
        and ">8<" in page
    )
    assert page.count("<table>") == page.count("</table>") == 5
    table = html_table("<", {"a": 1234, "b": True})
    assert table.startswith("<table><caption>&lt;</caption><tr>")
    assert "<td style='text-align:right'>1,234</td>" in table and ">True</td>" in table
    (tmp_path / "order.npy").write_bytes(np.arange(60, dtype="<u4")[::-1].tobytes())
    published = PublishedOrder([60], None, 60, 1, path=str(tmp_path / "order.npy"))
    assert published._repr_html_() and published.plot().savefig(io.BytesIO()) is None


def test_the_bins_of_a_very_long_order_follow_one_another():
    """60 bins of 2**60 positions: their edges, times 60, are beyond int64."""
    figure = draw_sources(
        lambda positions: np.zeros(len(positions), dtype=np.int64),
        range(2**60),
        ["a"],
        np.array([2**59]),
        None,
        "one source",
    )
    [boxes] = bars(figure.axes[0])
    assert (boxes[:, 2] > 0).all()
    assert boxes[:, 2].sum() == pytest.approx(2.0**60)
