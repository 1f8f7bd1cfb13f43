"""The Megatron-style pipeline: samples cut from the shuffled documents of .bin/.idx corpora.

They are bit for bit equal to Megatron-Core's samples. The public names are listed in `__init__.pyi`
and imported on first use, so that preprocessing never loads torch.

nanoset_config     the configuration
builder            datasets from a configuration
megatron_rows      rows joined from pieces of documents
dataset, blended   samples of one corpus, and blends of corpora
index              the document, sample and shuffle index, and the command that builds them
megatron_collator  batches of Megatron-LM's training loop
pairs              .bin/.idx pairs, defined in `nanoset_ref.tokens`
preprocess         text to a pair, with Megatron-LM's flags
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
