"""The loss of a global batch: the mean over its counted labels, in all micro-batches of all ranks.

1. The data-parallel ranks agree on the number of counted labels: its mean over the ranks.
2. The loss of a micro-batch is the sum over its labels, divided by that mean.
3. The gradients of a rank's micro-batches are added, and `fully_shard` averages them over the
   ranks: mean of sums / mean of counts = sum over the batch / its count.

`DistributedModel.forward_backward` does it.
"""

from torch import Tensor, nn

from nanoset_ref.load.collator import Batch

IGNORED = -100  # the label that cross_entropy ignores


def counted_labels(batch: Batch) -> Tensor:
    """The labels of a micro-batch, int64 [B, S], IGNORED where the mask is False."""
    return batch["label_ids"].long().masked_fill(~batch["label_mask"], IGNORED)


def sum_of_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of the losses of one micro-batch over its counted labels, float32 [].

    Args:
        logits: floats [B, S, V].
        labels: int64 [B, S]; IGNORED where there is no loss.
    """
    flat = logits.flatten(0, 1).float()
    return nn.functional.cross_entropy(
        flat, labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
