"""Two texts in a small vocabulary, each source cut into token files for training and held out."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.real_text import documents_of_file
from benchmarks.small_model import VOCABULARY, Size
from nanoset_ref import TokenFileWriter, plain, prepare_corpus

EOS, EOS_ID, HELD_OUT_EVERY = "<|endoftext|>", 0, 10
GENERATED_BYTES = (
    8_800_000  # of each source: enough for 43,712 samples of 256 tokens in all
)
REAL = {
    "wikitext": ("wikitext2-valid.jsonl", "wikitext2-test.jsonl"),
    "shakespeare": ("shakespeare.jsonl",),
}


def documents_of(text: str, folder: Path, real: Path | None) -> dict[str, list[str]]:
    """The documents of each source of a text, in the order of their files.

    "corpus" is the embedded corpus, "generated" more of the same from its generator, "real" the files of a folder.

    Raises:
        ValueError: no folder with the real text was given, or its files hold other documents.
    """
    if text == "corpus":
        return {
            name: [
                json.loads(line)["text"]
                for line in path.read_text("utf-8").splitlines()
            ]
            for name, path in prepare_corpus(folder / "corpus").domains.items()
        }
    if text == "generated":
        return generated(GENERATED_BYTES)
    if real is None:
        raise ValueError(
            "the text 'real' needs --real FOLDER, written by `python -m benchmarks.real_text FOLDER`"
        )
    return {
        name: [
            document for file in files for document in documents_of_file(real / file)
        ]
        for name, files in REAL.items()
    }


def generated(num_bytes: int) -> dict[str, list[str]]:
    """As many bytes of each source as wanted, from the generator of the embedded corpus."""
    found: dict[str, list[str]] = {}
    for name in generator().WRITERS:
        texts: list[str] = []
        written = 0
        while written < num_bytes:
            texts.append(generated_document(name, len(texts)))
            written += len(texts[-1])
        found[name] = texts
    return found


def generated_document(source: str, number: int) -> str:
    """The text of one document, from the generator of the embedded corpus."""
    writers = generator()
    dice = writers.Dice(f"{source}-{number:05d}")
    length = dice.heavy_tailed(8, writers.LONGEST_WORDS)
    return writers.WRITERS[source](dice, length)[1]


def generator() -> Any:
    """The module that wrote the embedded corpus; it lies beside the notebooks."""
    folder = str(Path(__file__).parents[1] / "notebooks")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("corpus_generator")


def small_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A byte-level BPE of 512 ids, trained on these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {
        "special_tokens": [EOS],
        "initial_alphabet": alphabet,
        "show_progress": False,
    }
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, **options)
    )
    return tokenizer


def parted(texts: Sequence[str]) -> dict[str, list[str]]:
    """The documents of a source: every tenth is held out."""
    train = [text for k, text in enumerate(texts) if k % HELD_OUT_EVERY]
    return {"held_out": list(texts[::HELD_OUT_EVERY]), "train": train}


def prepare_text(
    documents: Mapping[str, Sequence[str]], folder: Path, size: Size
) -> dict[str, Any]:
    """Write two token files per source, for training and held out; what they hold, by source.

    Every tenth document is held out. Training files are cut so that they have `size.available` samples in all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: parted(texts) for name, texts in documents.items()}
    tokenizer = small_tokenizer(
        text for part in parts.values() for text in part["train"]
    )
    encoded = {
        name: {
            part: [[*it.ids, EOS_ID] for it in tokenizer.encode_batch(texts)]
            for part, texts in both.items()
        }
        for name, both in parts.items()
    }
    tokens = {name: sum(map(len, both["train"])) for name, both in encoded.items()}
    share = min(1.0, size.available * size.sequence_length / sum(tokens.values()))
    facts: dict[str, Any] = {}
    for name, both in encoded.items():
        ids = np.concatenate(both["train"])[: int(tokens[name] * share) + 1]
        for part, found in {
            "train": ids,
            "held_out": np.concatenate(both["held_out"]),
        }.items():
            with TokenFileWriter(
                folder / f"{name}_{part}_input_ids.npy", dtype="uint16", overwrite=True
            ) as file:
                file.write_document(found)
        samples = plain.count_samples(len(ids), size.sequence_length)
        documents = _documents(ids, np.arange(samples), size)
        facts[name] = {
            "documents_before_the_cut": len(both["train"]),
            "documents_that_samples_begin_in": len(np.unique(documents)),
            "training_samples": samples,
            "held_out_documents": len(both["held_out"]),
            "characters_per_token": round(
                sum(map(len, parts[name]["train"])) / tokens[name], 3
            ),
        }
    (folder / "facts.json").write_text(
        json.dumps(facts)
    )  # last: the files are complete
    return facts


def write_tokens(path: Path, texts: Sequence[str], tokenizer: Tokenizer) -> int:
    """Write a token file of documents, each with an end; how many tokens they have."""
    documents = [[*it.ids, EOS_ID] for it in tokenizer.encode_batch(texts)]
    ids = np.concatenate(documents)
    with TokenFileWriter(path, dtype="uint16", overwrite=True) as file:
        file.write_document(ids)
    return len(ids)


def held_out_rows(path: Path, size: Size) -> NDArray[Any]:
    """`size.held_out` samples [n, S + 1], spread over a token file."""
    tokens, length = plain.read_tokens(path), size.sequence_length
    return np.stack(
        [plain.read_sample(tokens, k, length) for k in _spread(tokens, size)]
    )


def held_out_documents(path: Path, size: Size) -> list[int]:
    """The document, counted from 0, in which each row of `held_out_rows` begins."""
    tokens = plain.read_tokens(path)
    return _documents(tokens, _spread(tokens, size), size).tolist()


def training_documents(paths: Iterable[Path], size: Size) -> NDArray[np.int64]:
    """The document, counted over all files, in which each of their samples [N] begins."""
    found = []
    before = 0
    for path in paths:
        tokens = plain.read_tokens(path)
        samples = np.arange(plain.count_samples(len(tokens), size.sequence_length))
        found.append(before + _documents(tokens, samples, size))
        before = found[-1][-1] + 1
    return np.concatenate(found)


def _documents(
    tokens: NDArray[Any], samples: NDArray[np.int64], size: Size
) -> NDArray[np.int64]:
    ends = np.flatnonzero(tokens == EOS_ID)
    return np.searchsorted(ends, samples * size.sequence_length)


def _spread(tokens: NDArray[Any], size: Size) -> NDArray[np.int64]:
    last = plain.count_samples(len(tokens), size.sequence_length) - 1
    return np.linspace(0, last, size.held_out).astype(int)
