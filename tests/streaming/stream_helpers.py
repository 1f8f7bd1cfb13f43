"""What the streaming tests hand to worker processes, which import it by name however they are started."""

import itertools
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from nanoset_ref import streaming
from nanoset_ref.streaming import Adapter, IterableDataset

TokenStream = partial(streaming.TokenStream, append_eod=True)

# ---- adapters


class Numbers(Adapter):
    """0 .. count-1, read from the start each time."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


class Indexed(Numbers):
    """The same with an index, and a record of what was read and preprocessed."""

    def __init__(self, count):
        super().__init__(count)
        self.read, self.preprocessed = [], []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        return range(self.count)[index]

    def __iter__(self):
        raise AssertionError("nobody needs to iterate over an adapter with an index")

    def preprocess_line(self, line):
        self.preprocessed.append(line)
        return line


class Twins(Numbers):
    """Two elements for each line, and it says so."""

    def preprocess_line(self, line):
        yield line * 10
        yield line * 10 + 1


class Scaled(Numbers):
    """factor * 0, factor * 1, ...; ready ones are larger by `plus`."""

    def __init__(self, count, factor=1, plus=0):
        super().__init__(count)
        self.factor, self.plus = factor, plus

    def __iter__(self):
        return (k * self.factor for k in range(self.count))

    def preprocess_line(self, line):
        return line + self.plus


class ByEpoch(Numbers):
    """Every element tells its epoch."""

    def set_epoch(self, epoch):
        self.epoch = epoch

    def preprocess_line(self, line):
        return 100 * self.epoch + line


def hparams(batch_size=1, accumulate_grad_batches=1):
    return SimpleNamespace(
        batch_size=batch_size, accumulate_grad_batches=accumulate_grad_batches
    )


# ---- text in which every token tells its place


def number_tokenizer(size=4000):
    """The words "1", "2", ... have the ids 1, 2, ...; EOS is 0."""
    words = {"<eos>": 0} | {str(k): k for k in range(1, size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


EOS = 0
TOKENIZER = number_tokenizer()
LENGTHS = [5, 0, 1, 17, 3, 40, 2, 2, 9, 0, 30, 1, 1, 25, 8, 60, 4, 13]


def write_text(folder, lengths, files=1):
    """Documents of the given numbers of words in so many files, the words being 1, 2, 3, ... through all of them."""
    words = itertools.count(1)
    lines = [
        json.dumps({"text": " ".join(str(next(words)) for _ in range(length))})
        for length in lengths
    ]
    paths = [folder / f"{number}.jsonl" for number in range(files)]
    for number, path in enumerate(paths):
        part = lines[number * len(lines) // files : (number + 1) * len(lines) // files]
        path.write_text(
            "".join(f"{line}\n\n" for line in part)
        )  # a blank line is no document
    return paths


def tokens_of(lengths):
    """The slow and obvious stream of tokens: the words, an EOS after each document."""
    words, tokens = itertools.count(1), []
    for length in lengths:
        tokens += [next(words) for _ in range(length)] + [EOS]
    return tokens


def rows_of(tokens, length):
    return [tokens[k : k + length + 1] for k in range(0, len(tokens) - length, length)]


# ---- collate functions


def ids(rows, count=None):
    return [row["input_ids"].tolist() for row in itertools.islice(rows, count)]


def tag_worker(elements):
    """(worker id, elements)"""
    info = torch.utils.data.get_worker_info()
    return (-1 if info is None else info.id, elements)


def inputs_and_labels(rows):
    tokens = torch.from_numpy(np.stack([row["input_ids"] for row in rows]))
    return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:].contiguous()}


def read_resumed(make, loader, stops, batches=None):
    """The batches of an epoch (or so many of them), in which a fresh loader takes over after each of the stops, and
    the last of these loaders.
    """
    taken = []
    for stop in stops:
        taken += list(itertools.islice(loader, stop)) if stop else []
        state = json.loads(json.dumps(loader.state_dict()))
        loader = make()
        loader.load_state_dict(state)
    return taken + list(
        itertools.islice(loader, batches and batches - len(taken))
    ), loader


# ---- what a rank of a process group does


def deal_and_resume(folder):
    """Write what this rank reads of 97 numbers, from the start and from step 3, and of a text."""
    torch.distributed.init_process_group("gloo")
    seen = []
    for step in (0, 3):
        dataset = IterableDataset(hparams(3), Numbers(97), start_from_step=step)
        seen.append(list(DataLoader(dataset, 3, num_workers=4, collate_fn=list)))
    seen.append(ids(TokenStream(Path(folder, "0.jsonl"), TOKENIZER, 3, backend="hf")))
    Path(folder, f"{torch.distributed.get_rank()}.json").write_text(json.dumps(seen))
