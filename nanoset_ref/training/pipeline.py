"""A causal LM of transformers spread over the processes of a run: cut by layers (pp), within layers (tp), sharded (dp).

1. Every process draws the whole model from the same seed, so all layouts begin with the same weights.
2. pp: a stage keeps its layers, under their own names; the first keeps the embedding, the last the norm and the head.
3. tp: each layer's projections are split by columns, then rows (`parallelize_module`): two all-reduces per layer.
4. dp: parameters, gradients and optimizer state are sharded by layer (FSDP2, `fully_shard`), also where dp is 1.

All of it runs on gloo between CPUs and on NCCL between GPUs. What it costs: step 1 needs the whole model in the memory
of each process, once. The alternative it rejects, DistributedDataParallel, regroups its gradient buckets after its
first step: from three ranks on, a resumed run adds the ranks' gradients up in another order than the uninterrupted one,
and the last bits differ. Nor could its parameters be cut by tp and saved as one sharded tensor for any number of ranks.

Sources: Zhao et al., PyTorch FSDP (2023); Shoeybi et al., Megatron-LM (2019) for the cut within a layer; Narayanan et
al., Efficient Large-Scale Language Model Training (2021) for the schedule, one forward, one backward.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from nanoset_ref.collator import to_device
from nanoset_ref.training.config import Config
from nanoset_ref.training.parallel import World
from nanoset_ref.training.strict_yaml import ConfigError

IGNORED = -100  # the label that cross_entropy leaves out


class Stage(nn.Module):
    """The layers of one pipeline stage: ids int [B, S] or hidden states [B, S, H] in, hidden states or logits out.

    Args:
        model: the whole causal LM; what the stage does not need is removed from it.
        pp_rank, pp_size: stage r of P keeps the layers from L*r//P up to L*(r+1)//P; a Llama, if P > 1.
    """

    def __init__(self, model: Any, pp_rank: int, pp_size: int) -> None:
        super().__init__()
        self.model = model
        self.is_whole = pp_size == 1
        self.is_first, self.is_last = pp_rank == 0, pp_rank == pp_size - 1
        if self.is_whole:
            return
        layers = model.model.layers._modules  # the names stay: layer 2 is called "2" on whatever stage it lies
        mine = range(len(layers) * pp_rank // pp_size, len(layers) * (pp_rank + 1) // pp_size)
        for name in [name for name in layers if int(name) not in mine]:
            del layers[name]
        if not self.is_first:
            model.model.embed_tokens = None
        if not self.is_last:
            model.model.norm, model.lm_head = nn.Identity(), None

    def forward(self, values: Tensor) -> Tensor:
        if self.is_whole:
            return self.model(input_ids=values, use_cache=False).logits
        inputs = {"input_ids": values} if self.is_first else {"inputs_embeds": values}
        hidden = self.model.model(**inputs, use_cache=False).last_hidden_state
        return self.model.lm_head(hidden) if self.is_last else hidden


class DistributedModel:
    """One process's part of the model, and a training step over its micro-batches.

    Args:
        config: of the run; general.seed decides the weights.
        world: the processes.

    Attributes:
        module: the part, an nn.Module of sharded parameters.

    Raises:
        ConfigError: a model that cannot be cut as parallelism.pp or parallelism.tp asks.
    """

    def __init__(self, config: Config, world: World) -> None:
        from transformers import AutoModelForCausalLM

        check_cut(config)
        self.world = world
        layout = world.layout
        torch.manual_seed(config.general.seed)
        model = AutoModelForCausalLM.from_config(config.model.transformers_config(), dtype=torch.float32).train()
        self.module = Stage(model, layout.pp_rank, layout.pp_size)
        if layout.tp_size > 1:
            for layer in model.model.layers:
                parallelize_module(layer, world.mesh["tp"], TENSOR_PARALLEL_PLAN)
        policy = MixedPrecisionPolicy(param_dtype=getattr(torch, config.model.dtype), reduce_dtype=torch.float32)
        for block in _blocks(model):
            fully_shard(block, mesh=world.mesh["dp"], mp_policy=policy)
        fully_shard(self.module, mesh=world.mesh["dp"], mp_policy=policy)
        self.micro_batches = config.tokens.batch_accumulation_per_replica
        self.schedule = None
        if layout.pp_size > 1:
            from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # a second of imports

            stage = PipelineStage(
                self.module, layout.pp_rank, layout.pp_size, world.device, group=world.mesh["pp"].get_group()
            )
            self.schedule = Schedule1F1B(stage, self.micro_batches, loss_fn=token_loss)

    def forward_backward(self, batches: list[dict[str, Any]]) -> Tensor:
        """Gradients of the mean loss over the global batch.

        Args:
            batches: the micro-batches of this rank, as the collator makes them: input_ids on the first pipeline stage,
                label_ids and label_mask on the last, pointers elsewhere.

        Returns:
            The mean loss over the global batch, a float32 scalar, the same in all processes.
        """
        layout = self.world.layout
        batches = [to_device(batch, self.world.device) for batch in batches]
        inputs = [batch["input_ids"] for batch in batches] if layout.feeds_input else []
        labels = [_labels(batch) for batch in batches] if layout.feeds_labels else []
        losses: list[Tensor] = []
        if self.schedule is not None:
            self.schedule.step(
                *([torch.cat(inputs)] if inputs else []), target=torch.cat(labels) if labels else None, losses=losses
            )
        else:
            sharded = cast(FSDPModule, self.module)  # as it is where there are no pipeline stages
            for number, (values, target) in enumerate(zip(inputs, labels, strict=True)):
                sharded.set_requires_gradient_sync(number == self.micro_batches - 1)
                loss = token_loss(self.module(values), target)
                (loss / self.micro_batches).backward()
                losses.append(loss)
        mean = torch.stack(losses).mean() if losses else torch.zeros((), device=self.world.device)
        return self.world.total(mean / (layout.dp_size * layout.tp_size))  # stages before the last add zero

    def clip_gradients(self, largest: float | None) -> Tensor:
        """Scale all gradients so that their common norm is at most `largest`.

        Returns:
            The norm before, a float32 scalar, the same in all processes.
        """
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        squares = torch.stack([_local(gradient).square().sum() * self._share(gradient) for gradient in gradients]).sum()
        norm = self.world.total(squares).sqrt()
        if largest is not None:
            factor = (largest / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                _local(gradient).mul_(factor)
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name; a tied weight has one name."""
        names = {name for name, _ in self.module.named_parameters()} | {name for name, _ in self.module.named_buffers()}
        return {name: tensor for name, tensor in self.module.state_dict().items() if name in names}

    def _share(self, gradient: Tensor) -> float:
        """The part of a gradient that this process counts: what tp does not split lies on all its ranks."""
        split = isinstance(gradient, DTensor) and "tp" in (gradient.device_mesh.mesh_dim_names or ())
        return 1.0 if split else 1.0 / self.world.layout.tp_size


