"""The plan of a dataset with its collator, and a check that padding is masked."""

import contextlib
import operator
from typing import Any

import numpy as np

from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.load.rows import Rows
from nanoset_ref.orders.plans import Plan

MAX_CHECKED = 64  # files that are looked at for an id, and documents in each


def plan_with_masks(dataset: Rows, collate_fn: Any) -> Plan:
    """The plan of a dataset, with a collator's masks.

    Masks depend on the document boundaries of the files (and their checksums) or on the id that
    ends documents, and on the id that is taken for padding. A function as collator adds nothing.
    """
    plan = dataset.plan
    if not hasattr(collate_fn, "needs_starts"):
        return plan
    options = getattr(collate_fn, "documents", None)
    is_masked = getattr(collate_fn, "use_doc_masking", True)
    if not is_masked or not isinstance(options, DocumentOptions):
        options = None
    plan["rows"]["within_documents"] = options.within_documents if options else []
    # a collator of the user's may have something else of this name
    with contextlib.suppress(AttributeError, TypeError):
        plan["rows"]["masked_as_padding"] = operator.index(collate_fn.pad_id)
    if collate_fn.needs_starts:
        end = getattr(dataset, "eos_token_id", None)  # of a DatatroveNanoset
        if end is None:
            end = "boundaries of the files"
            for entry, file in zip(plan["files"], dataset.files, strict=True):
                entry["documents"] = file.documents_checksum
        plan["rows"]["documents_end_with"] = end
    elif options and options.field_names:
        plan["rows"]["documents_end_with"] = options.eos_token_id
    return plan


def require_masked_padding(dataset: Any, collate_fn: Any) -> None:
    """Raise ValueError if the loss would count padding, or leave out tokens that are not padding.

    Args:
        dataset: `Rows` that are padded.
        collate_fn: a Collator, or any function; a function is trusted.
    """
    masked = getattr(collate_fn, "pad_id", None)
    if not getattr(collate_fn, "masks_padding", True):
        problem = "does not mask the padding in which these rows end"
    elif masked not in (None, dataset.pad_id):
        problem = (
            f"masks the pad_id {masked}, but these rows end in the pad_id {dataset.pad_id}: use "
            "that one"
        )
    elif masked is not None and _is_in_documents(dataset, masked):
        raise ValueError(
            f"{type(collate_fn).__name__} takes every token {masked} for padding, but documents of "
            "these rows begin or end with it: pad with an id that no document holds; or leave "
            "collate_fn out, or use DataCollatorForCLM with DocumentOptions(eod_mask_loss=True)"
        )
    else:
        return
    raise ValueError(
        f"the loss would count padding: {type(collate_fn).__name__} {problem}; leave collate_fn "
        "out, or use DataCollatorForCLM with DocumentOptions(eod_mask_loss=True)"
    )


def _is_in_documents(dataset: Any, pad_id: int) -> bool:
    """Whether documents begin or end with an id, by the facts of a file or by its ids.

    Megatron's own datasets are not checked: upstream, too, treats an EOD as padding.
    """
    if any(file.facts.get("eos_token_id") == pad_id for file in dataset.files):
        return True
    if not isinstance(dataset, Nanoset):
        return False
    for file in dataset.files[:MAX_CHECKED]:
        offsets = file.require_document_offsets()[:MAX_CHECKED]
        indices = np.append(offsets, offsets - 1)
        indices = indices[(indices >= 0) & (indices < file.num_tokens)]
        if np.any(file.tokens[indices] == pad_id):
            return True
    return False
