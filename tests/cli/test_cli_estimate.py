"""nanoset-ref estimate: what arithmetic says of a run is what the real one holds and reads."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import LAYOUT, ids_of
from run_config import GPT2, run_tree
from token_files import write_range

from nanoset_ref.cli.estimate_sources import Source, SourceBlend
from nanoset_ref.load.blocks import choose_sizes, count_buffers
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.gather import PageCacheGatherer
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.megatron import NanosetBuilder, NanosetConfig
from nanoset_ref.preprocess.tokenizer import load_tokenizer
from nanoset_ref.tokens import MMapIndexedDatasetBuilder
from nanoset_ref.train import main as train

EPOCH = 30 + 50  # samples of 4 tokens in a.npy and b.npy


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_range("a.npy", 4 * 30 + 3)
    write_range("b.npy", 4 * 50 + 1)
    return ["a.npy", "b.npy"]


@pytest.mark.parametrize(
    ("order", "weights"),
    [
        ("identity", None),
        *itertools.product(["nanotron", "stateless"], [None, (1, 1), (9, 1)]),
    ],
)
@pytest.mark.parametrize("samples", [EPOCH, 3 * EPOCH, 48])
def test_readings_and_what_is_never_read_are_those_of_the_run(
    ask, files, order, weights, samples
):
    """The oracle: every position of the order, counted. In an epoch that is not complete, chance adds its part."""
    data = (
        [f"{name}={weight}" for name, weight in zip(files, weights, strict=True)]
        if weights
        else files
    )
    options = (
        "--data",
        *data,
        "--sequence-length",
        4,
        "--num-samples",
        samples,
        "--micro-batch-size",
        2,
    )
    (stage,) = ask("estimate", *options, "--order", order)["stages"]
    dataset = Nanoset(files, weights, 4, samples, order=order)
    chance = (
        5 * math.sqrt(samples) / 2 if samples % EPOCH and order == "nanotron" else 0
    )
    pairs = list(zip(*(found.tolist() for found in dataset.order[:]), strict=True))
    for number, source in enumerate(stage["sources"]):
        mine = [sample for file, sample in pairs if file == number]
        assert abs(source["read"] - len(mine)) <= 2 * max(1, samples // EPOCH) + chance
        never = dataset.dataset_lengths[number] - len(set(mine))
        assert abs(source["never_read"] - never) <= 2 + chance
        assert source["tail_tokens"] == (2, 0)[number]
    assert stage["samples_per_epoch"] == EPOCH
    assert stage["index_bytes"] == (
        dataset.order.instances.nbytes if order == "nanotron" else 0
    )
    assert stage["data_bytes"] == 2 * sum(file.num_tokens for file in dataset.files)
    whole = Nanoset(files, weights, 4, EPOCH, order=order)
    assert stage["micro_batches_per_epoch"] == len(
        build_nanoset_dataloader(whole, micro_batch_size=2)
    )


def test_an_order_that_takes_weights_sometimes_is_estimated_with_them(ask, files):
    data = [f"{name}={weight}" for name, weight in zip(files, (1, 3), strict=True)]
    options = ("--sequence-length", 4, "--num-samples", 60, "--order", "nanotron_main")
    (stage,) = ask("estimate", "--data", *data, *options)["stages"]
    dataset = Nanoset(files, [1, 3], 4, 60, order="nanotron_main")
    assert [source["read"] for source in stage["sources"]] == (
        dataset.order.counts(60).tolist()
    )


def test_a_file_that_is_given_twice_is_two_sources(ask, files):
    options = ("--sequence-length", 4, "--num-samples", 60)
    (stage,) = ask("estimate", "--data", "a.npy", "a.npy", *options)["stages"]
    samples = [source["samples"] for source in stage["sources"]]
    reads = [source["read"] for source in stage["sources"]]
    assert samples == reads == [30, 30]


@pytest.mark.parametrize("block_factor", [1, 4])
def test_the_buffers_are_as_large_as_those_of_the_loader(
    ask, files, monkeypatch, block_factor
):
    """Blocks of files in a bucket, or of files larger than memory, are four times as large."""
    monkeypatch.setattr(PageCacheGatherer, "block_factor", block_factor)
    batch = 50_000
    options = ("--sequence-length", 4, "--num-samples", 2 * batch)
    (stage,) = ask("estimate", "--data", *files, *options, "--micro-batch-size", batch)[
        "stages"
    ]
    buffers = count_buffers(0, None, 0)
    sizes = choose_sizes(Nanoset(files, None, 4), batch, buffers, shared=False)
    rows, row_length = sizes.shape
    assert stage["buffer_bytes"] == buffers * rows * row_length * 4


@pytest.mark.parametrize("read_to", [100, 500, 900])
def test_the_samples_of_a_short_source_that_an_epoch_s_beginning_reads_are_their_mean_over_shuffles(
    read_to,
):
    """An epoch of 1,000 has 450 reads of a source of 200 samples: 50 are in it three times, the others twice."""
    short, long = (
        Source(path="a", disk_bytes=0, samples=200),
        Source(path="b", disk_bytes=0, samples=800),
    )
    blend = SourceBlend(
        sources=[short, long], weights=[0.45, 0.55], order_name="nanotron"
    )
    epoch = np.concatenate([np.arange(450) % 200, np.full(550, -1)])
    shuffles = np.random.default_rng(0)
    counts = []
    for _ in range(2000):
        beginning = shuffles.permutation(epoch)[:read_to]
        counts.append(len(np.unique(beginning[beginning >= 0])))
    error = np.std(counts) / math.sqrt(len(counts))
    expected = blend.distinct(0, 0.45 * read_to, read_to)
    # the estimate draws with replacement: 0.1 samples more or less
    assert abs(expected - np.mean(counts)) < 4 * error + 0.1


@pytest.mark.parametrize("weights", [("", ""), ("=3", "=1")])
def test_megatrons_indexes_are_as_large_as_estimated(
    run, ask, corpus, tmp_path, weights
):
    data, prefixes = [], []
    for domain, weight in zip(("stories", "programs"), weights, strict=True):
        run("convert", ids_of(corpus, domain), tmp_path / f"{domain}.bin")
        data.append(f"{tmp_path / domain}{weight}")
        prefixes.append(str(tmp_path / domain))
    options = [
        "--data",
        *data,
        *LAYOUT,
        *(["--num-samples", 6000] if weights[0] else []),
    ]
    (stage,) = ask("estimate", *options)["stages"]
    path = dict(zip(prefixes, (3, 1), strict=True)) if weights[0] else prefixes
    asked = {
        "split": "1,0,0",
        "split_num_samples": (6000 if weights[0] else None, 0, 0),
    }
    config = NanosetConfig(
        random_seed=1234, sequence_length=32, data_path=path, **asked
    )
    built = NanosetBuilder(config).build(["train"])[0]
    arrays = [
        getattr(part, f"{name}_index")
        for part in built.datasets
        for name in ("document", "sample", "shuffle")
    ]
    arrays += [built.dataset_index, built.dataset_sample_index]
    assert abs(
        stage["index_bytes"] - sum(array.nbytes for array in arrays)
    ) <= 20 * len(path)
    report = ask("audit", *options)["segments"][0]
    assert (stage["steps"], stage["samples"]) == (
        report["num_steps"],
        sum(it["read"] for it in report["sources"]),
    )
    for estimated, real in zip(stage["sources"], report["sources"], strict=True):
        assert abs(estimated["read"] - real["read"]) <= 2
        assert estimated["samples"] == real["num_samples"]


def test_an_order_of_any_integers_is_as_long_as_its_numbers(ask, files):
    orders = {
        "raw.npy": np.arange(40, dtype="<u4").tofile,
        "int64.npy": lambda path: np.save(path, np.arange(40)),
    }
    for name, write in orders.items():
        write(name)
        options = ("--data", *files, "--sequence-length", 4, "--order", name)
        assert ask("estimate", *options)["stages"][0]["samples"] == 40
        assert ask("audit", *options)["segments"][0]["num_steps"] == 40


def test_an_order_that_takes_no_weights_is_estimated_without_them(run, files):
    data = ("--data", "a.npy=9", "b.npy=1", "--sequence-length", 4)
    for command in ("estimate", "audit"):
        code, _, error = run(command, *data, "--order", "identity")
        assert code == 1 and "the order 'identity' takes no weights" in error


@pytest.mark.parametrize("weights", [None, (9, 1)])
@pytest.mark.parametrize("order", ["maxtext", "grain", "llm_c", "repeats.npy"])
def test_an_order_of_another_loader_or_in_a_file_is_counted(ask, files, order, weights):
    """In repeats.npy some samples are read often and most never; MaxText's blend is even without weights."""
    if weights and order != "maxtext":
        return
    np.save("repeats.npy", np.arange(64) % 7 * 5)
    data = files
    if weights:
        data = [f"{name}={weight}" for name, weight in zip(files, weights, strict=True)]
    options = ("--data", *data, "--sequence-length", 4, "--num-samples", 60)
    options += ("--order", order, "--consumed-train-samples", 13)
    (stage,) = ask("estimate", *options)["stages"]
    counted = Nanoset(files, weights, 4, 60, order=order).order
    for number, source in enumerate(stage["sources"]):
        samples = [
            sample
            for file, sample in map(counted.__getitem__, range(60))
            if file == number
        ]
        before = [
            file for file, _ in map(counted.__getitem__, range(13)) if file == number
        ]
        assert source["read"] == len(samples) - len(before)
        assert source["samples"] - source["never_read"] == len({*samples})
    report = ask("audit", *options)
    assert report["ok"]
    shares = [source["weight"] for source in report["segments"][0]["sources"]]
    assert [source["share"] for source in stage["sources"]] == shares


