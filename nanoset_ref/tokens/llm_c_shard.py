"""The shards of llm.c and modded-nanogpt: token ids after a header of 256 int32.

    int32 [256]      magic, version, number of tokens, 0, 0, ...
    uint16 or uint32 the ids, little endian

A document *begins* with <|endoftext|>. karpathy/llm.c f1e2ace (May 2025) writes the files in
`dev/data/data_common.py`; KellerJordan/modded-nanogpt f411b3d3 (August 2026) reads them.
"""

import numpy as np

from nanoset_ref.io.paths import PathLike
from nanoset_ref.io.types import Int64Array
from nanoset_ref.tokens.interface import Tokens, cached_property
from nanoset_ref.tokens.manifest import TokenFileError

HEADER_BYTES = 1024
FORMATS = {  # magic: version, dtype, the id that begins a document
    20240520: (1, "<u2", 50256),  # GPT-2
    20240801: (7, "<i4", 128000),  # Llama 3; uint32, but ids are below 2**31
}


def is_shard(path: PathLike) -> bool:
    """Whether a file begins with the magic number of a shard."""
    magic = np.fromfile(path, "<i4", 1)
    return magic.size == 1 and int(magic[0]) in FORMATS


class LlmCFile(Tokens):
    """One shard.

    Args:
        path: the file.
        eos_token_id: the id that begins a document; default: <|endoftext|> of GPT-2 or Llama 3.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenFileError: the header is unknown, or contradicts the size of the file.
    """

    first_byte = HEADER_BYTES

    def __init__(self, path: PathLike, eos_token_id: int | None = None) -> None:
        super().__init__(path)
        header = np.fromfile(self.path, "<i4", 256).tolist()
        if len(header) < 256 or header[0] not in FORMATS:
            raise TokenFileError(
                f"{self.path} does not begin with the header of llm.c's shards"
            )
        version, dtype, eos = FORMATS[header[0]]
        self.dtype = np.dtype(dtype)
        self.num_tokens = header[2]
        self.start_token_id = eos if eos_token_id is None else eos_token_id
        size = self.version[0] if self.version else 0
        expected = HEADER_BYTES + self.num_tokens * self.dtype.itemsize
        if header[1] != version or size != expected or self.num_tokens < 1:
            raise TokenFileError(
                f"{self.path} has version {header[1]} and {size} bytes, but its header requires "
                f"version {version} and {expected} bytes: copy it again"
            )

    @cached_property
    def document_starts(self) -> Int64Array:
        """The token offsets at which documents begin, int64; searched for at the first access."""
        return np.flatnonzero(self.tokens == self.start_token_id)

    @cached_property
    def document_offsets(self) -> Int64Array:
        """See `Tokens.document_offsets`; tokens before the first beginning are a document."""
        return np.unique(np.concatenate([[0], self.document_starts, [self.num_tokens]]))
