"""A causal LM of transformers spread over the processes of a run: cut by layers (pp), within layers (tp), sharded (dp).

1. Every process draws the whole model from the same seed, so all layouts begin with the same weights.
2. pp: a stage keeps its layers, under their own names; the first keeps the embedding, the last the norm and the head.
3. tp: each layer's projections are split by columns, then rows (`parallelize_module`): two all-reduces per layer.
4. dp: parameters, gradients and optimizer state are sharded by layer (FSDP2, `fully_shard`), also where dp is 1.

All of it runs on gloo between CPUs and on NCCL between GPUs. What it costs: step 1 needs the whole model in the memory
of each process, once. DistributedDataParallel was tried instead: it regroups its gradient buckets after its first step,
so from three ranks on a resumed run adds gradients up in another order, and the last bits differ.

Sources: Zhao et al., PyTorch FSDP (2023); Shoeybi et al., Megatron-LM (2019) for the cut within a layer; Narayanan et
al., Efficient Large-Scale Language Model Training (2021) for the schedule, one forward, one backward.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from nanoset_ref.io.extras import extra
from nanoset_ref.load.collator import Batch, to_device
from nanoset_ref.train.config import Config, transformers_config
from nanoset_ref.train.parallel import World
from nanoset_ref.train.strict_yaml import ConfigError, one_line

IGNORED = -100  # the label that cross_entropy leaves out
NO_LABELS = 1.0  # what the sum over no labels, 0, is divided by
COLUMNS = "self_attn.q_proj self_attn.k_proj self_attn.v_proj mlp.gate_proj mlp.up_proj".split()
ROWS = "self_attn.o_proj mlp.down_proj".split()


class PipelineStage(nn.Module):
    """The layers of one pipeline rank: ids int [B, S] or hidden states [B, S, H] in, hidden states or logits out.

    Args:
        model: a whole causal LM (a Llama, if P > 1); what the rank does not need is removed from it.
        pp_rank, pp_size: rank r of P keeps the layers from L*r//P up to L*(r+1)//P.
    """

    def __init__(self, model: Any, pp_rank: int, pp_size: int) -> None:
        super().__init__()
        self.model = model
        self.is_whole = pp_size == 1
        self.is_first, self.is_last = pp_rank == 0, pp_rank == pp_size - 1
        if self.is_whole:
            return
        layers = model.model.layers
        kept = range(len(layers) * pp_rank // pp_size, len(layers) * (pp_rank + 1) // pp_size)
        for number in set(range(len(layers))) - set(kept):
            delattr(
                layers, str(number)
            )  # the names stay: layer 2 is called "2" on whatever rank it lies
        if not self.is_first:
            model.model.embed_tokens = None
        if not self.is_last:
            model.model.norm, model.lm_head = nn.Identity(), None

    def forward(self, values: Tensor) -> Tensor:
        if self.is_whole:
            return self.model(input_ids=values, use_cache=False).logits
        name = "input_ids" if self.is_first else "inputs_embeds"
        hidden = self.model.model(**{name: values}, use_cache=False).last_hidden_state
        return self.model.lm_head(hidden) if self.is_last else hidden


class DistributedModel:
    """One process's part of the model, and a training step over its micro-batches.

    Args:
        config: of the run; general.seed decides the weights.
        world: the processes.

    Attributes:
        module: the part, an nn.Module of sharded parameters.

    Raises:
        ConfigError: a model that cannot be built.
    """

    def __init__(self, config: Config, world: World) -> None:
        self.world, self.micro_batches = world, config.tokens.batch_accumulation_per_replica
        self.divisor = NO_LABELS
        layout, mesh = world.layout, world.mesh
        model = _build(config)
        self.module: Any = PipelineStage(model, layout.pp_rank, layout.pp_size)
        if layout.tp_size > 1:
            plan: Any = {name: ColwiseParallel() for name in COLUMNS} | {
                name: RowwiseParallel() for name in ROWS
            }
            for layer in model.model.layers:
                parallelize_module(layer, mesh["tp"], plan)
        policy = MixedPrecisionPolicy(
            param_dtype=getattr(torch, config.model.dtype), reduce_dtype=torch.float32
        )
        lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
        for part in (
            *max(lists, key=len, default=[]),
            self.module,
        ):  # the longest holds the repeated layers
            fully_shard(part, mesh=mesh["dp"], mp_policy=policy)
        self.schedule = None
        if layout.pp_size > 1:
            from torch.distributed import pipelining  # a second of imports

            group = mesh["pp"].get_group()
            stage = pipelining.PipelineStage(
                self.module, layout.pp_rank, layout.pp_size, world.device, group=group
            )
            self.schedule = pipelining.Schedule1F1B(
                stage, self.micro_batches, loss_fn=self._share_of_loss, scale_grads=False
            )

    def forward_backward(self, batches: list[Batch]) -> float | None:
        """Gradients of the loss of the global batch, the mean over all labels that count in it.

        1. all processes learn how many labels count, as the mean of the data-parallel ranks
        2. the loss of a micro-batch is the sum over its labels, divided by that mean
        3. the gradients of the micro-batches are added up; `fully_shard` takes their mean over the
           data-parallel ranks: mean of sums / mean of counts = sum over the batch / its count

        Args:
            batches: the micro-batches of this rank, as the collator makes them: input_ids on the first pipeline rank,
                label_ids and label_mask on the last, pointers elsewhere.

        Returns:
            The loss of the global batch, the same in all processes. None if none of its labels
            counts; then all gradients are zero.
        """
        batches = [to_device(batch, self.world.device) for batch in batches]
        inputs = [batch["input_ids"] for batch in batches] if self.module.is_first else []
        labels: list[Tensor] = []
        if self.module.is_last:
            labels = [
                batch["label_ids"].long().masked_fill(~batch["label_mask"], IGNORED)
                for batch in batches
            ]
        # 1.
        counted = sum(int((target != IGNORED).sum()) for target in labels)
        here = torch.tensor(counted, dtype=torch.float64, device=self.world.device)
        per_rank = self.world.over_stages(here)
        self.divisor = per_rank if per_rank > 0 else NO_LABELS
        # 2. and 3.
        losses: list[Tensor] = []
        if self.schedule is not None:
            whole = [torch.cat(inputs)] if inputs else []
            self.schedule.step(*whole, target=torch.cat(labels) if labels else None, losses=losses)
        else:
            for number, (values, target) in enumerate(zip(inputs, labels, strict=True), start=1):
                self.module.set_requires_gradient_sync(number == self.micro_batches)
                losses.append(self._share_of_loss(self.module(values), target))
                losses[-1].backward()
        share = torch.stack(losses).sum() if losses else torch.zeros((), device=self.world.device)
        loss = self.world.over_stages(share)  # stages before the last add zero
        return loss if per_rank > 0 else None

    def _share_of_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Of a micro-batch; the schedule of the pipeline calls it, too."""
        return token_losses(logits, labels) / self.divisor

    def clip_gradients(self, largest: float | None) -> float:
        """Scale all gradients so that their common norm is at most `largest`.

        Returns:
            The norm before, the same in all processes.
        """
        gradients: list[Any] = [
            parameter.grad for parameter in self.module.parameters() if parameter.grad is not None
        ]
        squares = torch.stack(
            [gradient.square().sum().full_tensor() for gradient in gradients]
        ).sum()
        norm = math.sqrt(self.world.over_stages(squares))  # all ranks of a stage know its sum
        if largest is not None and norm > largest:
            for gradient in gradients:
                gradient.mul_(largest / norm)
        return norm


def _build(config: Config) -> Any:
    with extra("train", "a model"):
        from transformers import AutoModelForCausalLM

    torch.manual_seed(config.general.seed)
    try:
        return AutoModelForCausalLM.from_config(
            transformers_config(config.model.fields), dtype=torch.float32
        ).train()
    except Exception as error:  # each model has errors of its own
        raise ConfigError(
            f"model.model_config: no model can be built from it: {one_line(error)}"
        ) from error


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Summed cross entropy, float32 [].

    Args:
        logits: floats [B, S, V].
        labels: int64 [B, S], IGNORED where no loss is wanted.
    """
    flat = logits.flatten(0, 1).float()
    return nn.functional.cross_entropy(
        flat, labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