@pytest.mark.parametrize("order", ["stateless", "llm_c", "nanotron_main"])
def test_a_run_that_is_over_has_no_steps(ask, files, order):
    options = ("--data", *files, "--sequence-length", 4, "--num-samples", 60)
    options += ("--order", order, "--consumed-train-samples", 500)
    (stage,) = ask("estimate", *options)["stages"]
    assert (stage["steps"], stage["samples"]) == (0, 0)
    assert [source["read"] for source in stage["sources"]] == [0, 0]


def test_stages_that_go_on_know_what_was_read_before_them(ask, files):
    stateless = {"dataset_path": {"a.npy": 1.0}, "order": "stateless"}
    both = {"dataset_path": {"a.npy": 1.0, "b.npy": 3.0}, "order": "stateless"}
    stages = [
        ("first", 1, stateless, {}),
        ("second", 6, both, {}),
        ("again", 11, stateless | {"reuse": "restart"}, {}),
    ]
    config = run_tree(
        "checkpoints",
        stages,
        steps=12,
        length=4,
        model=GPT2 | {"vocab_size": 300},
        dp=2,
    )
    with open("run.yaml", "w") as file:
        json.dump(config, file)
    size = (
        2
        * config["tokens"]["micro_batch_size"]
        * config["tokens"].get("batch_accumulation_per_replica", 1)
    )
    found = ask("estimate", "--config", "run.yaml", "--step-time", 1800)
    first, second, again = found["stages"]
    reports = ask("audit", "--config", "run.yaml")["segments"]
    for stage, report in zip((first, second, again), reports, strict=True):
        assert stage["samples"] == report["num_steps"] * size
        for estimated, real in zip(stage["sources"], report["sources"], strict=True):
            assert abs(estimated["read"] - real["read"]) <= 2
            assert (
                abs(estimated["never_read"] - (real["num_samples"] - real["distinct"]))
                <= 2
            )
    assert (
        second["sources"][0]["never_read"]
        < first["sources"][0]["never_read"]
        == 30 - 5 * size
    )
    assert (found["steps"], found["gpus"], found["hours"], found["gpu_hours"]) == (
        12,
        2,
        6.0,
        12.0,
    )


