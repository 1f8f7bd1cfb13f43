"""nanoset_ref: how tokens reach the GPUs in LLM pre-training.

A run is a sequence of positions: an order names the sample at each, rows read it, a schedule
assigns it to a rank and a step, a collator turns it into model inputs. `nanoset_ref.plain` does all
of it on one page, slowly; the rest does it fast:

    io            files that are complete or absent, alone and in sets; locks; buckets; caches
    tokens        files of token ids in every format: open, write, verify, describe, convert
    preprocess    text -> token files                         (python -m nanoset_ref.preprocess)
    orders        position k -> (source, sample), and back; plans
    load          rows, samplers, collators, the data loader
    megatron      Megatron's three indexes, blends, datasets and batches
    streaming     datasets that tokenize while the model trains
    chunks        corpus preparation                          (python -m nanoset_ref.chunks)
    train         data stages, checkpoints, a training run    (python -m nanoset_ref.train)
    provenance    where, when, audit; cards of runs
    laws          tests for any data loader                   (nanoset-ref laws)
    cli           the command nanoset-ref; how commands are made

Three interfaces hold them together; the rest implements or uses these:

    tokens.interface.Tokens    a file: its ids, document boundaries and facts
    orders.base.Order          position -> (source, sample)
    load.rows.Rows             position -> sequence_length + 1 ids, and where they come from

Each package imports only those above it, except that `cli.arguments`, `cli.command` and
`cli.startup` make every command. The public names are listed in `__init__.pyi` and imported when
they are used: a process that only tokenizes never loads torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
