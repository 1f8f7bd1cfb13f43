"""The embedded corpus: text in three domains and a tokenizer trained on it, made here within two seconds.

1. Every document is a pure function of its domain and its number: a heavy-tailed length is thrown, then the domain's
   grammar writes about that many words.
2. One JSON-lines file per domain, 0.5 MB each: `{"id": ..., "domain": ..., "title": ..., "words": ..., "text": ...}`.
3. A byte-level BPE is trained on all of it and saved so that `AutoTokenizer.from_pretrained(folder)` loads it.

The bytes are the same on every platform and Python version. The alternative, a slice of a real corpus, would have to
be downloaded or carried along in the repository, and could not be checked: here every sum is right, every program runs.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from nanoset_ref.corpus.arithmetic import write_arithmetic
from nanoset_ref.corpus.dice import Dice
from nanoset_ref.corpus.programs import write_program
from nanoset_ref.corpus.stories import write_story
from nanoset_ref.files import atomic_write

FORMAT = 1  # to be raised whenever a byte of the corpus changes
EOS_TOKEN = "<|endoftext|>"
VOCAB_SIZE = 4096
DOMAIN_BYTES = 500_000
LONGEST_WORDS = 3_000
WRITERS: dict[str, Callable[[Dice, int], tuple[str, str]]] = {
    "stories": write_story,
    "arithmetic": write_arithmetic,
    "programs": write_program,
}


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Where the corpus lies: one .jsonl file per domain, and the folder of the tokenizer."""

    domains: dict[str, Path]
    tokenizer: Path


def prepare_corpus(folder: str | Path) -> Corpus:
    """Write the corpus and its tokenizer into a folder, unless they are there already.

    Args:
        folder: where to; made if it is missing.

    Returns:
        The paths of what was written, all below `folder` as it was given.
    """
    folder = Path(folder)
    corpus = Corpus(domains={name: folder / f"{name}.jsonl" for name in WRITERS}, tokenizer=folder / "tokenizer")
    done = folder / "corpus.json"  # written last: whoever sees it sees everything
    stamp = json.dumps({"format": FORMAT, "domains": list(WRITERS), "tokenizer": "tokenizer"}) + "\n"
    tokenizer, settings = corpus.tokenizer / "tokenizer.json", corpus.tokenizer / "tokenizer_config.json"
    there = all(file.is_file() for file in [*corpus.domains.values(), tokenizer, settings, done])
    if there and done.read_bytes() == stamp.encode():
        return corpus
    corpus.tokenizer.mkdir(parents=True, exist_ok=True)
    texts: list[str] = []
    for name, path in corpus.domains.items():
        documents = list(write_documents(name))
        texts += [document["text"] for document in documents]
        write_text(path, "".join(json.dumps(document) + "\n" for document in documents))
    write_text(tokenizer, train_tokenizer(texts).to_str(pretty=True) + "\n")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS_TOKEN}
    write_text(settings, json.dumps(config) + "\n")
    write_text(done, stamp)
    return corpus


def write_documents(domain: str) -> Iterator[dict]:
    """The documents of one domain, in order, until together they hold DOMAIN_BYTES bytes of text."""
    written = number = 0
    while written < DOMAIN_BYTES:
        name = f"{domain}-{number:05d}"
        dice = Dice(name)
        title, text = WRITERS[domain](dice, dice.heavy_tailed(8, LONGEST_WORDS))
        yield {"id": name, "domain": domain, "title": title, "words": len(text.split()), "text": text}
        written += len(text)
        number += 1


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE with GPT-2's pre-tokenizer; ties between pairs go to the smaller ids, not to chance."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[EOS_TOKEN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_text(path: Path, text: str) -> None:
    """UTF-8 with bare newlines on every platform."""
    with atomic_write(path) as file:
        file.write(text.encode())
