"""What the tests of chunks share: subsets of texts and their rows, and folders of chunks with a manifest."""

import json

import numpy as np

from nanoset_ref.chunks.chunk_manifest import ChunkManifest, FileEntry, RowFacts
from nanoset_ref.chunks.row_format import format_row
from nanoset_ref.preprocess.tokenizer import load_tokenizer

TEXTS = {
    "web/a": ["one two three", "", "four five", "six"],
    "b": ["seven eight nine ten", "eleven"],
}
FACTS = {"tokenizer": "t", "vocab_size": 300, "eos_token_id": 7, "concat_tokens": 5}


def write_subsets(root, texts=TEXTS, column="text"):
    for name, documents in texts.items():
        (root / name).mkdir(parents=True)
        (root / name / "x.jsonl").write_text(
            "".join(json.dumps({column: text}) + "\n" for text in documents)
        )
    return root


def rows_of(folder):
    return [
        json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()
    ]


def stream_of(tokenizer, texts, eos=(2,), bos=()):
    loaded = load_tokenizer(tokenizer)
    return [
        token for text in texts for token in (*bos, *loaded(text)["input_ids"], *eos)
    ]


def write_chunks(root, sizes, row_length=5, facts=FACTS):
    """Chunk files of rows that count on from 0; returns the rows [all, row_length]."""
    rows = np.arange(sum(sizes) * row_length).reshape(-1, row_length)
    (root / "train").mkdir(parents=True)
    files, first = {}, 0
    for i, size in enumerate(sizes):
        path = root / f"train/train_{i}.jsonl"
        path.write_bytes(
            b"".join(format_row(row, "a") for row in rows[first : first + size])
        )
        files[f"train/{path.name}"] = FileEntry.of(path, size)
        first += size
    if facts is not None:
        say(root, facts, complete=True, files=files)
    return rows


def say(folder, facts=FACTS, **content):
    """Write a manifest, of a run that is not finished."""
    ChunkManifest(
        format="nanoset_ref.chunks/2", settings={}, facts=RowFacts(**facts), **content
    ).write(folder)
