"""Adapters of this package's own loaders."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import PreTrainedTokenizerFast

from nanoset_ref import (
    Nanoset,
    PackedNanoset,
    ResumableBatchSampler,
    build_nanoset_dataloader,
)
from nanoset_ref.laws import Adapter
from nanoset_ref.load.dataloader import NanosetDataLoader
from nanoset_ref.megatron import (
    MegatronNanoset,
    MMapIndexedDataset,
    NanosetBuilder,
    NanosetConfig,
)
from nanoset_ref.streaming import (
    CompressedDataset,
    CompressedDictionary,
    IterableDataset,
    JSONLinesAdapter,
    MapDataset,
    StackDataset,
    TokenStream,
    TokenStreamDataLoader,
)

SAMPLER = "once ranks order repeat resume elastic data length growth epochs"
CLAIMS = (
    "once ranks order workers repeat resume killed elastic owned data refuses length"
)


def state_dict(loader: Any) -> Any:
    return loader.state_dict()


def loader_of(dataset: Any, settings: dict[str, Any], **options: Any) -> Any:
    loader = build_nanoset_dataloader(
        dataset,
        micro_batch_size=settings["batch_size"],
        dp_rank=settings["rank"],
        dp_size=settings["world_size"],
        consumed_train_samples=settings["epoch"] * len(dataset),
        num_loading_workers=settings["workers"],
        **options,
    )
    if settings["state"] is not None:
        loader.load_state_dict(settings["state"])
    return loader


def nanoset(order: str, **options: Any) -> Adapter:
    def make(data: Any, *, state: Any = None, **settings: Any) -> Any:
        dataset = Nanoset(
            data.paths,
            data.weights,
            data.sequence_length,
            sum(data.rows),
            settings["seed"],
            order=order,
            token_dtype="<u2",
        )
        return loader_of(dataset, settings | {"state": state}, **options)

    claims = CLAIMS + ("" if order == "identity" else " seed spread weights")
    if order == "stateless":
        claims += " complete"
    return of(
        make, claims=f"{claims} epochs", format="npy", tail=options.get("tail", "drop")
    )


def of(make: Any, **options: Any) -> Adapter:
    common = {
        "same_epochs": True,
        "tail": "drop",
        "max_workers": 2,
        "state_of": state_dict,
    }
    return Adapter(make=make, **common | options)


def packed(data: Any, *, state: Any = None, **settings: Any) -> Any:
    (rows,) = data.rows
    dataset = PackedNanoset(
        [data.path], None, data.sequence_length, rows, settings["seed"], pad_id=0
    )
    return loader_of(dataset, settings | {"state": state})


def megatron(data: Any, *, state: Any = None, **settings: Any) -> Any:
    config = NanosetConfig(
        random_seed=settings["seed"],
        sequence_length=data.sequence_length,
        data_path=data.path.removesuffix(".bin"),
        split="1,0,0",
        add_extra_token_to_sequence=False,
    )
    corpus = MMapIndexedDataset(data.path.removesuffix(".bin"))
    dataset = MegatronNanoset(corpus, 0, len(corpus), None, "train", config)
    return loader_of(dataset, settings | {"state": state}, collate_fn=stacked)


def blend(data: Any, *, state: Any = None, **settings: Any) -> Any:
    """A blend of the corpora; of one, it reads the first samples of two epochs."""
    prefixes = [path.removesuffix(".bin") for path in data.paths]
    config = NanosetConfig(
        random_seed=settings["seed"],
        sequence_length=data.sequence_length,
        data_path=dict(zip(prefixes, data.weights or [1.0], strict=True)),
        split="1,0,0",
        split_num_samples=(sum(data.rows), 0, 0),
        add_extra_token_to_sequence=False,
    )
    dataset = NanosetBuilder(config).build(["train"])[0]
    return loader_of(dataset, settings | {"state": state}, collate_fn=stacked)


def stacked(samples: Any) -> Any:
    return {"tokens": np.stack([sample["input_ids"] for sample in samples])}


def sampler(
    data: int, *, state: Any = None, layout: str = "strided", **settings: Any
) -> Any:
    made = ResumableBatchSampler(
        data,
        settings["batch_size"],
        settings["rank"],
        settings["world_size"],
        settings["epoch"] * data,
        layout=layout,
    )
    if state is not None:
        made.load_state_dict(state)
    return made


def stateful(data: int, *, state: Any = None, **settings: Any) -> Any:
    """torchdata's loader, which keeps the sampler's state of each batch that it delivers."""
    batches = sampler(data, **settings)
    made = StatefulDataLoader(
        range(data), batch_sampler=batches, num_workers=settings["workers"]
    )
    if state is not None:
        made.load_state_dict(state)
    return made


def iterable(data: Any, *, state: Any = None, **settings: Any) -> Any:
    """Lines of text, in torchdata's loader."""
    hparams = SimpleNamespace(batch_size=settings["batch_size"])
    ranks = {"dp_rank": settings["rank"], "dp_size": settings["world_size"]}
    dataset = IterableDataset(hparams, JSONLinesAdapter(None, data.path), **ranks)
    made = StatefulDataLoader(
        dataset,
        settings["batch_size"],
        num_workers=settings["workers"],
        collate_fn=list,
        drop_last=True,
    )
    if state is not None:
        made.load_state_dict(state)
    return made


