"""What the scripts beside this file share: each runs a recipe of docs/trainers.md, whole and in two parts."""

import json
import os
import re
import sys
import warnings
from pathlib import Path

import torch

from nanoset_ref import Nanoset

FOLDER = Path(sys.argv[1])
DATASET = Nanoset.from_config(
    str(FOLDER / "a_input_ids.npy"), sequence_length=16, train_split_num_samples=100
)
warnings.simplefilter("ignore")
torch.set_num_threads(1)


def recipe(title: str) -> str:
    """The code below a heading of docs/trainers.md."""
    text = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text(
        encoding="utf-8"
    )
    return re.search(
        rf"^## {title}\n.*?^```python\n(.*?)^```$", text, flags=re.M | re.S
    )[1]


def weight(model: torch.nn.Module) -> float:
    return sum(
        parameter.detach().double().abs().sum().item()
        for parameter in model.parameters()
    )


class Tiny(torch.nn.Module):
    """Next-token prediction with one embedding; keeps the first token of each row that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.logits = torch.nn.Embedding(1 << 15, 4)
        self.seen: list[list[int]] = []

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.seen.append(input_ids[:, 0].tolist())
        return torch.nn.functional.cross_entropy(
            self.logits(input_ids).flatten(0, 1), labels.flatten().long() % 4
        )


def report(
    whole: tuple, first: tuple, second: tuple, resized: tuple | None = None
) -> None:
    """Each is (the rows seen, the weight at the end); `resized` went on after `first` with half the micro-batch."""
    rank = os.environ["RANK"]
    found = {"whole": whole, "first": first, "second": second, "resized": resized}
    (FOLDER / f"{rank}.json").write_text(json.dumps(found))
