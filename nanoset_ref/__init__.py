"""nanoset_ref: how tokens reach the GPUs in LLM pre-training.

A run is a sequence of positions: an order names the sample at each, rows read it, a schedule says who reads it when, a
collator dresses it. `nanoset_ref.plain` says all of it on one page, slowly; the rest is the same, fast and safe:

    text, tokenise, preprocess            text to a token file
    tokens                                token ids on disk
    orders                                position k -> (dataset, sample)
    rows, gather, nanoset, best_fit       sample -> sequence_length + 1 token ids
    schedule, samplers                    which rank reads which position, and when
    collator, dataloader, blocks          batches, on a plain road and a fast one

Annexes, each importable alone: `megatron` (.bin/.idx and its three indexes), `streaming` (tokenised on the fly),
`chunks` (corpus preparation), `formats` (every file of ids, datatrove's .ds among them), `training` (stages,
checkpoints, exact resume), `provenance` (where, when, audit) and the command `nanoset-ref` (`cli`).

The public names stand in `__init__.pyi` and are imported when they are asked for: a process that only tokenises never
loads torch.
"""

import re
import sys

if sys.argv and (
    sys.argv[0].rpartition("/")[2] == "nanoset-ref"
    or (sys.argv[0] == "-m" and re.search(r" -m ?nanoset_ref(\.| |$)", " ".join(sys.orig_argv)))  # being looked for
):
    # a command of this package, no trainer that imports it, starts and imports for seconds
    from nanoset_ref.launcher import begin_command

    begin_command()

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
