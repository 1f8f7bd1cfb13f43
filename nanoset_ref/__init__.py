"""nanoset_ref: how tokens reach the GPUs in LLM pre-training.

The main road, each step importing only what stands before it:

    text, tokenise, preprocess            text to a token file
    tokens                                the token file and its manifest
    orders                                position k -> (dataset, sample)
    nanoset, gather                       sample k -> sequence_length + 1 token ids
    samplers, collator, dataloader        which rank reads what, and what it gets of it
    training, train                       data stages, checkpoints, exact resume

Side roads: `megatron` (.bin/.idx and its three indexes), `streaming` (tokenised on the fly), `chunks` (corpus
preparation), `datatrove` (.ds folders).
Looking back: `provenance` (where, when, audit, continuation), `formats`, and the command `nanoset-ref` (`cli`).
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "DataCollatorForCLM": "collator",
    "Nanoset": "nanoset",
    "NanosetDataLoader": "dataloader",
    "NanotronOrder": "orders",
    "ResumableBatchSampler": "samplers",
    "Schedule": "schedule",
    "SkipBatchSampler": "samplers",
    "StatelessOrder": "orders",
    "TensorPointer": "collator",
    "TokenFile": "tokens",
    "TokenFileWriter": "tokens",
    "build_nanoset_dataloader": "dataloader",
    "prepare_corpus": "corpus",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: a process that only tokenises never loads torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
