"""Pictures of documents: how long they are."""

from __future__ import annotations

from matplotlib.figure import Figure

from nanoset_ref.formats import Description
from nanoset_ref.plots._draw import canvas, half_framed


def length_histogram(description: Description) -> Figure:
    """Documents by length, in ranges that double; what `nanoset-ref inspect --png` draws."""
    figure, axes = canvas(7, 3.5)
    labels = [
        f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last, _ in description.length_histogram
    ]
    counts = [count for _, _, count in description.length_histogram]
    axes.bar_label(axes.bar(labels, counts, color="#4477aa"), fmt="{:,.0f}", padding=2, fontsize=8)
    axes.set_title(
        f"{description.num_documents:,} documents, {description.num_tokens:,} tokens, median {description.median:,.0f}"
    )
    axes.tick_params(axis="x", rotation=30)
    half_framed(axes, xlabel="tokens per document", ylabel="documents")
    return figure
