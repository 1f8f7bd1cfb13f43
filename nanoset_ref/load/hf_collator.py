"""The collator for models that shift the labels themselves."""

from collections.abc import Iterable

from nanoset_ref.io.checks import whole_number
from nanoset_ref.load.collator import Batch, Collator, RowBlock, outside_inference_mode


class DataCollatorWithLabels(Collator):
    """Collate samples for models that shift the labels themselves, as those of transformers do.

    Args:
        sequence_length: S, in tokens.

    Returns a dict of `input_ids` and `labels`, equal int64 [B, S + 1]; the model predicts S of the
    S + 1 tokens.

    Raises:
        ValueError: sequence_length is below 1; see also `Collator`.
    """

    masks_padding = False

    def __init__(self, sequence_length: int) -> None:
        self.row_length = whole_number(sequence_length, "sequence_length", 1) + 1

    def split(self, block: RowBlock) -> Iterable[Batch]:
        """See `Collator.split`."""
        ids = block.rows.long()
        with outside_inference_mode():
            inputs = block.copy_tensor(ids).unsafe_split(block.batch_size)
            labels = block.copy_tensor(ids).unsafe_split(block.batch_size)
        for input_ids, label_ids in zip(inputs, labels, strict=True):
            yield {"input_ids": input_ids, "labels": label_ids}
