"""Every kind of file that this package reads, and who reads it. A reader takes the folder of `inputs.write_inputs`."""

import contextlib
import io
import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from inputs import ALONE, indexes_of, loader_of, staged_loader_of
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from nanoset_ref import streaming
from nanoset_ref.chunks import validate
from nanoset_ref.cli import main
from nanoset_ref.io.paths import read_json
from nanoset_ref.megatron import MMapIndexedDataset
from nanoset_ref.preprocess.text import open_text
from nanoset_ref.tokens import open_tokens, verify
from nanoset_ref.train import Checkpoints, load_config
from nanoset_ref.train.metrics import continue_metrics, read_metrics


def read_tokens(name, folder):
    file = open_tokens(folder / name)
    verify(file)
    return file.tokens.tolist(), file.require_document_offsets().tolist()


def read_pair(folder):
    verify(folder / "t.bin")
    return [ids.tolist() for ids in MMapIndexedDataset(folder / "t")]


def read_compressed(folder):
    """The values; nothing in the format protects the keys, or shows that a file was cut between two values."""
    files = [
        streaming.CompressedDictionary.open(path)
        for path in sorted(folder.glob("*.cd"))
    ]
    if any(len(file) != 20 for file in files):
        raise ValueError(f"{folder}: cut between two values")
    return [list(file.values()) for file in files]


def read_chunks(folder):
    reports = validate([folder / "mixed"], num_tokens=3)
    if not all(report.ok for report in reports):
        raise ValueError(str(list(map(str, reports))))
    return [
        json.loads(line)["token_ids"]
        for report in reports
        for line in report.path.open()
    ]


def read_checkpoint(folder):
    tensors = {"a": torch.zeros(9), "b": torch.zeros(3, 2)}
    with contextlib.closing(Checkpoints(folder / "run", ALONE)) as checkpoints:
        newest = checkpoints.newest()
        if newest is None:
            raise FileNotFoundError(f"{folder} holds no checkpoint")
        checkpoints.load(newest[0], tensors)
    return newest, tensors


def read_and_continue_metrics(folder):
    found = read_metrics(folder / "run/metrics.jsonl")
    continue_metrics(folder / "run/metrics.jsonl", 5).close()
    return found


def read_text(folder):
    files = sorted((folder / "text").glob("*/*"))
    return [
        [document.text for document in open_text(file).documents()] for file in files
    ]


def stream_of(folder):
    vocabulary = Tokenizer(models.WordLevel({"<eos>": 0, "x": 1}, unk_token="x"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, eos_token="<eos>")
    stream = streaming.TokenStream(
        folder / "text/p/x.jsonl", tokenizer, 4, micro_batch_size=2, shuffle_buffer=3
    )
    return streaming.TokenStreamDataLoader(stream)


def lines_of(folder):
    adapter = streaming.JSONLinesAdapter(None, folder / "text/p/x.jsonl")
    return streaming.IterableDataset(SimpleNamespace(batch_size=2), adapter)


def go_on(name, make, folder):
    """What a loader gives next; None at the end of an epoch."""
    loader = make(folder)
    loader.load_state_dict(read_json(folder / f"{name}.json"))
    return next(iter(loader), None)


def audit(folder):
    """`nanoset-ref audit --state`, whose exit code 1 and one line are a clean error."""
    words = f"audit --data {folder}/t.npy --sequence-length 8 --dp-size 1 --micro-batch-size 2".split()
    with (
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(output),
    ):
        code = main([*words, "--state", f"{folder}/loader.json"])
    if code:
        raise ValueError(output.getvalue())
    return output.getvalue()


LOADERS = {
    "loader": loader_of,
    "staged": staged_loader_of,
    "stream": stream_of,
    "lines": lines_of,
}
NONE, ANY = "^$", "."
# kind: (which files are damaged, who reads them, which of them no checksum protects, its share of all damages)
KINDS = {
    "token file": (
        r"^t[.](npy|json|documents)",
        partial(read_tokens, "t.npy"),
        NONE,
        3,
    ),
    "raw ids": (
        "raw",
        lambda folder: open_tokens(folder / "raw.npy").tokens.tolist(),
        ANY,
        1,
    ),
    "bin and idx": (r"^t[.](bin|idx|seal)", read_pair, NONE, 3),
    "ds": (r"^t[.]ds", partial(read_tokens, "t.ds"), NONE, 3),
    "compressed": ("cd$", read_compressed, NONE, 1),
    "index": (
        "^cache/",
        lambda folder: [ids.tolist() for ids in indexes_of(folder)],
        NONE,
        1,
    ),
    "chunks": ("^mixed/", read_chunks, NONE, 1),
    "yaml": ("yaml$", lambda folder: load_config(folder / "run.yaml"), ANY, 0.3),
    **{
        f"{name}'s state": (f"^{name}", partial(go_on, name, make), ANY, 0.5)
        for name, make in LOADERS.items()
    },
    "audited state": ("^loader", audit, ANY, 0.3),
    "checkpoint": ("^run/step", read_checkpoint, NONE, 0.3),
    "metrics": ("metrics", read_and_continue_metrics, ANY, 1),
    "text": ("^text/", read_text, ANY, 0.5),
}


def write_shard(path, tokens, magic=20240520, version=1, dtype="<u2"):
    """A shard as llm.c's `write_datafile` writes it."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens, dtype=dtype).tobytes())
    return path
