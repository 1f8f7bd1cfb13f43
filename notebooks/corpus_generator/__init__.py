"""How the embedded corpus was made: text in three domains and a tokenizer trained on it, in about two seconds.

1. Every document is a pure function of its domain and its number: dice give a heavy-tailed length, then the domain's
   grammar writes about that many words.
2. Each domain is one JSON-lines file of 0.5 MB: `{"id": ..., "domain": ..., "title": ..., "words": ..., "text": ...}`.
3. A byte-level BPE is trained on all of it and saved so that `AutoTokenizer.from_pretrained(folder)` loads it.

The bytes are the same on every platform and Python version; the package ships them compressed. After a change, write
them anew from the folder `notebooks`: `python -m corpus_generator ../nanoset_ref/chunks/corpus.json.zst`.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus_generator.arithmetic import write_arithmetic
from corpus_generator.dice import Dice
from corpus_generator.programs import write_program
from corpus_generator.stories import write_story

FORMAT = 1  # raise it whenever a byte of the corpus changes
EOS_TOKEN = "<|endoftext|>"
VOCAB_SIZE = 4096
DOMAIN_BYTES = 500_000
LONGEST_WORDS = 3_000
WRITERS: dict[str, Callable[[Dice, int], tuple[str, str]]] = {
    "stories": write_story,
    "arithmetic": write_arithmetic,
    "programs": write_program,
}


def make_files() -> dict[str, str]:
    """The content of every file of the corpus by its path, the one that marks a complete folder last."""
    documents = {name: list(write_documents(name)) for name in WRITERS}
    tokenizer = train_tokenizer([document["text"] for found in documents.values() for document in found])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS_TOKEN}
    stamp = {"format": FORMAT, "domains": list(WRITERS), "tokenizer": "tokenizer"}
    return {
        **{f"{name}.jsonl": "".join(json.dumps(row) + "\n" for row in found) for name, found in documents.items()},
        "tokenizer/tokenizer.json": tokenizer.to_str(pretty=True) + "\n",
        "tokenizer/tokenizer_config.json": json.dumps(settings) + "\n",
        "corpus.json": json.dumps(stamp) + "\n",
    }


def pack(path: Path) -> None:
    """Write the file that the package ships: `make_files()` as JSON, compressed."""
    path.write_bytes(zstandard.compress(json.dumps(make_files()).encode(), 22))


def write_documents(domain: str) -> Iterator[dict[str, Any]]:
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
