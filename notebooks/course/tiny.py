"""Twelve documents in three files: the example that runs through the whole course.

With sequence_length = 8 the files hold 5, 3 and 2 samples, and each leaves tokens over:

    stories      6 documents, 42 tokens = 5 x 8 + 1 + 1
    arithmetic   4 documents, 26 tokens = 3 x 8 + 1 + 1
    programs     2 documents, 19 tokens = 2 x 8 + 1 + 2
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from nanoset_ref import TokenFileWriter, prepare_corpus

DOCUMENTS = {
    "stories": [
        "The lantern was old.",
        "Nora and the owl walked home.",
        "Nobody had seen the letter.",
        "The owl kept the letter.",
        "Nora took the lantern home.",
        "The lantern was for Nora.",
    ],
    "arithmetic": ["7 * 8 = 56", "25 + 30 = 55", "56 - 7 = 49", "2 + 3 + 4 = 9"],
    "programs": ["def f(x):\n    return x * 8", "assert f(7) == 56"],
}
EOS = "<|endoftext|>"


def tiny_corpus(folder: str | Path = "data") -> dict[str, Path]:
    """Write one token file per source, an EOS after each document, into `folder`/tiny; their paths, by source.

    A file that holds these ids already stays, so that notebooks may run side by side.
    """
    tokenizer = _tokenizer(folder)
    eos = tokenizer.token_to_id(EOS)
    paths = {}
    for source, texts in DOCUMENTS.items():
        paths[source] = Path(folder, "tiny", f"{source}_input_ids.npy")
        paths[source].parent.mkdir(parents=True, exist_ok=True)
        documents = [[*tokenizer.encode(text).ids, eos] for text in texts]
        ids = [token for document in documents for token in document]
        if paths[source].exists() and np.fromfile(paths[source], "<u2").tolist() == ids:
            continue
        facts = {
            "tokenizer": f"{folder}/tokenizer",
            "vocab_size": tokenizer.get_vocab_size(),
            "eos_token_id": eos,
        }
        with TokenFileWriter(
            paths[source], dtype="uint16", overwrite=True, appended_eod=True, **facts
        ) as file:
            file.write(ids, [len(document) for document in documents])
    return paths


def pieces(ids: Iterable[int], folder: str | Path = "data") -> list[str]:
    """The text of each token; the EOS between documents as "EOS"."""
    return [
        _tokenizer(folder).decode([int(token)], skip_special_tokens=False).replace(EOS, "EOS")
        for token in ids
    ]


@cache
def _tokenizer(folder: str | Path) -> Tokenizer:
    return Tokenizer.from_file(str(prepare_corpus(folder).tokenizer / "tokenizer.json"))
