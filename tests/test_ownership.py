"""A batch belongs to its receiver: writing into one of its arrays changes no other array."""

import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from streaming.stream_helpers import number_tokenizer, write_text
from torch.utils.data import DataLoader

from nanoset_ref import DataCollatorForCLM, DataCollatorWithLabels, plain
from nanoset_ref.load import DataCollatorForCLMWithPositionIds, blocks
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.device import to_device
from nanoset_ref.load.document_masks import DocumentOptions
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import MegatronCollator, NanosetConfig
from nanoset_ref.streaming import TokenStream, TokenStreamDataLoader

LENGTH, BATCH, NUM_BATCHES = 6, 2, 24
NUM_TOKENS = LENGTH * BATCH * NUM_BATCHES + 1
EOD = 15
CONFIG = NanosetConfig(
    random_seed=1,
    sequence_length=LENGTH,
    data_path="unused",
    split="1,0,0",
    split_num_samples=(1, 0, 0),
    path_to_cache="unused",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The ids 1, 2, 3, ... as a Nanoset in the order of the file, and as text of one document."""
    folder = tmp_path_factory.mktemp("corpus")
    np.arange(1, NUM_TOKENS + 1, dtype=np.uint16).tofile(folder / "a.npy")
    text = write_text(folder, [NUM_TOKENS])
    return Nanoset(
        folder / "a.npy", None, LENGTH, BATCH * NUM_BATCHES, order="identity"
    ), text


@pytest.fixture(autouse=True)
def few_batches_in_a_block(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5 * BATCH * (LENGTH + 1) * 4)


def rows_of(number):
    """The rows of batch `number`, whichever loader reads them."""
    begins = np.arange(number * BATCH, (number + 1) * BATCH) * LENGTH
    return (begins[:, None] + np.arange(1, LENGTH + 2)).astype(np.int32)


# ---- what each collator has to deliver


def clm_fields(rows):
    return {
        name: torch.from_numpy(np.array(value))
        for name, value in plain.collate(rows).items()
    }


def document_fields(rows):
    starts = [plain.starts_after_eos(row, EOD) for row in rows]
    fields = [plain.document_fields(start) for start in starts]
    inputs = [plain.document_fields(start[:-1]) for start in starts]
    masks = {
        "label_mask": torch.tensor(np.array([field["label_mask"] for field in fields]))
    }
    positions = {
        "position_ids": torch.tensor(
            np.array([field["position_ids"] for field in inputs])
        )
    }
    return clm_fields(rows) | masks | positions


def labelled_fields(rows):
    ids = torch.from_numpy(rows).long()
    return {"input_ids": ids, "labels": ids}


def megatron_fields(rows):
    ids = torch.from_numpy(rows).long()
    positions = torch.arange(LENGTH).expand(BATCH, LENGTH)
    mask = torch.ones(BATCH, LENGTH)
    return {
        "tokens": ids[:, :-1],
        "labels": ids[:, 1:],
        "loss_mask": mask,
        "position_ids": positions,
    }


def positioned_fields(rows):
    fields = document_fields(rows)
    del fields["input_mask"]
    ids = ("input_ids", "label_ids")
    return fields | {name: fields[name].long() for name in ids}


MASKS = DocumentOptions(eos_token_id=EOD, reset_position_ids=True, eod_mask_loss=True)
COLLATORS = {
    "clm": (DataCollatorForCLM(LENGTH, 0, 0, 0), clm_fields),
    "documents": (DataCollatorForCLM(LENGTH, 0, 0, 0, MASKS), document_fields),
    "positions": (
        DataCollatorForCLMWithPositionIds(LENGTH, 0, 0, 0, MASKS),
        positioned_fields,
    ),
    "labels": (DataCollatorWithLabels(LENGTH), labelled_fields),
    "megatron": (MegatronCollator(CONFIG), megatron_fields),
}


# ---- the loaders


def nanoset_loader(corpus, collator, **options):
    return build_nanoset_dataloader(
        corpus[0], micro_batch_size=BATCH, collate_fn=collator, **options
    )


def torch_loader(corpus, collator, **options):
    return DataLoader(corpus[0], batch_size=BATCH, collate_fn=collator, **options)


def stream_loader(corpus, collator, **options):
    stream = TokenStream(
        corpus[1], number_tokenizer(NUM_TOKENS + 1), LENGTH, micro_batch_size=BATCH
    )
    return TokenStreamDataLoader(stream, collator, **options)


LOADERS = {
    "blocks": nanoset_loader,
    "blocks, a thread": partial(nanoset_loader, read_ahead=2),
    "blocks, workers": partial(nanoset_loader, num_loading_workers=2),
    "blocks, workers that stay": partial(
        nanoset_loader, num_loading_workers=1, persistent_workers=True
    ),
    "torch": torch_loader,
    "torch, workers": partial(torch_loader, num_workers=1),
    "stream": stream_loader,
    "stream, workers": partial(stream_loader, num_workers=1),
}


# ---- ways to write


def through_numpy(tensor):
    return torch.from_numpy(tensor.numpy())


def through_asarray(tensor):
    return torch.from_numpy(np.asarray(tensor))


def through_dlpack(tensor):
    return torch.from_dlpack(tensor)


def through_shared_memory(tensor):
    return tensor.share_memory_()


def one_element(tensor):
    return tensor[-1:, -1:]


WAYS = [
    torch.Tensor.detach,
    one_element,
    through_numpy,
    through_asarray,
    through_dlpack,
    through_shared_memory,
]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize("loader", LOADERS)
def test_a_write_into_any_field_in_any_way_changes_that_field_alone(
    corpus, loader, collator
):
    """Two epochs, every batch kept; into each one field is written, in each way in turn."""
    collate, fields_of = COLLATORS[collator]
    expected, kept = [], []
    batches = LOADERS[loader](corpus, collate)
    names = list(fields_of(rows_of(0)))
    writes = itertools.cycle(itertools.product(names, WAYS))
    for number, batch in enumerate(itertools.chain(batches, batches)):
        fields = {
            name: value.clone()
            for name, value in fields_of(rows_of(number % NUM_BATCHES)).items()
        }
        kept.append(batch)
        expected.append(fields)
        assert batch.keys() >= fields.keys()
        for name, value in fields.items():
            assert batch[name].dtype == value.dtype
            assert torch.equal(batch[name], value), (
                f"{name} of batch {number} as it is delivered"
            )
        name, way = next(writes)
        for target in (
            way(batch[name]),
            one_element(fields[name]) if way is one_element else fields[name],
        ):
            target.copy_(target == 0)
    assert number + 1 == 2 * NUM_BATCHES
    for number, (batch, fields) in enumerate(zip(kept, expected, strict=True)):
        for name, value in fields.items():
            assert torch.equal(batch[name], value), (
                f"{name} of batch {number} at the end"
            )


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize("loader", [it for it in LOADERS if it != "torch, workers"])
def test_batches_of_inference_mode_may_be_written_to_and_trained_on(
    corpus, loader, collator
):
    """Torch's own DataLoader receives what its workers send in the mode of its caller."""
    with torch.inference_mode():
        batches = list(
            itertools.islice(LOADERS[loader](corpus, COLLATORS[collator][0]), 6)
        )
    for batch in batches:
        for name, value in batch.items():
            if torch.is_tensor(value):
                assert not value.is_inference(), name
                value.zero_()
                (torch.ones(value.shape, requires_grad=True) * value).sum().backward()


@pytest.mark.parametrize("collator", COLLATORS)
def test_a_batch_is_no_view_of_the_samples_it_was_made_of(corpus, collator):
    collate, fields_of = COLLATORS[collator]
    for samples in (
        corpus[0].__getitems__(range(BATCH)),
        [corpus[0][k] for k in range(BATCH)],
    ):
        for value in collate(samples).values():
            value.zero_()
        for name, value in collate(samples).items():
            assert torch.equal(value, fields_of(rows_of(0))[name])


def test_pinned_batches_share_nothing_either(corpus, monkeypatch):
    """A stand-in for an accelerator: pinning copies, as it does there."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    for batch in nanoset_loader(corpus, None, pin_memory=True):
        assert (
            len({value.untyped_storage().data_ptr() for value in batch.values()}) == 4
        )


def test_batches_on_a_device_share_nothing_either(corpus):
    for batch in nanoset_loader(corpus, None):
        moved = to_device(batch, "meta")
        assert len({value.untyped_storage()._cdata for value in moved.values()}) == 4


def test_threads_may_write_into_batches_of_one_block_at_the_same_time(corpus):
    """torch's lazy copies may not be written to by two threads at once, so a process with threads gets real ones."""
    gate = threading.Barrier(2)

    def write(batch):
        gate.wait()
        for value in batch.values():
            value.zero_()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: gate.wait(), range(2)))
        for _ in range(20):
            batches = list(nanoset_loader(corpus, None))
            list(pool.map(write, batches))
            assert not any(value.any() for batch in batches for value in batch.values())


FORK = """
import os, sys
from nanoset_ref import Nanoset, build_nanoset_dataloader
from nanoset_ref.load import blocks
blocks.BLOCK_BYTES = 200
loader = build_nanoset_dataloader(Nanoset("a.npy", None, 6, 48), micro_batch_size=2, **eval(sys.argv[1]))
batches = iter(loader)
held = [next(batches) for _ in range(3)]
before = [{name: value.tolist() for name, value in batch.items()} for batch in held]
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.read(reading, 1)
    same = before == [{name: value.tolist() for name, value in batch.items()} for batch in held]
    os._exit(0 if same else 1)
for value in held[2].values():
    value.zero_()
del held
for batch in batches:
    for value in batch.values():
        value.zero_()
os.write(writing, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    "options",
    [{}, {"num_loading_workers": 1}, {"num_loading_workers": 1, "read_ahead": 1}],
)
def test_a_forked_child_keeps_the_values_of_the_batches_it_holds(corpus, options):
    folder = corpus[0].files[0].path.parent
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(options)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