def _labels(batch: dict[str, Any]) -> Tensor:
    return batch["label_ids"].long().masked_fill(~batch["label_mask"], IGNORED)


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy in float32; logits [B, S, V], labels int64 [B, S] with IGNORED where no loss is wanted."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _blocks(model: Any) -> list[nn.Module]:
    """The repeated layers of any causal LM: the children of its longest ModuleList."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])


TENSOR_PARALLEL_PLAN = {
    **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}


def check_cut(config: Config) -> None:
    """Refuse a model that cannot be cut: dp shards any causal LM, pp and tp know where to cut a Llama."""
    model, pp, tp = config.model.transformers_config(), config.parallelism.pp, config.parallelism.tp
    if pp * tp == 1:
        return
    if model.model_type != "llama":
        raise ConfigError(f'parallelism: pp and tp cut a model of model_type "llama" only, got {model.model_type!r}')
    if model.tie_word_embeddings and pp > 1:
        raise ConfigError("model.model_config.tie_word_embeddings: must be false with parallelism.pp above 1")
    if pp > model.num_hidden_layers:
        raise ConfigError(f"parallelism.pp: {pp} stages for {model.num_hidden_layers} layers; each needs one at least")
    if config.tokens.batch_accumulation_per_replica < pp:
        raise ConfigError(
            f"tokens.batch_accumulation_per_replica: must be at least parallelism.pp = {pp}, "
            f"got {config.tokens.batch_accumulation_per_replica}: as many micro-batches are under way at once"
        )
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if getattr(model, name) % tp:
            raise ConfigError(f"parallelism.tp: {tp} does not divide model.model_config.{name} {getattr(model, name)}")
