"""Move a batch to a device without a copy on the host."""

import torch

from nanoset_ref.load.collator import Batch


def to_device(
    batch: Batch, device: torch.device | str, *, non_blocking: bool = True
) -> Batch:
    """Move a batch to a device.

    input_ids and label_ids are views of S columns of a block [B, S + 1], so they are not
    contiguous, and moving them would cost a copy on the host first. Here the whole block is
    moved. Every other field is moved by itself.

    Args:
        batch: of DataCollatorForCLM, on any pipeline rank.
        device: where to.
        non_blocking: as in `Tensor.to`; works for pinned batches (pin_memory=True).
    """
    moved = {}
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor):
            moved[name] = value
            continue
        first = int(name == "label_ids")
        block = _underlying_block(value, first)
        if block is None:
            moved[name] = value.to(device, non_blocking=non_blocking)
        else:
            columns = slice(first, first + value.shape[1])
            moved[name] = block.to(device, non_blocking=non_blocking)[:, columns]
    return moved


def _underlying_block(view: torch.Tensor, shift: int) -> torch.Tensor | None:
    """The contiguous [B, S + 1] whose columns from `shift` on are `view`, or None."""
    if view.dim() != 2:
        return None
    rows, columns = view.shape
    width = columns + 1
    start = view.storage_offset() - shift
    end_byte = (start + rows * width) * view.element_size()
    is_inside = start >= 0 and end_byte <= view.untyped_storage().nbytes()
    if view.stride() != (width, 1) or not is_inside:
        return None
    return view.as_strided((rows, width), (width, 1), start)
