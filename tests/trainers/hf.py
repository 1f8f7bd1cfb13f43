import torch
from trainer_helpers import DATASET, FOLDER, recipe, report, weight
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments, set_seed

exec(recipe("HF Trainer"), globals())


class Model(LlamaForCausalLM):
    def forward(self, input_ids=None, labels=None, **rest):
        self.seen.append(input_ids[:, 0].tolist())
        return super().forward(input_ids=input_ids, labels=labels, **rest)


def fit(steps, checkpoint=None, rows=2):
    set_seed(0)
    model = Model(
        LlamaConfig(
            vocab_size=1 << 15,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
        )
    )
    model.seen = []
    arguments = TrainingArguments(
        str(FOLDER / f"out {steps}"), max_steps=steps, per_device_train_batch_size=rows, gradient_accumulation_steps=2,
        ignore_data_skip=True, save_steps=3, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no",
        lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = NanosetTrainer(
        model, arguments, train_dataset=DATASET, callbacks=[ContinueExactly()]
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    return model.seen, weight(model)


CHECKPOINT = str(FOLDER / "out 3" / "checkpoint-3")
report(fit(15), fit(3), fit(15, CHECKPOINT), resized=fit(7, CHECKPOINT, rows=1))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # its threads must not outlive the interpreter
