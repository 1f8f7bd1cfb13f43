"""The embedded corpus, 1,611 documents of three sources, as token files."""

from nanoset_ref import prepare_corpus
from nanoset_ref.preprocess import preprocess

SOURCES = ("stories", "arithmetic", "programs")


def token_files(number: str, sources: tuple[str, ...] = SOURCES) -> dict[str, str]:
    """Tokenize the embedded corpus for a page, an EOS after each document; by source, the path of its token file.

    Args:
        number: of the page, such as "02". Pages that run side by side share no file.
        sources: the ones to tokenize.
    """
    corpus = prepare_corpus("data")
    options = {"append_eod": True, "backend": "hf", "overwrite": True, "progress": False}
    for source in sources:
        preprocess(corpus.domains[source], f"data/{number}_{source}", corpus.tokenizer, **options)
    return {source: f"data/{number}_{source}_input_ids.npy" for source in sources}
