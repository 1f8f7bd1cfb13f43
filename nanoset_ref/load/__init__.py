"""From token files to batches: rows, who reads them when, and the loader of one rank.

rows, nanoset, best_fit           sample -> sequence_length + 1 token ids
gather, bucket_gather, direct     what copies them out of the files
schedule, samplers, skip_sampler  which rank reads which position, and when
documents, collator               model inputs, with positions and masks of documents
blocks, prefetch, dataloader      batches, ahead of time, with exact resume
datatrove                         folders of .ds files as Nanotron reads them
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
