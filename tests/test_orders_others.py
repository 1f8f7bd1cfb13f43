"""Orders of other loaders: the arrays that the real packages return, and the way back from a sample."""

import json
import pickle
import random

import numpy as np
import pytest
from file_kinds import write_shard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nanoset_ref import Nanoset, TokenFile, TokenFileError, open_tokens
from nanoset_ref.cli import main
from nanoset_ref.load.resumable_sampler import ResumableBatchSampler
from nanoset_ref.megatron.index.three_indexes import blend_samples
from nanoset_ref.orders import SkippingOrder, build_order, recipe_of, traced_shuffle
from nanoset_ref.orders.others import (
    GrainOrder,
    OLMoCoreOrder,
    document_walk,
    nanotron_stages,
    olmo_core,
    packed_instances,
)

SIZES = st.lists(st.integers(0, 15), min_size=1, max_size=4).filter(any)
SEEDS = st.integers(0, 2**32 - 1)


def instances(order, positions):
    """The instances at some positions, as the loader of another package numbers its rows."""
    datasets, samples = order.lookup(np.asarray(positions, dtype=np.int64))
    return (order.source_offsets[datasets] + samples).tolist()


def check_contract(order):
    """What every order promises: the way back is a search, counts are counts, and the recipe makes it again."""
    pairs = [order[k] for k in range(len(order))]
    assert list(zip(*(part.tolist() for part in order[:]), strict=True)) == pairs
    half = len(order) // 2
    for dataset, length in enumerate(order.dataset_lengths.tolist()):
        assert order.counts(half)[dataset] == sum(d == dataset for d, _ in pairs[:half])
        for sample in range(length):
            places = [k for k, pair in enumerate(pairs) if pair == (dataset, sample)]
            assert order.positions(dataset, sample).tolist() == places
            before = [k for k in places if k < half]
            assert order.positions(dataset, sample, half).tolist() == before
    again = pickle.loads(pickle.dumps(order))
    assert again.fingerprint == order.fingerprint
    if recipe_of(order) is not None:
        recipe = json.loads(json.dumps(recipe_of(order)))
        options = recipe.pop("options")
        again = build_order(
            recipe["name"],
            order.dataset_lengths,
            recipe["dataset_weights"],
            len(order),
            recipe["random_seed"],
            **options,
        )
    assert [again[k] for k in range(len(order))] == pairs
    assert again.identity == order.identity


# ---- OLMo-core


def olmo_core_cases(golden):
    return json.loads((golden / "olmo_core_chunks/chunks.json").read_text())


