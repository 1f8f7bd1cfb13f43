"""Token files: raw little-endian token ids, and a manifest that describes them.

    <stem>.npy             the ids back to back, no header (the format Nanotron writes and reads)
    <stem>.json            the manifest: dtype, counts, tokenizer, EOS id, checksum
    <stem>.documents.npy   int64 [num_documents + 1], the token offset of each document, and the end
    <stem>.sources.npz     only for a file converted from chunks: each row's label

Opening a file reads its size, its version and its first bytes, and refuses a NumPy header. Ids are
read later, through the page cache. For a file without a manifest the caller gives the dtype.

All formats implement one interface, `Tokens`: .npy, .bin/.idx (Megatron), .ds (datatrove) and the
shards of llm.c.

interface                `Tokens`: ids, document boundaries, number and stride of samples, facts
opening, other_formats   `open_tokens`: the right reader for a path; many files at once
npy, npy_writer          the format above: read and write
token_dtype              uint16 or int32, from the size of the vocabulary
manifest, companions     the files next to the ids
bin_idx, bin_idx_writer  Megatron's pairs
ds, llm_c_shard          files of datatrove and of llm.c
vocabularies             a warning where files of one blend have different ones
document_blocks          the documents of a file in blocks; which are padding; a hash of them
conversion               from any format to any other
statistics               of a file's documents
verification             compare a file with its checksums and facts; seals: checksums of other
                         tools' files
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
