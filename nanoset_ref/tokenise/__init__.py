"""Text to token ids with any number of threads, processes or ranks of torchrun, and always the same result."""

from nanoset_ref.tokenise.encode import Backend as Backend
from nanoset_ref.tokenise.encode import Encoder as Encoder
from nanoset_ref.tokenise.encode import load_tokenizer as load_tokenizer
from nanoset_ref.tokenise.helpers import in_rank_0 as in_rank_0
from nanoset_ref.tokenise.jobs import Counts as Counts
from nanoset_ref.tokenise.jobs import tokenise as tokenise
from nanoset_ref.tokenise.jobs import too_many as too_many
from nanoset_ref.tokenise.special import SpecialTokens as SpecialTokens