def stack(data: Any, *, state: Any = None, **settings: Any) -> Any:
    """Lines, and beside them the same text out of a compressed dictionary."""
    lines = MapDataset(None, JSONLinesAdapter(None, data.path))
    texts = CompressedDictionary()
    texts.update((number, line["text"]) for number, line in enumerate(lines))
    path = Path(data.path).with_suffix(".cd")
    texts.dump(path)
    dataset = StackDataset(lines, CompressedDataset(None, path))
    made = NanosetDataLoader(
        dataset,
        sampler(len(dataset), **settings),
        collate_fn=texts_of_both,
        num_workers=settings["workers"],
    )
    if state is not None:
        made.load_state_dict(state)
    return made


def texts_of_both(samples: Any) -> Any:
    assert all(line["text"] == text for line, text in samples)
    return {"text": [text for _, text in samples]}


@functools.cache
def words_of_numbers() -> PreTrainedTokenizerFast:
    """The words "0", "1", ... are the ids 0, 1, ..."""
    vocabulary = {str(number): number for number in range(2**10)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def token_stream(data: Any, *, state: Any = None, **settings: Any) -> Any:
    """Text tokenized while it is read; each row shares its last token with the next one."""
    text = Path(data.path).with_suffix(".one_more.jsonl")
    label = json.dumps({"text": "0"})
    text.write_text(Path(data.path).read_text() + label + "\n")
    stream = TokenStream(
        text,
        words_of_numbers(),
        data.sequence_length,
        dp_rank=settings["rank"],
        dp_size=settings["world_size"],
        micro_batch_size=settings["batch_size"],
        backend="hf",
    )
    loader = TokenStreamDataLoader(stream, inputs_of, num_workers=settings["workers"])
    if state is not None:
        loader.load_state_dict(state)
    return loader


def inputs_of(rows: Any) -> Any:
    return {"tokens": np.stack([row["input_ids"][:-1] for row in rows])}


OURS = {
    "Nanoset, nanotron": nanoset("nanotron"),
    "Nanoset, stateless": nanoset("stateless"),
    "Nanoset, identity": nanoset("identity"),
    "Nanoset, contiguous": nanoset("stateless", layout="contiguous"),
    "Nanoset, padded": nanoset("stateless", tail="pad"),
    "PackedNanoset": of(packed, claims=f"{CLAIMS} seed epochs", format="ds"),
    "MegatronNanoset": of(megatron, claims=f"{CLAIMS} seed epochs", format="bin"),
    "BlendedNanoset": of(
        blend,
        claims="order workers repeat resume killed elastic owned data refuses length weights",
        format="bin",
    ),
    "StackDataset": of(
        stack,
        claims="once ranks order workers repeat epochs resume killed elastic owned data length",
        format="jsonl",
        max_rows=60,
    ),
    "StatefulDataLoader": of(
        stateful,
        claims="once ranks order workers repeat epochs resume killed elastic owned data length",
    ),
    "TokenStream": of(
        token_stream,
        claims="once ranks order workers repeat resume killed elastic owned data refuses",
        format="jsonl",
        max_rows=60,
    ),
    "IterableDataset": of(
        iterable,
        claims="once ranks order workers repeat resume killed owned data",
        format="jsonl",
        max_rows=60,
        max_workers=1,  # several deal the lines in another order, and each drops its own tail
    ),
    "ResumableBatchSampler": of(sampler, claims=SAMPLER),
    "ResumableBatchSampler, contiguous": of(
        functools.partial(sampler, layout="contiguous"), claims=SAMPLER
    ),
}
