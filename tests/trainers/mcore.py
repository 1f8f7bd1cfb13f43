import signal
from itertools import islice

import pytest
import torch
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.transformer import TransformerConfig
from trainer_helpers import DATASET, FOLDER, Tiny, recipe, report, weight

from nanoset_ref import Nanoset

exec(recipe("Megatron-Core"), globals())
zeros = torch.zeros
# one line of the schedule names "cuda"
schedules.torch.zeros = lambda *size, device=None, **rest: zeros(*size, **rest)


def forward_step(batches, model):
    batch = next(batches)
    return model(batch["input_ids"], batch["label_ids"]), lambda loss: (
        loss,
        {"loss": loss.detach()},
    )


def fit(steps, start=None):
    model = Tiny()
    model.config, model.model_type = (
        TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1),
        None,
    )
    model.set_input_tensor = lambda tensor: None
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if start is not None:
        model.load_state_dict(start["model"])
    consumed = start["consumed_train_samples"] if start else 0
    batches = train_iterator(DATASET, 2, consumed)
    for _ in range(steps):
        get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=batches, model=model, num_microbatches=2, seq_length=16,
            micro_batch_size=2,
        )  # fmt: skip
        for parameter in model.parameters():
            torch.distributed.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    saved = {
        "model": model.state_dict(),
        "consumed_train_samples": consumed + steps * 2 * 2 * 2,
    }
    return (model.seen, weight(model)), saved


torch.distributed.init_process_group("gloo")
parallel_state.initialize_model_parallel()
first, saved = fit(3)
report(fit(9)[0], first, fit(6, saved)[0])
odd = Nanoset.from_config(
    str(FOLDER / "a_input_ids.npy"), sequence_length=16, train_split_num_samples=103
)
whole = [batch["input_ids"] for batch in islice(train_iterator(odd, 2), 70)]
rest = [batch["input_ids"] for batch in islice(train_iterator(odd, 2, 4 * 55), 15)]
# epochs of 25 batches, which leave out 3 samples
assert torch.equal(torch.stack(whole[55:]), torch.stack(rest))
signal.alarm(600)  # an iterator that never yields
with pytest.raises(ValueError, match="100 samples"):
    next(train_iterator(DATASET, 51))
signal.alarm(0)
torch.distributed.destroy_process_group()
