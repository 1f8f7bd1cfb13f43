"""A causal LM of transformers, split over the processes of a run.

1. Every process initializes the whole model from the same seed, so all layouts begin with the same
   weights.
2. pp: a stage keeps its layers under their original names. The first stage also keeps the
   embedding, the last stage the norm and the head.
3. tp: each layer's projections are split by columns, then rows (`parallelize_module`): two
   all-reduces per layer.
4. dp: parameters, gradients and optimizer state are sharded by layer (FSDP2, `fully_shard`), even
   if dp is 1.

Communication uses gloo between CPUs and NCCL between GPUs. Step 1 needs memory for the whole model
in each process, once. DistributedDataParallel is not a substitute: it regroups its gradient buckets
after its first step, so with three or more ranks a resumed run sums gradients in another order, and
the last bits differ.

Sources: Zhao et al., PyTorch FSDP (2023); Shoeybi et al., Megatron-LM (2019) for the split within a
layer; Narayanan et al., Efficient Large-Scale Language Model Training (2021) for the schedule (one
forward, one backward).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from nanoset_ref.io.error_text import shorten
from nanoset_ref.io.extras import extra
from nanoset_ref.load.collator import Batch
from nanoset_ref.load.device import to_device
from nanoset_ref.train.config import Config, transformers_config
from nanoset_ref.train.parallel import World
from nanoset_ref.train.strict_yaml import ConfigError

IGNORED = -100  # the label that cross_entropy ignores
# the projections of a layer that are split by columns, and those by rows
SPLIT_BY_COLUMNS = """
self_attn.q_proj self_attn.k_proj self_attn.v_proj mlp.gate_proj mlp.up_proj
""".split()
SPLIT_BY_ROWS = "self_attn.o_proj", "mlp.down_proj"


class ModelPart(nn.Module):
    """The part of a causal LM that one pipeline rank computes: its layers.

    The input is ids int [B, S] or hidden states [B, S, H], the output hidden states or logits.

    Args:
        model: a whole causal LM (a Llama, if P > 1); modules of other ranks are removed from it.
        pp_rank, pp_size: rank r of P keeps the layers from L*r//P up to L*(r+1)//P.
    """

    def __init__(self, model: Any, pp_rank: int, pp_size: int) -> None:
        super().__init__()
        self.model = model
        self.is_whole = pp_size == 1
        self.is_first = pp_rank == 0
        self.is_last = pp_rank == pp_size - 1
        if self.is_whole:
            return
        layers = model.model.layers
        total = len(layers)
        first = total * pp_rank // pp_size
        stop = total * (pp_rank + 1) // pp_size
        for number in range(total):
            if not first <= number < stop:
                delattr(layers, str(number))  # names stay: layer 2 is "2" on every rank
        if not self.is_first:
            model.model.embed_tokens = None
        if not self.is_last:
            model.model.norm = nn.Identity()
            model.lm_head = None

    def forward(self, values: Tensor) -> Tensor:
        """Ids or hidden states [B, S, ...] to hidden states, or to logits on the last rank."""
        if self.is_whole:
            return self.model(input_ids=values, use_cache=False).logits
        name = "input_ids" if self.is_first else "inputs_embeds"
        inputs = {name: values}
        hidden = self.model.model(**inputs, use_cache=False).last_hidden_state
        if self.is_last:
            return self.model.lm_head(hidden)
        return hidden


class DistributedModel:
    """One process's part of the model, with its forward and backward passes.

    Args:
        config: the run's configuration; general.seed determines the weights.
        world: the processes.

    Attributes:
        module: this process's part, an nn.Module of sharded parameters.

    Raises:
        ConfigError: transformers cannot build the model.
    """

    def __init__(self, config: Config, world: World) -> None:
        self.world = world
        self.micro_batches = config.tokens.batch_accumulation_per_replica
        self.labels_per_rank = 1.0
        layout = world.layout
        model = _build(config)
        self.module: Any = ModelPart(model, layout.pp_rank, layout.pp_size)
        if layout.tp_size > 1:
            _split_layers(model, world)
        _shard(self.module, getattr(torch, config.model.dtype), world)
        self.schedule = None
        if layout.pp_size > 1:
            # imported here: the import takes a second
            from torch.distributed import pipelining

            group = world.mesh["pp"].get_group()
            stage = pipelining.PipelineStage(
                self.module, layout.pp_rank, layout.pp_size, world.device, group=group
            )
            self.schedule = pipelining.Schedule1F1B(
                stage, self.micro_batches, loss_fn=self._loss, scale_grads=False
            )

    def forward_backward(self, batches: list[Batch]) -> float | None:
        """Compute the gradients, and the mean loss over the counted labels of the global batch.

        1. The data-parallel ranks agree on the number of counted labels: its mean over the ranks.
        2. The loss of a micro-batch is the sum over its labels, divided by that mean.
        3. The gradients of a rank's micro-batches are added, and `fully_shard` averages them over
           the ranks: mean of sums / mean of counts = sum over the batch / its count.

        Args:
            batches: this rank's micro-batches from the collator: input_ids on the first pipeline
                rank, label_ids and label_mask on the last, pointers elsewhere.

        Returns:
            The loss of the global batch, the same in all processes. None if no label of the batch
            is counted; then all gradients are zero.
        """
        batches = [to_device(batch, self.world.device) for batch in batches]
        inputs = []
        labels = []
        if self.module.is_first:
            inputs = [batch["input_ids"] for batch in batches]
        if self.module.is_last:
            for batch in batches:
                batch_labels = batch["label_ids"].long()
                labels.append(batch_labels.masked_fill(~batch["label_mask"], IGNORED))
        # 1. count the labels
        counted = sum(int((target != IGNORED).sum()) for target in labels)
        here = torch.tensor(counted, dtype=torch.float64, device=self.world.device)
        per_rank = self.world.sum_over_stages(here)
        self.labels_per_rank = per_rank or 1.0  # without labels, the sum is 0
        # 2. and 3. compute the losses and the gradients
        losses = []
        if self.schedule is None:
            losses = self._accumulate(inputs, labels)
        else:
            whole = [torch.cat(inputs)] if inputs else []
            target = torch.cat(labels) if labels else None
            self.schedule.step(*whole, target=target, losses=losses)
        share = torch.zeros((), device=self.world.device)
        if losses:
            share = torch.stack(losses).sum()
        loss = self.world.sum_over_stages(share)  # stages before the last add zero
        return loss if per_rank else None

    def _accumulate(self, inputs: list[Tensor], labels: list[Tensor]) -> list[Tensor]:
        """Sum the gradients of the micro-batches and synchronize them; return the losses."""
        losses = []
        for number, values in enumerate(inputs):
            is_last = number + 1 == self.micro_batches
            self.module.set_requires_gradient_sync(is_last)
            target = labels[number]
            loss = self._loss(self.module(values), target)
            losses.append(loss)
            loss.backward()
        return losses

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Step 2 for the logits [B, S, V] and labels int64 [B, S] of a micro-batch: float32 []."""
        flat = logits.flatten(0, 1).float()
        total = nn.functional.cross_entropy(
            flat, labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total / self.labels_per_rank

    def clip_gradients(self, max_norm: float | None) -> float:
        """Scale all gradients so that their common norm is at most `max_norm`.

        Returns:
            The norm before scaling, the same in all processes.
        """
        gradients = []
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                gradients.append(parameter.grad)
        squares = [gradient.square().sum().full_tensor() for gradient in gradients]
        total = torch.stack(squares).sum()
        norm = math.sqrt(self.world.sum_over_stages(total))
        if max_norm is not None and norm > max_norm:
            for gradient in gradients:
                gradient.mul_(max_norm / norm)
        return norm


def _build(config: Config) -> Any:
    """A whole model of transformers in float32, with weights from the seed."""
    with extra("train", "a model"):
        from transformers import AutoModelForCausalLM

    torch.manual_seed(config.general.seed)
    fields = transformers_config(config.model.fields)
    try:
        return AutoModelForCausalLM.from_config(fields, dtype=torch.float32).train()
    except Exception as error:  # each model raises other errors
        raise ConfigError(
            f"model.model_config: transformers cannot build a model from it: {shorten(error)}"
        ) from error


def _split_layers(model: Any, world: World) -> None:
    """Split the projections of each layer over the tensor-parallel ranks."""
    plan: dict[str, Any] = {}
    for name in SPLIT_BY_COLUMNS:
        plan[name] = ColwiseParallel()
    for name in SPLIT_BY_ROWS:
        plan[name] = RowwiseParallel()
    for layer in model.model.layers:
        parallelize_module(layer, world.mesh["tp"], plan)


def _shard(module: nn.Module, dtype: torch.dtype, world: World) -> None:
    """Shard each repeated layer, and then the rest, over the data-parallel ranks."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    lists = [list(part) for part in module.modules() if isinstance(part, nn.ModuleList)]
    layers = max(lists, key=len, default=[])  # the longest list has the repeated layers
    for part in (*layers, module):
        fully_shard(part, mesh=world.mesh["dp"], mp_policy=policy)
