"""From token files to batches: rows, which rank reads them when, and the loader of one rank.

rows                       the interface: position -> sequence_length + 1 token ids
nanoset, best_fit          rows of token files: cut into samples, or packed with whole documents
weighted_paths             paths and weights in one value
nanotron_folders           folders of .ds files as Nanotron reads them
gather, gather_kernel      read many rows through the page cache
mapped_files               mappings of the files, for `gather_kernel`
direct_gather              read many rows past the page cache
direct_kernel              its kernel
bucket_gather              read many rows from a bucket
joined_rows                rows joined from several pieces of files
schedule                   which rank reads which position, and in which step
resumable_sampler          the batches of one rank, from any position; how an epoch ends
skip_sampler               Nanotron's sampler, for code that wraps samplers
document_spans             which documents and samples lie in a range of tokens
document_masks             where documents begin in a row: positions and masks
collator_plan              a loader's plan: its rows and masks; a check that padding is masked
collator, hf_collator      model inputs
context_parallel_collator  Nanotron's: positions within documents, columns of a rank
blocks, prefetch           many batches at a time, ahead of time
shared_buffers             memory that workers fill, and copies of it
dataloader                 batches, with exact resume
worker_init, device        how workers begin; batches moved to a GPU
notebook_tables            a dataset and a loader as tables, for notebooks
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
