"""A small GPT and one training run of it, the same for every order of its data (`benchmarks.order_matters`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from nanoset_ref import Nanoset, build_nanoset_dataloader

VOCABULARY = 512


@dataclass(frozen=True)
class Size:
    """Of the model and of a run.

    Args:
        width, layers, heads: of the model.
        sequence_length: S, in tokens.
        batch: samples per step.
        available: samples of all sources together, at most, cut from the end of each source alike.
        samples: N of `repetition`, `annealing` and `blend`, at most; `buffers` reads all that are available once.
        evaluations: how often in a run the held-out loss is measured.
        held_out: samples per source, spread over its held-out documents.
        learning_rate: at its highest, after a twentieth of the run.
        bfloat16: whether the steps multiply matrices in bfloat16, as pre-training does; weights and measurements stay
            float32.
    """

    width: int
    layers: int
    heads: int
    sequence_length: int
    batch: int
    available: int
    samples: int
    evaluations: int
    held_out: int
    learning_rate: float
    bfloat16: bool = False


SIZES = {
    "smallest": Size(16, 1, 2, 16, 4, 160, 64, 2, 4, 1e-2),
    "small": Size(48, 2, 2, 32, 16, 10_240, 6_144, 8, 128, 3e-3),
    # "small" twice as wide
    "small, wide": Size(96, 2, 4, 32, 16, 10_240, 6_144, 8, 128, 3e-3),
    "medium": Size(128, 2, 4, 256, 16, 43_712, 16_384, 16, 96, 2e-3, bfloat16=True),
    # "medium" with a tenth of its text, or with the width of "small", or both
    "medium, short": Size(
        128, 2, 4, 256, 16, 4_371, 4_371, 16, 96, 2e-3, bfloat16=True
    ),
    "narrow": Size(48, 2, 2, 256, 16, 43_712, 16_384, 16, 96, 2e-3, bfloat16=True),
    "narrow, short": Size(48, 2, 2, 256, 16, 4_371, 4_371, 16, 96, 2e-3, bfloat16=True),
}

# the logits are divided by, when a trained model is measured once more
TEMPERATURES = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)

# by name, the learning rate as a share of its peak, when this share of the run is done
SCHEDULES: dict[str, Callable[[float], float]] = {
    "falling": lambda done: 1 - 0.9 * done,
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.55 + 0.45 * math.cos(math.pi * done),
    "WSD": lambda done: 1 - 0.9 * max(0.0, 5 * done - 4),
}


class Block(nn.Module):
    """Attention and a layer of four times the width, each behind a norm and beside a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.project = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.widen, self.narrow = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = (
            self.attend(self.norms[0](x))
            .view(rows, length, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        seen = scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(gelu(self.widen(self.norms[1](x)), approximate="tanh"))


class SmallModel(nn.Module):
    """A GPT: ids [B, S] to logits [B, S, vocabulary]."""

    def __init__(self, size: Size, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.ids, self.places = (
            nn.Embedding(n, size.width) for n in (vocabulary, size.sequence_length)
        )
        self.blocks = nn.Sequential(
            *(Block(size.width, size.heads) for _ in range(size.layers))
        )
        self.norm, self.head = (
            nn.LayerNorm(size.width),
            nn.Linear(size.width, vocabulary, bias=False),
        )
        for table in (self.ids, self.places, self.head):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(
            self.norm(self.blocks(self.ids(ids) + self.places.weight[: ids.shape[1]]))
        )


def losses_of(model: SmallModel, ids: Any, labels: Any) -> torch.Tensor:
    """The loss of each token in nats [B, S], of int arrays [B, S]."""
    ids, labels = (torch.as_tensor(it).long() for it in (ids, labels))
    logits = model(ids).flatten(0, 1)
    return cross_entropy(logits, labels.flatten(), reduction="none").view(labels.shape)


def softened(model: SmallModel, rows: NDArray[Any]) -> list[float]:
    """The loss of rows [n, S + 1] at each of `TEMPERATURES`: how much of it is the model being too sure."""
    ids, labels = (torch.as_tensor(it).long() for it in (rows[:, :-1], rows[:, 1:]))
    logits, labels = model(ids).flatten(0, 1), labels.flatten()
    losses = [cross_entropy(logits / heat, labels).item() for heat in TEMPERATURES]
    return [round(loss, 4) for loss in losses]


def train(
    data: Nanoset,
    held_out: Mapping[str, NDArray[Any]],
    size: Size,
    seed: int,
    schedule: str = "falling",
    peak: float = 1.0,
) -> dict:
    """Train a fresh model on a Nanoset in its order.

    Args:
        data: the samples of the run.
        held_out: rows [n, S + 1] of each source.
        size: of the model and the run.
        seed: of the initial weights.
        schedule: of the learning rate, behind a warmup of a twentieth of the run: "falling" in a straight line,
            "constant", "cosine", or "WSD", constant until a straight fall in the last fifth. All but "constant" end
            at a tenth of the peak.
        peak: of the learning rate, as a multiple of the size's.

    Returns:
        "tokens" read before each measurement, "held_out": the loss of each source there, "train": the mean loss of the
        steps since the measurement before, "rows": the loss of each held-out row at the end, "softened": the loss of
        each source there at each of `TEMPERATURES`.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = SmallModel(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate, fused=True)
    steps = len(data) // size.batch
    measured = {
        round(steps * k / size.evaluations) for k in range(1, size.evaluations + 1)
    }
    result: dict = {
        "tokens": [],
        "held_out": {name: [] for name in held_out},
        "train": [],
        "rows": {},
    }
    since: list[float] = []
    for step, batch in enumerate(
        build_nanoset_dataloader(data, micro_batch_size=size.batch), 1
    ):
        rate = min(1.0, 20 * step / steps) * SCHEDULES[schedule](step / steps)
        optimizer.param_groups[0]["lr"] = size.learning_rate * peak * rate
        with torch.autocast("cpu", torch.bfloat16, enabled=size.bfloat16):
            loss = losses_of(model, batch["input_ids"], batch["label_ids"]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        since.append(loss.item())
        if step in measured:
            result["tokens"].append(step * size.batch * size.sequence_length)
            result["train"].append(round(float(np.mean(since)), 4))
            since.clear()
            with torch.no_grad():
                for name, rows in held_out.items():
                    losses = losses_of(model, rows[:, :-1], rows[:, 1:]).mean(axis=1)
                    result["held_out"][name].append(round(losses.mean().item(), 4))
                    result["rows"][name] = [round(loss, 3) for loss in losses.tolist()]
    with torch.no_grad():
        result["softened"] = {it: softened(model, held_out[it]) for it in held_out}
    return result