def by_hand(sizes, chunk, seed, batch, epochs):
    """OLMo-core's order in plain Python: the (file, row) of every position of some epochs."""
    kept = [
        (file, row)
        for file, rows in enumerate(sizes)
        for row in range(rows // chunk * chunk)
    ]
    read = []
    for epoch in range(1, epochs + 1):
        chunks = np.arange(len(kept) // chunk, dtype=np.uint32)
        np.random.Generator(np.random.PCG64(seed + epoch)).shuffle(chunks)
        rows = [
            kept[number * chunk + i] for number in chunks.tolist() for i in range(chunk)
        ]
        read += rows[: len(rows) // batch * batch]
    return read


@pytest.mark.parametrize("number", range(6))
def test_rows_and_order_are_those_of_olmo_core(golden, tmp_path, number):
    case = olmo_core_cases(golden)[number]
    length = case["sequence_length"]
    files = []
    for file, tokens in enumerate(case["tokens"]):
        path = tmp_path / f"{file}.npy"
        (np.arange(tokens) % 60000).astype(np.uint16).tofile(path)
        files.append(TokenFile(path))
    chunk = (case["max_target_sequence_length"] or length) // length
    order = f"olmo_core:chunk_size={chunk},batch_size={case['batch']}"
    count = sum(map(len, case["read"]))
    rows = Nanoset(
        files, None, length - 1, count, case["seed"], order=order, disjoint=True
    )
    position = 0
    for epoch, read in enumerate(case["read"]):
        assert rows.order.epoch_of(position) == epoch
        for instance in read:
            file, first, _ = next(
                f for f in case["first_instance_of_files"] if instance < f[2]
            )
            assert rows.order[position] == (file, instance - first)
            found = int(rows.read(np.array([position]))[0, 0])
            assert found == case["first_token_of_instances"][instance]
            position += 1


@given(
    SIZES,
    st.integers(1, 5),
    st.integers(0, 2**31),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_olmo_core_by_hand(sizes, chunk, seed, batch, epochs):
    expected = by_hand(sizes, chunk, seed, batch, epochs)
    options = {"chunk_size": chunk, "batch_size": batch}
    if not expected:
        with pytest.raises(ValueError, match=f"hold a batch of {batch} rows"):
            build_order("olmo_core", sizes, None, 1, seed, **options)
        return
    order = build_order("olmo_core", sizes, None, len(expected), seed, **options)
    assert [order[k] for k in range(len(order))] == expected
    check_contract(order)


@given(
    st.integers(1, 5000),
    st.integers(0, 2**40),
    st.integers(1, 200),
    st.sampled_from([128, 1024]),
)
def test_places_and_values_are_traced_through_numpys_shuffle(n, seed, count, block):
    values = np.arange(n, dtype=np.uint32)
    np.random.Generator(np.random.PCG64(seed)).shuffle(values)
    places = np.random.default_rng(n).permutation(n)[:count]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced_shuffle, "DRAWS_PER_BLOCK", block)
        assert np.array_equal(
            traced_shuffle.traced_values(seed, n, places), values[places]
        )
        found = traced_shuffle.traced_places(seed, n, values[places].astype(np.int64))
    assert np.array_equal(found, places)


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_shuffle_of_millions_is_traced(count):
    n = 3_000_000
    values = np.arange(n, dtype=np.uint32)
    np.random.Generator(np.random.PCG64(7)).shuffle(values)
    places = np.random.default_rng(count).permutation(n)[:count]
    assert np.array_equal(traced_shuffle.traced_values(7, n, places), values[places])
    traced = traced_shuffle.traced_places(7, n, values[places].astype(np.int64))
    assert np.array_equal(traced, places)


@settings(max_examples=25)  # every lookup starts threads
@given(
    SIZES,
    st.integers(1, 5),
    st.integers(0, 2**31),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_olmo_core_traces_the_rows_that_it_looks_up(sizes, chunk, seed, batch, epochs):
    expected = by_hand(sizes, chunk, seed, batch, epochs)
    assume(expected)
    options = {"chunk_size": chunk, "batch_size": batch}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(olmo_core, "MIN_NUMBA_CHUNKS", 0)
        order = build_order("olmo_core", sizes, None, len(expected), seed, **options)
        assert [order[k] for k in range(min(len(order), 4))] == expected[:4]
        check_contract(order)
        patch.setattr(OLMoCoreOrder, "_shuffle", None)  # a step is found without it
        order = build_order("olmo_core", sizes, None, len(expected), seed, **options)
        assert [*zip(*(part.tolist() for part in order[-3:]), strict=True)] == expected[
            -3:
        ]


def test_olmo_core_refuses_what_it_cannot_read():
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        build_order("olmo_core:chunk_size=0", [4], None, 4)
    with pytest.raises(ValueError, match="uint32"):
        build_order("olmo_core", [2**32], None, 4)
    with pytest.raises(ValueError, match="name=number, each once, got 'chunk_size'"):
        build_order("olmo_core:chunk_size", [4], None, 4)
    with pytest.raises(ValueError, match="leave the weights out"):
        build_order("olmo_core", [4], [1.0], 4)


@pytest.fixture(params=range(5))
def packed(request, golden):
    """A recorded case, its arrays, and for each group of files its ids put one after another."""
    folder = golden / "olmo_core_packed"
    case = json.loads((folder / "packed.json").read_text())[request.param]
    prefix = f"{request.param}/"
    with np.load(folder / "packed.npz") as members:
        arrays = {
            name.removeprefix(prefix): members[name]
            for name in members
            if name.startswith(prefix)
        }
    permuted = list(range(len(case["files"])))
    if case["permutation_seed"] is not None:
        random.Random(case["permutation_seed"]).shuffle(permuted)
    assert permuted == case["files"]
    files = [arrays[f"file{number}"] for number in permuted]
    groups = [
        files[i : i + case["group_size"]]
        for i in range(0, len(files), case["group_size"])
    ]
    return case, arrays, groups


def ends_of_documents(files):
    """(start, stop) of every document that ends, in the tokens of files put one after another."""
    found = []
    first = 0
    for ids in files:
        stops = np.flatnonzero(ids == 0) + 1
        found.append(first + np.stack([np.append(0, stops[:-1]), stops], axis=1))
        first += len(ids)
    return np.concatenate(found)


def check_rows(found, groups, arrays, length):
    """The rows that `packed_instances` names hold the ids that OLMo-core's dataset returns."""
    rows = []
    for files, pieces in zip(groups, found, strict=True):
        ids = np.concatenate(files)
        for row in range(pieces[-1, 0] + 1):
            parts = [
                ids[start:stop] for _, start, stop, _ in pieces[pieces[:, 0] == row]
            ]
            joined = np.concatenate(parts)
            rows.append(np.pad(joined, (0, length - len(joined))))
    assert np.array_equal(rows, arrays["rows"])


def test_rows_are_those_that_olmo_core_packs_from_its_cached_documents(packed):
    case, arrays, groups = packed
    length = case["sequence_length"]
    cached = [arrays[f"document_indices{number}"] for number in range(len(groups))]
    found = [packed_instances(documents, length, cached=True) for documents in cached]
    check_rows(found, groups, arrays, length)
    rows = [int(pieces[-1, 0]) + 1 for pieces in found]
    order = f"olmo_core:batch_size={case['batch']}"
    read = [place for epoch in case["read"] for place in epoch]
    order = build_order(order, rows, None, len(read), case["seed"])
    assert instances(order, range(len(read))) == read


def test_rows_are_those_that_olmo_core_packs_from_its_files_where_no_lengths_tie(
    packed,
):
    case, arrays, groups = packed
    length = case["sequence_length"]
    fragment = case["strategy"] == "fragment"
    found = []
    for number, files in enumerate(groups):
        pieces = packed_instances(ends_of_documents(files), length, fragment=fragment)
        theirs = arrays[f"document_indices{number}"]
        theirs = packed_instances(theirs, length, cached=True)
        lengths = pieces[:, 2] - pieces[:, 1]
        certain = pieces[:, 3] == 1
        assert np.array_equal(pieces[:, 0], theirs[:, 0])
        assert np.array_equal(lengths, theirs[:, 2] - theirs[:, 1])
        assert np.array_equal(pieces[certain, :3], theirs[certain, :3])
        assert np.array_equal(
            pieces[:, 3], [np.count_nonzero(lengths == it) for it in lengths]
        )
        assert (theirs[:, 3] == 1).all()
        found.append(pieces)
    if all((pieces[:, 3] == 1).all() for pieces in found):
        check_rows(found, groups, arrays, length)
        assert not fragment and length == 1024, "the case without ties"


def test_the_packing_of_the_docstring():
    documents = [[0, 5], [5, 7], [7, 16], [16, 19]]
    expected = [[0, 7, 15, 1], [1, 0, 5, 1], [1, 16, 19, 1], [2, 5, 7, 1]]
    assert packed_instances(documents, 8).tolist() == expected
    whole = packed_instances(documents, 8, fragment=True)
    assert whole[whole[:, 1] == 15].tolist() == [[2, 15, 16, 1]]
    with pytest.raises(ValueError, match="every document must have tokens"):
        packed_instances([[0, 5], [5, 5]], 8)


# ---- grain


def test_places_are_those_of_grain(golden):
    for case in json.loads((golden / "grain/shuffles.json").read_text()):
        count = max(case["places"]) + 1
        order = build_order(
            "grain:accept_repeat=1", [case["samples"]], None, count, case["seed"]
        )
        assert instances(order, case["places"]) == case["read"]
        for place, instance in zip(case["places"][::7], case["read"][::7], strict=True):
            assert place in order.positions(0, instance)


@given(SIZES, SEEDS, st.integers(0, 50))
def test_grain_reads_every_sample_once_in_an_epoch_and_finds_it(sizes, seed, more):
    order = build_order("grain", sizes, None, 2 * sum(sizes) + more, seed)
    for epoch in range(2):
        read = instances(order, np.arange(sum(sizes)) + epoch * sum(sizes))
        assert sorted(read) == list(range(sum(sizes)))
    again = build_order("grain", sizes, None, sum(sizes), (seed + 1) % 2**32)
    assert instances(again, np.arange(sum(sizes))) == read
    check_contract(order)


@given(st.integers(2, 2**45), SEEDS, st.data())
def test_grain_finds_samples_of_long_files(n, seed, data):
    order = build_order("grain:accept_repeat=1", [n], None, 3 * n, seed)
    position = data.draw(st.integers(0, 3 * n - 1))
    assert position in order.positions(*order[position])


@pytest.mark.parametrize("k", [8, 9])
def test_grain_reads_a_sample_twice_and_one_never_where_the_cipher_is_too_small(k):
    n = 4**k + 1
    with pytest.raises(
        ValueError, match="reads one of them twice in an epoch and the last never"
    ):
        build_order("grain", [n], None, n)
    build_order("grain", [n + 1], None, n)
    order = build_order("grain:accept_repeat=1", [n], None, n, 5)
    reads = np.bincount(order[:][1], minlength=n)
    assert np.flatnonzero(reads != 1).tolist() == sorted({order[0][1], n - 1})
    assert order.positions(0, n - 1).tolist() == []
    assert order.positions(*order[0]).tolist() == [0, n - 1]


# ---- llm.c


@pytest.mark.parametrize("number", range(5))
def test_ranks_read_what_llm_c_reads(golden, tmp_path, number):
    case = json.loads((golden / "llm_c/batches.json").read_text())[number]
    paths = [
        write_shard(tmp_path / f"{file}.bin", 10000 * file + np.arange(size))
        for file, size in enumerate(case["tokens"])
    ]
    rows, ranks = case["micro_batch_size"], case["ranks"]
    order = f"llm_c:micro_batch_size={rows},dp_size={ranks},shuffle={case['shuffle']}"
    count = case["steps"] * rows * ranks
    dataset = Nanoset(paths, None, case["sequence_length"], count, order=order)
    theirs = np.array(case["first_tokens"]).reshape(ranks, case["steps"], rows)
    for rank in range(ranks):
        sampler = ResumableBatchSampler(count, rows, rank, ranks, layout="contiguous")
        read = [dataset.read(np.array(batch))[:, 0].tolist() for batch in sampler]
        assert read == theirs[rank].tolist()
    source, _ = dataset.order[0]
    span = dataset.spans(0)[0]
    ids = np.frombuffer(
        paths[source].read_bytes()[span.first_byte : span.end_byte], "<u2"
    )
    assert ids[0] == theirs[0, 0, 0]


def llm_c_by_hand(sizes, batch, ranks, epochs):
    """What the ranks of llm.c read: for every rank a list of (file, batch)."""
    read = []
    for rank in range(ranks):
        generator = np.random.MT19937()
        generator._legacy_seeding(42 + rank)

        def permute(values, generator=generator):
            for i in range(len(values) - 1, 0, -1):
                j = int(generator.random_raw()) % (i + 1)
                values[i], values[j] = values[j], values[i]
            return values

        files = list(range(len(sizes)))
        read.append([])
        for _ in range(epochs):
            for file in permute(files):
                order = permute(list(range(sizes[file] // (batch * ranks))))
                read[-1] += [(file, number) for number in order]
    return read


@given(
    st.lists(st.integers(8, 30), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_llm_c_by_hand(sizes, batch, ranks, epochs):
    read = llm_c_by_hand(sizes, batch, ranks, epochs)
    expected = [
        (file, (number * ranks + rank) * batch + row)
        for step in range(len(read[0]))
        for rank in range(ranks)
        for file, number in [read[rank][step]]
        for row in range(batch)
    ]
    options = {"micro_batch_size": batch, "dp_size": ranks}
    order = build_order("llm_c", sizes, None, len(expected), **options)
    assert [order[k] for k in range(len(order))] == expected
    check_contract(order)


def test_llm_c_refuses_a_file_without_a_batch():
    with pytest.raises(ValueError, match="file 1 has 7"):
        build_order("llm_c:micro_batch_size=8", [9, 7], None, 8)


@pytest.mark.parametrize(
    ("magic", "dtype", "begins"), [(20240520, "<u2", 50256), (20240801, "<u4", 128000)]
)
def test_shards_are_opened_with_their_documents(tmp_path, magic, dtype, begins):
    version = 1 if magic == 20240520 else 7
    tokens = [5, 6, begins, 1, 2, begins, 3]
    file = open_tokens(write_shard(tmp_path / "a.bin", tokens, magic, version, dtype))
    assert file.tokens.tolist() == tokens
    assert file.document_offsets.tolist() == [0, 2, 5, 7]
    assert pickle.loads(pickle.dumps(file)).tokens.tolist() == tokens
    other = open_tokens(tmp_path / "a.bin", eos_token_id=3)
    assert other.document_offsets.tolist() == [0, 6, 7]


def test_damaged_shards_are_refused(tmp_path):
    path = write_shard(tmp_path / "a.bin", np.arange(10))
    whole = path.read_bytes()
    for damaged in (
        whole[:-1],
        whole + b"  ",
        whole[:4] + b"\x02" + whole[5:],
        whole[:1024],
    ):
        path.write_bytes(damaged)
        with pytest.raises(TokenFileError, match="its header requires version 1"):
            open_tokens(path)
    path.write_bytes(whole[:1000])
    with pytest.raises(TokenFileError, match="does not begin with the header"):
        open_tokens(path)


# ---- Nanotron, main branch


def split_in_files(size):
    """A folder's rows in files of 7, of none, and the rest."""
    return [7, 0, size - 7] if size > 7 else [size]


def config_of_nanotron(case):
    """The YAML that a recorded run would have had, parsed."""
    stages = []
    for number, stage in enumerate(case["stages"]):
        dataset = {"dataset_folder": [path for path, _ in stage["folders"]]}
        if stage["weights"]:
            dataset["dataset_weights"] = stage["weights"]
        data = {"dataset": dataset, "seed": 6}
        stages.append(
            {"name": str(number), "start_training_step": stage["first"], "data": data}
        )
    return {
        "tokens": {
            "micro_batch_size": case["micro_batch_size"],
            "batch_accumulation_per_replica": case["accumulation"],
            "train_steps": case["steps"],
            "sequence_length": case["sequence_length"],
        },
        "parallelism": {"dp": case["ranks"]},
        "data_stages": stages,
    }


@pytest.mark.parametrize("number", range(4))
def test_stages_and_ledger_are_those_of_nanotron(golden, number):
    case = json.loads((golden / "nanotron_main/stages.json").read_text())[number]
    folders = {
        path: size for stage in case["stages"] for path, size in stage["folders"]
    }
    rows = {path: split_in_files(size) for path, size in folders.items()}
    orders = nanotron_stages(config_of_nanotron(case), rows)
    batch = case["micro_batch_size"] * case["ranks"] * case["accumulation"]
    for order, stage in zip(orders, case["stages"], strict=True):
        paths = [path for path, _ in stage["folders"]]
        places = [
            (folder, row)
            for folder, path in enumerate(paths)
            for row in range(folders[path])
        ]
        read = [[places[instance] for instance in instances(order, range(len(order)))]]
        for rank, theirs in enumerate(stage["read"]):
            rows_of_rank = case["micro_batch_size"], rank, case["ranks"]
            sampler = ResumableBatchSampler(
                len(order), *rows_of_rank, layout="contiguous"
            )
            assert [list(read[0][k]) for batch in sampler for k in batch] == theirs
        last = stage["first"] + len(order) // batch - 1
        counted = order.rows_counted_by_nanotron(stage["first"], last, batch)
        tokens = [count * case["sequence_length"] for count in counted]
        assert dict(zip(paths, tokens, strict=True)) == stage["counted_tokens"]


@given(
    st.lists(st.integers(5, 12), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.integers(0, 5),
)
def test_nanotron_main_by_hand(sizes, weights, length):
    weights = [weight + 1 for weight in weights[: len(sizes)]]
    files = [part for size in sizes for part in split_in_files(size)]
    options = {
        "folders": [len(split_in_files(size)) for size in sizes],
        "offsets": [0] * len(sizes),
    }
    order = build_order("nanotron_main", files, weights, length, **options)
    shares = np.array(weights) / np.sum(weights)
    taken = [0] * len(sizes)
    expected = []
    for t in range(length):
        folder = int(np.argmax(shares * max(t, 1) - taken))
        expected.append(sum(sizes[:folder]) + taken[folder])
        taken[folder] += 1
    assert instances(order, range(length)) == expected
    check_contract(order)


def test_a_folder_that_runs_out_is_refused():
    with pytest.raises(
        ValueError, match="folder 1 has 3 rows; this stage would read 2 from 2 on"
    ):
        build_order("nanotron_main", [9, 3], None, 4, offsets=[0, 2])
    with pytest.raises(ValueError, match="folders count 2 files"):
        build_order("nanotron_main", [9, 3], None, 4, folders=[1, 2])
    config = {
        "tokens": {
            "micro_batch_size": 1,
            "batch_accumulation_per_replica": 1,
            "train_steps": 2,
        },
        "parallelism": {"dp": 1},
        "data_stages": [
            {
                "name": "stable",
                "start_training_step": 1,
                "data": {"dataset": {"dataset_folder": "a", "dataset_max_tokens": [5]}},
            }
        ],
    }
    with pytest.raises(ValueError, match="'stable' sets dataset_max_tokens"):
        nanotron_stages(config, {"a": [5]})


@pytest.mark.parametrize("weights", [[9, 1], None])
def test_files_of_nanotron_main_have_the_weight_of_their_folder(weights):
    """As those of a FolderOrder; without weights all folders weigh the same."""
    order = build_order("nanotron_main", [30, 10, 20], weights, 40, folders=[2, 1])
    first, second = np.array(weights or [1, 1]) / sum(weights or [1, 1])
    expected = [0.75 * first, 0.25 * first, second]
    assert order.dataset_weights.tolist() == pytest.approx(expected)
    assert order.weighted
    skipping = SkippingOrder(order, [(3, 5)])
    assert skipping.dataset_weights.tolist() == pytest.approx(expected)
    recipe = recipe_of(order)
    again = build_order(
        recipe["name"],
        [30, 10, 20],
        recipe["dataset_weights"],
        9,
        **recipe["options"],
    )
    assert again.identity == order.identity


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"offsets": [0, -1]}, "an offset must be at least 0, got -1"),
        ({"offsets": [0, 1.9]}, "an offset must be an integer of at least 0, got 1.9"),
        ({"folders": [3, -1]}, "a number of files must be at least 0, got -1"),
        ({"folders": [1, True]}, "a number of files must be an integer of at least"),
        ({"folders": 3}, r"folders count 2 files.*folders=\[3\], offsets=\[0\]"),
    ],
)
def test_an_offset_or_a_number_of_files_is_a_whole_number(option, problem):
    with pytest.raises(ValueError, match=problem):
        build_order("nanotron_main", [3, 4], None, 4, **option)


def test_one_folder_may_be_given_by_its_number_of_files():
    order = build_order("nanotron_main:folders=2,offsets=1", [3, 4], None, 4)
    assert instances(order, range(4)) == [1, 2, 3, 4]


def test_stages_that_a_run_does_not_reach_are_no_stages():
    config = {
        "tokens": {
            "micro_batch_size": 2,
            "batch_accumulation_per_replica": 1,
            "train_steps": 10,
        },
        "parallelism": {"dp": 2},
        "data_stages": [
            {
                "name": name,
                "start_training_step": start,
                "data": {"dataset": {"dataset_folder": name}},
            }
            for name, start in (("b", 50), ("a", 1))
        ],
    }
    (order,) = nanotron_stages(config, {"a": [200]})
    assert len(order) == 40, "10 steps of 4 rows"


def test_long_stages_are_blended_block_by_block():
    weights = [0.15, 0.6, 0.25]
    count = 40_000  # more than two blocks
    order = build_order("nanotron_main", [count] * 3, weights, count, offsets=[3, 0, 7])
    shares = np.array(weights) / np.sum(weights)
    folders, rows = blend_samples(shares, np.full(3, count), count)
    found = order[:]
    assert np.array_equal(found[0], folders)
    assert np.array_equal(found[1], rows + np.array([3, 0, 7])[folders])
    for position in (0, 16_383, 16_384, 32_768, 39_999):
        assert order.positions(*order[position]).tolist() == [position]
    assert (
        order.positions(0, 2).tolist() == order.positions(1, count - 1).tolist() == []
    )


def test_commands_take_the_order_of_a_published_run(golden, tmp_path, capsys):
    case = olmo_core_cases(golden)[0]
    paths = []
    for file, tokens in enumerate(case["tokens"]):
        paths.append(str(tmp_path / f"{file}.npy"))
        (np.arange(tokens) % 60000).astype(np.uint16).tofile(paths[-1])
    order = f"olmo_core:chunk_size=2,batch_size={case['batch']}"
    run = ["--data", *paths, "--row-length", "8", "--order", order, "--seed", "34521"]
    run += ["--num-samples", str(len(case["read"][0])), "--micro-batch-size", "4"]
    main(["where", *run, "--step", "3"])
    printed = capsys.readouterr().out
    file, first, _ = next(
        f for f in case["first_instance_of_files"] if case["read"][0][8] < f[2]
    )
    sample = case["read"][0][8] - first
    assert f"{file}.npy" in printed
    assert f"{sample * 8 * 2:,}" in printed or str(sample * 8 * 2) in printed


# ---- modded-nanogpt


@pytest.mark.parametrize("number", range(4))
def test_pieces_are_those_of_modded_nanogpt(golden, tmp_path, number):
    case = json.loads((golden / "modded_nanogpt/pieces.json").read_text())[number]
    shards = []
    for file, (begins, size) in enumerate(
        zip(case["begins"], case["tokens"], strict=True)
    ):
        tokens = np.zeros(size, dtype=np.int64)
        tokens[begins] = 50256
        shards.append(open_tokens(write_shard(tmp_path / f"{file}.bin", tokens)))
    numbers = case["tokens_per_rank"], case["max_length"], case["ranks"]
    expected = [
        [step, rank, *piece]
        for step, ranks in enumerate(case["read"])
        for rank, pieces in enumerate(ranks)
        for piece in pieces
    ]
    assert document_walk(shards, *numbers).tolist() == expected


def test_the_walk_of_the_docstring(tmp_path):
    tokens = np.zeros(16, dtype=np.int64)
    tokens[[0, 3, 12]] = 50256
    file = open_tokens(write_shard(tmp_path / "a.bin", tokens))
    walk = document_walk([file], 5, 4, 1)
    assert walk.tolist() == [[0, 0, 0, 0, 3], [0, 0, 0, 3, 6]]
    assert document_walk([file], 16, 4, 1).shape == (0, 5)
    with pytest.raises(ValueError, match="ranks"):
        document_walk([file], 5, 4, 0)


# ---- Levanter


def test_places_are_those_of_levanter(golden):
    for case in json.loads((golden / "levanter/shuffles.json").read_text()):
        size = case["samples"]
        order = build_order("levanter", [size], None, 2 * size, case["drawn"])
        assert instances(order, case["places"]) == case["read"]
        for place, instance in zip(case["places"][::7], case["read"][::7], strict=True):
            assert order.positions(0, instance).tolist() == [place, place + size]


@given(SIZES, SEEDS, st.integers(0, 50))
def test_levanter_reads_every_sample_once_in_an_epoch_and_finds_it(sizes, seed, more):
    order = build_order("levanter", sizes, None, 2 * sum(sizes) + more, seed)
    first, second = (
        instances(order, np.arange(sum(sizes)) + e * sum(sizes)) for e in range(2)
    )
    assert sorted(first) == list(range(sum(sizes))) and first == second
    check_contract(order)


# ---- MaxText


def test_hosts_read_what_those_of_maxtext_read(golden):
    for case in json.loads((golden / "maxtext/hosts.json").read_text()):
        hosts = case["hosts"]
        count = hosts * len(case["read"][0])
        order = f"maxtext:hosts={hosts}"
        order = build_order(order, case["sizes"], case["weights"], count, case["seed"])
        for host, read in enumerate(case["read"]):
            assert instances(order, np.arange(host, count, hosts)) == read
        for position in range(0, count, 13):
            assert position in order.positions(*order[position])


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.lists(st.floats(0.05, 1), min_size=4, max_size=4),
    SEEDS,
    st.integers(1, 4),
    st.integers(0, 120),
)
def test_maxtext_finds_what_it_reads(sizes, weights, seed, hosts, count):
    order = build_order(
        f"maxtext:hosts={hosts}", sizes, weights[: len(sizes)], count, seed
    )
    check_contract(order)


def test_maxtext_searches_no_further_than_it_is_asked_to(monkeypatch):
    """The mixture repeats after 2,000 records, of which 20 positions ask for the first few."""
    ends = []
    reverse_lookup_each = GrainOrder.reverse_lookup_each

    def noting(order, datasets, samples, until):
        ends.append(until)
        return reverse_lookup_each(order, datasets, samples, until)

    monkeypatch.setattr(GrainOrder, "reverse_lookup_each", noting)
    order = build_order("maxtext", [3, 5], [0.05, 0.95], 20)
    for source, read in enumerate(order.counts(20).tolist()):
        assert order.positions(source, 0).tolist() == [
            k for k in range(20) if order[k] == (source, 0)
        ]
        assert ends.pop() == read


@pytest.mark.parametrize("weight", [1e-12, 5e-324])
def test_maxtext_names_a_weight_whose_period_does_not_fit_into_memory(weight):
    with pytest.raises(MemoryError, match=f"raise the weight {weight}, or leave"):
        build_order("maxtext", [3, 4], [1, weight], 7)


def test_maxtext_refuses_what_grain_cannot_mix():
    with pytest.raises(ValueError, match="weights above 0; got"):
        build_order("maxtext", [3, 4], [0, 1], 7)
    with pytest.raises(ValueError, match="no permutation"):
        build_order("maxtext", [65537], None, 7)


# ---- mosaicml-streaming


def test_ranks_read_what_those_of_mosaicml_read(golden):
    for case in json.loads((golden / "mosaicml/ranks.json").read_text()):
        options = {name: case[name] for name in ("canonical_nodes", "block_size")}
        order = build_order("py1e", case["sizes"], None, 10**6, case["seed"], **options)
        for epoch, nodes in enumerate(case["read"]):
            ranks = len(nodes[0])
            for node, read_in_node in enumerate(nodes):
                for rank, read in enumerate(read_in_node):
                    stride = len(nodes) * ranks
                    places = np.arange(
                        node + len(nodes) * rank, order.epoch_length, stride
                    )
                    found = instances(order, places + epoch * order.epoch_length)
                    assert found == read[: len(found)]
                    assert len(read) - len(found) <= 1, "which fills up the ranks"


@given(SIZES, SEEDS, st.integers(1, 5), st.integers(2, 20), st.integers(0, 40))
def test_py1e_reads_every_sample_in_an_epoch_and_finds_it(
    sizes, seed, nodes, block, count
):
    options = {"canonical_nodes": nodes, "block_size": block}
    if sum(sizes) < nodes:
        with pytest.raises(ValueError, match=f"fewer than canonical_nodes={nodes}"):
            build_order("py1e", sizes, None, count, seed, **options)
        return
    order = build_order("py1e", sizes, None, count, seed, **options)
    read = instances(order, np.arange(order.epoch_length))
    assert {*read} == {*range(sum(sizes))} and len(read) - sum(sizes) < nodes
    check_contract(order)


def test_the_weights_of_maxtext_are_the_shares_that_it_reads():
    """It truncates them to whole numbers: 0.29 and 0.71 become 100 and 244 of 344."""
    order = build_order("maxtext", [1000, 1000], [0.29, 0.71], 688)
    assert order.counts(688).tolist() == [200, 488]
    assert order.dataset_weights.tolist() == pytest.approx([100 / 344, 244 / 344])
