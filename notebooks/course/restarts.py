"""Small models that are killed and started again: notebook 05's opening, and docs/changing_a_run.md."""

import copy
from functools import cache

import numpy as np
import torch

from course import token_files
from nanoset_ref import Nanoset

STEPS = list(range(30))  # an epoch of the opening's runs
KILLED, LAST = 18, 100
RUNS = {
    "run A": (STEPS * 4)[:LAST],
    "run B": (STEPS[:KILLED] + STEPS[KILLED:] * 7)[:LAST],
}


@cache
def samples(count=440):
    """The ids of so many samples of 33 tokens."""
    paths = token_files("05", ("stories",))
    stories = Nanoset(paths["stories"], None, sequence_length=32, train_split_num_samples=count)
    return torch.tensor(np.stack([sample["input_ids"] for sample in stories])).long()


@cache
def trained():
    """By name, what `train` returns."""
    torch.set_num_threads(1)  # so small a model gains nothing from more
    return {name: train(steps) for name, steps in RUNS.items()}


class Small(torch.nn.Module):
    """A model that sees two tokens."""

    def __init__(self):
        super().__init__()
        self.table, self.output = torch.nn.Embedding(4096, 32), torch.nn.Linear(64, 4096)

    def forward(self, batch):
        seen = self.table(batch[:, :-1])
        logits = self.output(torch.cat([seen[:, :-1], seen[:, 1:]], dim=-1))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 2:].flatten())


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def losses_of(model, optimizer, steps, rows):
    """The losses of some steps, each of which reads its 8 rows."""
    losses = []
    for step in steps:
        loss = model(rows[8 * step : 8 * step + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(steps):
    """Train a small model: its losses, and its loss on 200 samples that it never reads."""
    torch.manual_seed(0)
    model = Small()
    losses = losses_of(model, optimizer_of(model), steps, samples())
    with torch.no_grad():
        return losses, model(samples()[240:]).item()


# of the restarts of docs/changing_a_run.md: steps before and after, and steps of a wrong count
BEFORE, AFTER, AHEAD = 60, 60, 10
RESTARTS = {  # the first step that is read after it, and whether the optimizer's state was kept
    "the optimizer's moments are lost": (BEFORE, False),
    f"the rows begin {AHEAD} steps too early": (BEFORE - AHEAD, True),
    f"the rows begin {AHEAD} steps too late": (BEFORE + AHEAD, True),
    "the rows begin with the first step": (0, True),
}


def after_a_restart(seeds=2):
    """By what goes wrong, how much higher the losses are than without a restart: [seeds, 60 steps]."""
    torch.set_num_threads(1)  # so small a model gains nothing from more
    rows = samples(8 * (BEFORE + AFTER + AHEAD))
    higher = {name: [] for name in RESTARTS}
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = Small()
        optimizer = optimizer_of(model)
        losses_of(model, optimizer, range(BEFORE), rows)
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))

        def restarted(first, kept, saved=saved):
            weights, moments = copy.deepcopy(saved)
            model = Small()
            model.load_state_dict(weights)
            optimizer = optimizer_of(model)
            if kept:
                optimizer.load_state_dict(moments)
            return np.array(losses_of(model, optimizer, range(first, first + AFTER), rows))

        exact = restarted(BEFORE, True)
        for name, (first, kept) in RESTARTS.items():
            higher[name].append(restarted(first, kept) - exact)
    return {name: np.array(differences) for name, differences in higher.items()}
