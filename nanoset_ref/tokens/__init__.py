"""Token files: raw little-endian token ids, and a manifest that says what they are.

    <stem>.npy             the ids back to back, no header (the format Nanotron writes and reads)
    <stem>.json            the manifest: dtype, counts, tokenizer, EOS id, checksum
    <stem>.documents.npy   int64 [num_documents + 1], the offset in tokens at which each document begins, and the end
    <stem>.sources.npz     of a file made of chunks: each row's label

A reader costs three system calls and no memory: the ids stay in the page cache. A file without a manifest is readable
too, with the dtype given by the caller.
"""

from nanoset_ref.tokens.manifest import DOCUMENTS as DOCUMENTS
from nanoset_ref.tokens.manifest import MANIFEST as MANIFEST
from nanoset_ref.tokens.manifest import Manifest as Manifest
from nanoset_ref.tokens.manifest import TokenFileError as TokenFileError
from nanoset_ref.tokens.manifest import Windows as Windows
from nanoset_ref.tokens.manifest import token_dtype_for as token_dtype_for
from nanoset_ref.tokens.reader import TokenFile as TokenFile
from nanoset_ref.tokens.reader import open_tokens as open_tokens
from nanoset_ref.tokens.reader import without_companions as without_companions
from nanoset_ref.tokens.view import Tokens as Tokens
from nanoset_ref.tokens.writer import TokenFileWriter as TokenFileWriter
