"""A warning where files of one blend were tokenized by different tokenizers."""

import logging
from collections.abc import Sequence

from nanoset_ref.tokens.interface import Tokens

logger = logging.getLogger(__name__)


def warn_of_other_vocabularies(files: Sequence[Tokens]) -> None:
    """Warn (by logging) if the manifests of two files record different vocabularies or EOS ids.

    Nothing else would show it: ids of another vocabulary are ids like any others. Names are not
    compared, because a tokenizer's folder may move.
    """
    for field in ("vocab_size", "eos_token_id"):
        firsts: dict[int, Tokens] = {}
        for file in files:
            value = getattr(getattr(file, "manifest", None), field, None)
            if value is not None:
                firsts.setdefault(value, file)
        if len(firsts) > 1:
            (one, first), (other, second) = list(firsts.items())[:2]
            logger.warning(
                "%s has %s %s, and %s has %s: were both tokenized by one tokenizer?",
                first.path,
                field,
                one,
                second.path,
                other,
            )
            return
