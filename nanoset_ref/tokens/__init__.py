"""Token files: raw little-endian token ids, and a manifest that describes them.

    <stem>.npy             the ids back to back, no header (the format Nanotron writes and reads)
    <stem>.json            the manifest: dtype, counts, tokenizer, EOS id, checksum
    <stem>.documents.npy   int64 [num_documents + 1], token offsets at which documents begin, and the end
    <stem>.sources.npz     in a file made of chunks: each row's label

A reader costs three system calls and no memory: the ids stay in the page cache. A file without a
manifest is readable too, with the dtype given by the caller.

The formats are siblings behind one interface, `Tokens`: .npy, .bin/.idx (Megatron) and .ds
(datatrove).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