def test_a_run_whose_batch_changed_is_estimated_in_its_parts(ask, files):
    """Stage one, of steps 1 to 5, had batches of 4 samples up to step 4."""
    one = {"dataset_path": {"a.npy": 1.0}, "order": "stateless"}
    both = {"dataset_path": {"a.npy": 1.0, "b.npy": 3.0}, "order": "stateless"}
    stages = [("one", 1, one, {}), ("both", 6, both, {})]
    for steps, rows in ((4, 4), (9, 6)):
        config = run_tree("checkpoints", stages, steps=steps, length=4, rows=rows)
        Path("run.yaml").write_text(json.dumps(config))
        assert train(["--config", "run.yaml"]) == 0
    found = ask("estimate", "--config", "checkpoints")
    parts = [(it["name"], it["steps"], it["samples"]) for it in found["stages"]]
    assert parts == [("one", 4, 16), ("one, from step 5", 1, 6), ("both", 4, 24)]
    assert (found["steps"], found["tokens"]) == (9, 4 * 46)
    reports = ask("audit", "--config", "checkpoints")["segments"]
    for stage, report in zip(found["stages"], reports, strict=True):
        for estimated, real in zip(stage["sources"], report["sources"], strict=True):
            assert abs(estimated["read"] - real["read"]) <= 1
    assert [it["sources"][0]["never_read"] for it in found["stages"][:2]] == [14, 8]


