from itertools import chain, islice, repeat

import torch
from trainer_helpers import DATASET, FOLDER, Tiny, recipe, report, weight

exec(recipe("accelerate"), globals())


def fit(steps, start=None):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Tiny()
    seen = model.seen
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    wrapped, optimizer, loader = prepare(accelerator, model, optimizer, DATASET, 2)
    if start is not None:
        accelerator.load_state(start)
    for batch in islice(chain.from_iterable(repeat(loader)), 2 * steps):
        with accelerator.accumulate(wrapped):
            accelerator.backward(wrapped(batch["input_ids"], batch["label_ids"]))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.save_state(FOLDER / f"after {steps}")
    return seen, weight(model)


report(fit(9), fit(3), fit(6, FOLDER / "after 3"))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # its threads must not outlive the interpreter
