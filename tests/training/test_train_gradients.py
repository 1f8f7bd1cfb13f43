"""The loss and the gradient of a batch, in whatever micro-batches and on whatever ranks it is read."""

import numpy as np
import pytest
import torch
from ranks import Ranks
from ranks.tasks import write_gradients
from run_config import LLAMA, run_tree
from transformers import AutoConfig, AutoModelForCausalLM

ROWS = np.random.RandomState(7).randint(0, 300, (8, 9))
UNEVEN = (
    np.random.RandomState(8).rand(8, 8) < np.linspace(0, 1, 8)[:, None]
)  # no label of the first row counts
UNEVEN[2] = False  # nor of the first micro-batch of the first of two ranks


def gradients_of_one_batch():
    """Loss and gradients, by name, of the whole model and the whole batch at once."""
    torch.manual_seed(42)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**LLAMA)).train()
    logits = model(input_ids=torch.from_numpy(ROWS[:, :-1]), use_cache=False).logits
    counted = torch.from_numpy(UNEVEN)
    loss = torch.nn.functional.cross_entropy(
        logits[counted], torch.from_numpy(ROWS[:, 1:])[counted]
    )
    loss.backward()
    return {"loss": loss.item()} | {
        f"model.{name}": it.grad.numpy() for name, it in model.named_parameters()
    }


@pytest.mark.parametrize(
    ("rows", "accumulation", "ranks"),
    [
        (8, 1, {}),
        (2, 4, {}),
        (1, 8, {}),
        (2, 2, {"dp": 2}),
        (1, 2, {"dp": 4}),
        (2, 4, {"pp": 2}),
        (4, 2, {"tp": 2}),
    ],
)
def test_a_batch_in_any_parts_has_the_loss_and_the_gradient_of_the_whole(
    runs, tmp_path, rows, accumulation, ranks
):
    """Each counted label weighs the same, whichever micro-batch and rank it falls to."""
    stages = [("one", 1, {"dataset_path": runs.paths[0]}, {})]
    options = {
        "steps": 1,
        "length": 8,
        "rows": rows,
        "accumulation": accumulation,
        "model": LLAMA,
    }
    tree = run_tree(tmp_path, stages, **options, **ranks)
    size = int(np.prod(list(ranks.values()), dtype=int))
    Ranks(
        size,
        write_gradients,
        (str(tmp_path), tree, ROWS.tolist(), UNEVEN.tolist()),
        tmp_path / "log",
    ).wait()
    whole, found = gradients_of_one_batch(), {}
    for rank in range(size):
        part = np.load(tmp_path / f"{rank}.npz")
        assert float(part["loss"]) == pytest.approx(whole["loss"], rel=1e-5)
        found |= dict(part)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-3, atol=1e-6, err_msg=name
        )


def test_a_batch_without_a_counted_label_has_no_loss_and_a_gradient_of_zero(
    runs, tmp_path
):
    tree = run_tree(
        tmp_path,
        [("one", 1, {"dataset_path": runs.paths[0]}, {})],
        steps=1,
        length=8,
        accumulation=4,
    )
    nothing = np.zeros((8, 8), bool).tolist()
    Ranks(
        1,
        write_gradients,
        (str(tmp_path), tree, ROWS.tolist(), nothing),
        tmp_path / "log",
    ).wait()
    found = dict(np.load(tmp_path / "0.npz"))
    assert "loss" not in found
    assert all((value == 0).all() for value in found.values())
