"""Text to token ids with any number of threads, processes or ranks of torchrun, and always the same result."""

from nanoset_ref.tokenise.encode import Encoder, TokenizerError, load_tokenizer
from nanoset_ref.tokenise.helpers import JobError, StoppedError
from nanoset_ref.tokenise.jobs import Counts, EncoderConfig, Sink, tokenise
from nanoset_ref.tokenise.ranks import Ranks

__all__ = [
    "Counts",
    "Encoder",
    "EncoderConfig",
    "JobError",
    "Ranks",
    "Sink",
    "StoppedError",
    "TokenizerError",
    "load_tokenizer",
    "tokenise",
]