def test_an_estimate_needs_none_of_the_memory_that_the_run_needs(run, tmp_path):
    """An order of 10**10 samples is 80 GB; a sparse file has their tokens."""
    path = tmp_path / "huge.npy"
    np.zeros(1, dtype=np.uint16).tofile(path)
    with open(path, "r+b") as file:
        file.truncate(2 * (10**10 * 4 + 1))
    speed = ("--tokens-per-second", 10**7, "--gpus", 512)
    code, said, _ = run("estimate", "--data", path, "--sequence-length", 4, *speed)
    assert code == 0
    assert "an epoch: 10,000,000,000 samples" in said and "index 74.5 GiB" in said
    assert said.endswith(
        "40,000,000,000 tokens on 512 GPUs: 1.11 hours, 568.89 GPU-hours\n"
    )


def test_chunks_and_text_are_estimated_as_far_as_they_are_known(ask, files, corpus):
    lines = [json.dumps({"token_ids": [number] * 5}) + "\n" for number in range(20)]
    Path("chunks").mkdir()
    Path("chunks/train_0.jsonl").write_text("".join(lines))
    chunks = {
        "chunks": "chunks",
        "vocab_size": len(load_tokenizer(corpus / "tokenizer")),
    }
    stages = [
        ("chunks", 1, chunks, {}),
        ("words", 3, {"text": str(corpus / "stories.jsonl")}, {}),
    ]
    config = run_tree(
        "checkpoints",
        stages,
        steps=9,
        length=4,
        model=GPT2 | {"vocab_size": 8192},
        dp=2,
    )
    config["tokenizer"] = {"tokenizer_name_or_path": str(corpus / "tokenizer")}
    Path("run.yaml").write_text(json.dumps(config))
    first, words = ask("estimate", "--config", "run.yaml")["stages"]
    (source,) = first["sources"]
    assert (
        first["samples"],
        source["samples"],
        source["read"],
        source["never_read"],
    ) == (
        8,
        20,
        8,
        12,
    )
    assert (words["steps"], words["tokens"], words["sources"]) == (7, 7 * 4 * 4, [])


@pytest.mark.parametrize("tokens", [5, 8, 9, 10])
def test_the_tail_of_a_pair_is_that_of_its_dataset(ask, tmp_path, monkeypatch, tokens):
    monkeypatch.chdir(tmp_path)
    with MMapIndexedDatasetBuilder("p.bin", np.uint16) as builder:
        builder.add_document(np.arange(tokens), [tokens])
    config = NanosetConfig(
        random_seed=1234, sequence_length=4, data_path="p", split="1,0,0"
    )
    dataset, *_ = NanosetBuilder(config).build()
    words = ["--data", "p.bin", "--sequence-length", 4, "--split", "1,0,0"]
    (stage,) = ask("estimate", *words)["stages"]
    (source,) = stage["sources"]
    assert source["samples"] == dataset.samples_per_epoch == (tokens - 1) // 4
    assert source["tail_tokens"] == dataset.tail_tokens
